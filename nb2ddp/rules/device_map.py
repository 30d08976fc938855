"""DDP101: Every model load gets `device_map = local_rank`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nb2ddp.facts.execution import Phase
from nb2ddp.facts.loading import SPLITTING, is_partial
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import Passed, entry, passed, set_argument
from nb2ddp.syntax.edits import Replace

_ENGINE = re.compile(r"vllm(\.\w+)*\.(LLM|LLMEngine|AsyncLLMEngine|AsyncLLM)(\.from_\w+)?")
_CPU = re.compile(r"""["']cpu["']""")
_PLACED = "processes would load onto each other's GPUs; in the script each loads onto its own"

_SPREAD = "the model would lie on one GPU; the script's one process spreads it over all"

_ENGINES = (
    "every process would start this vLLM engine, and all may take the first GPU: start one with `vllm serve` and ask"
    " that, or make what it gives, before the job"
)


@rule("DDP101")
def model_not_on_local_gpu(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in program.loads:
        if program.training.last is not None and program.execution.phase(call) is Phase.AFTER:
            continue
        given = passed(tree, call, "device_map")
        text = tree.text(given.value) if given is not None else ""
        if text.startswith("local_rank") or _CPU.search(text):
            continue
        if program.options.split_model and given is not None and tree.literal(given.value) in SPLITTING:
            continue
        if given is None and is_partial(tree, tree.value(call.func)):
            continue  # passed where the call is prepared
        said = f"device_map = {text}" if given else "no device_map"
        edit = set_argument(tree, call, "device_map", _place(program, given))
        yield Finding(call, f"{said}: {_SPREAD if program.options.split_model else _PLACED}", (edit,))
    for call in program.training.arguments:
        kwargs = passed(tree, call, "model_init_kwargs")
        given = entry(tree, kwargs.value, "device_map") if kwargs is not None else None
        if given is not None and not tree.text(given.value).startswith("local_rank"):
            said = f"device_map = {tree.text(given.value)}: {_PLACED}"
            yield Finding(given.value, said, (Replace(given.value, _place(program, given)),))
    for call in program.execution.calls(_ENGINE, phase=Phase.TOGETHER):
        if not program.placement.runs_alone(call):
            yield Finding(call, _ENGINES, todo=True)


def _place(program: Program, given: Passed | None) -> str:
    """This process's GPU, as code; where one process splits the model over all GPUs, it goes on to."""
    if program.options.split_model:
        return '"balanced"'
    if given is None or program.tree.literal(given.value) not in SPLITTING:
        return "local_rank"
    return f"local_rank if world_size > 1 else {program.tree.text(given.value)}"
