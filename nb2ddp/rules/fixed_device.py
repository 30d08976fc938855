"""DDP102: A GPU named by its number becomes this process's GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.execution import Phase
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import Replace
from nb2ddp.syntax.tree import Tree, argument, keyword, method

_INDEXED = re.compile(r"cuda:(\d+)")
#: Functions of torch.cuda whose first argument is a device.
_QUERIES = re.compile(
    r"torch\.cuda\.(\w+\.)*(current_stream|device|empty_cache|get_device_\w+|max_memory_\w+|mem_get_info|memory_\w+"
    r"|reset_peak_memory_stats|set_device|synchronize|utilization)"
)
#: What takes a device by its name alone.
_TAKES_DEVICE = re.compile(r"torch\..*|.*(\.pipeline|SentenceTransformer|CrossEncoder)")
_FIXED = "names one GPU for all processes; in the script each names its own"


@rule("DDP102")
def fixed_gpu(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for string in tree.of(cst.SimpleString):
        value = string.evaluated_value if "cuda:" in string.value else None
        if isinstance(value, str) and _INDEXED.fullmatch(value) and program.execution.runs(string):
            parent = tree.parents[string]
            if isinstance(parent, cst.Arg) and parent.keyword and parent.keyword.value == "device_map":
                continue  # DDP101
            yield Finding(string, f'"{value}" {_FIXED}', (Replace(string, 'f"cuda:{local_rank}"'),))
    for call in program.execution.calls(phase=Phase.TOGETHER):
        given = _device(tree, call)
        if given is not None and isinstance(given.value, cst.Integer):
            yield Finding(call, f"{tree.text(call)} {_FIXED}", (Replace(given.value, "local_rank"),))


def _device(tree: Tree, call: cst.Call) -> cst.Arg | None:
    """The device that a call is given: `torch.device("cuda", 0)`, `x.to(0)`, `pipeline(..., device = 0)`."""
    name, called = tree.qualified(call.func), method(call)
    if name == "torch.device" and len(call.args) == 2 and tree.literal(call.args[0].value) == "cuda":
        return call.args[1]
    if called == "cuda" or (called == "to" and len(call.args) == 1) or _QUERIES.fullmatch(name):
        return argument(call, "device", 0)
    return keyword(call, "device") if _TAKES_DEVICE.fullmatch(name) else None
