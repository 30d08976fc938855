"""DDP102: use this process's GPU where the notebook names GPU 0."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.execution import Phase
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Replace
from nb2ddp.syntax.tree import Tree, keyword

_INDEXED = re.compile(r"cuda:(\d+)")
#: Functions of torch.cuda whose first argument is a device.
_QUERIES = frozenset(
    "current_stream device empty_cache get_device_capability get_device_name get_device_properties "
    "max_memory_allocated max_memory_reserved mem_get_info memory_allocated memory_reserved memory_stats "
    "memory_summary reset_peak_memory_stats set_device synchronize utilization".split()
)
_FIXED = "names one GPU for all processes; in the script each names its own"


def find(program: Program) -> Iterator[Finding]:
    tree, local_rank = program.tree, program.name("local_rank")
    for string in tree.of(cst.SimpleString):
        value = string.evaluated_value if "cuda:" in string.value else None
        if isinstance(value, str) and _INDEXED.fullmatch(value) and program.execution.runs(string):
            parent = tree.parents[string]
            if isinstance(parent, cst.Arg) and parent.keyword and parent.keyword.value == "device_map":
                continue  # DDP101
            yield Finding(
                string,
                f'"{value}" {_FIXED}',
                edits=(Replace(string, f'f"cuda:{{{local_rank}}}"'),),
            )
    for call in program.execution.calls(phase=Phase.TOGETHER):
        name = tree.qualified(call.func)
        if number := _numbered(tree, call, name):
            yield Finding(call, f"{tree.text(call)} {_FIXED}", edits=(Replace(number, local_rank),))
            continue
        device = call.args[0] if call.args and not call.args[0].star else None
        if device is None or not isinstance(device.value, cst.Integer):
            continue
        method = isinstance(call.func, cst.Attribute) and call.func.attr.value
        if (name.startswith("torch.cuda.") and name.rsplit(".", 1)[-1] in _QUERIES) or (
            method == "cuda" and len(call.args) == 1 and device.keyword is None
        ):
            yield Finding(
                call,
                f"{tree.text(call)} {_FIXED}",
                edits=(Replace(device.value, local_rank),),
            )


def _numbered(tree: Tree, call: cst.Call, name: str) -> cst.BaseExpression | None:
    """The number of a GPU in `torch.device("cuda", 0)`, `x.to(0)` and `pipeline(..., device = 0)`."""
    given: cst.Arg | None = None
    if name == "torch.device" and len(call.args) == 2 and tree.literal(call.args[0].value) == "cuda":
        given = call.args[1]
    elif isinstance(call.func, cst.Attribute) and call.func.attr.value == "to" and len(call.args) == 1:
        given = call.args[0] if call.args[0].keyword is None else keyword(call, "device")
    elif name.startswith("torch.") or (isinstance(call.func, cst.Attribute) and call.func.attr.value == "cuda"):
        given = keyword(call, "device")
    elif name.endswith((".pipeline", "SentenceTransformer", "CrossEncoder")):
        given = keyword(call, "device")
    return given.value if given is not None and isinstance(given.value, cst.Integer) else None


RULE = Rule(
    code="DDP102",
    name="fixed-gpu",
    summary="GPU 0 by number becomes this process's GPU, as long as there are several processes.",
    why="A notebook has one GPU, number 0. Under DDP, number 0 is the first process's: others that use it run out of "
    "memory there or compare tensors on two devices.",
    find=find,
    examples=(
        Example(
            """\
import torch
stats = torch.cuda.get_device_properties(0)
batch = batch.to("cuda:0")
model.cuda(0)
device = torch.device("cuda", 0)
mask = torch.ones(3, device = 0)
trainer.train()
""",
            """\
import torch
stats = torch.cuda.get_device_properties(local_rank)
batch = batch.to(f"cuda:{local_rank}")
model.cuda(local_rank)
device = torch.device("cuda", local_rank)
mask = torch.ones(3, device = local_rank)
trainer.train()
""",
        ),
        Example('batch = batch.to("cuda")\nmodel.cuda()\n'),
        Example('trainer.train()\nmodel.to("cuda:0")\n'),
    ),
)
