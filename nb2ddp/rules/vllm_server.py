"""DDP210: With `vllm-server = true` in pyproject.toml, a vLLM server on one more GPU generates the
completions of GRPO.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.script.inserted import SEND_WEIGHTS
from nb2ddp.syntax.arguments import constant, passed, set_argument
from nb2ddp.syntax.edits import AddToSetup

#: The ways of quantisation that a load may be asked for; Unsloth's default is the first.
_QUANTISED = ("load_in_4bit", "load_in_8bit", "load_in_fp8")
_ENGINE = re.compile(r".*\.(fast_generate|load_lora)")

_SENT = (
    "takes its completions from a vLLM server; TRL would send it weights without adapters, and the script sends both"
)
_STARTED = "would start an engine in each process; in the script a server writes the completions"
_PACKED = "loads quantised weights, which a vLLM server cannot take from the trainer: load them in 16 bits"
_SAMPLING = "does not reach a server: write temperature, top_p, top_k and min_p into the arguments of the trainer"
_NEEDED = "needs an engine in the process, and the server has it: use model.generate(...)"


@rule("DDP210", also_alone=True)
def completions_from_a_server(program: Program) -> Iterator[Finding]:
    tree, wanted = program.tree, program.options.vllm_server
    trainings = [
        call for call in program.training.arguments if tree.class_name(call.func).endswith(("GRPOConfig", "RLOOConfig"))
    ]
    asked = [call for call in trainings if constant(tree, call, "vllm_mode") == "server" and not program.engines]
    for call in trainings if wanted else asked:
        fields = (("use_vllm", "True"), ("vllm_mode", '"server"'))
        edits = tuple(set_argument(tree, call, name, value) for name, value in fields) if wanted else ()
        yield Finding(call, _SENT, (*edits, AddToSetup(SEND_WEIGHTS)))
        if wanted and passed(tree, call, "vllm_sampling_params") is not None:
            yield Finding(call, f"vllm_sampling_params {_SAMPLING}", severity=Severity.WARNING)
    if wanted and trainings:
        yield from _without_engine(program)


def _without_engine(program: Program) -> Iterator[Finding]:
    """What a notebook with engines says otherwise where there is none."""
    tree = program.tree
    for load in program.engines:
        yield Finding(load, _STARTED, (set_argument(tree, load, "fast_inference", "False"),))
        by_default = constant(tree, load, "load_in_4bit") is None
        if by_default or any(constant(tree, load, name) not in (None, False) for name in _QUANTISED):
            yield Finding(load, _PACKED, todo=True)
    needing = {tree.statement(call): call for call in program.execution.calls(_ENGINE)}
    for call in needing.values():
        yield Finding(call, f"{tree.text(call.func)}(...) {_NEEDED}", todo=True)
