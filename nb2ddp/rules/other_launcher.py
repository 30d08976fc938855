"""DDP004: A notebook that starts processes itself (`notebook_launcher`, `torchrun`, FSDP, DeepSpeed) is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.notebook.magics import Kind
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.tree import Tree, keyword

_LAUNCHERS = re.compile(
    r"(accelerate(\.launchers)?\.)?(notebook_launcher|debug_launcher)|torch\.multiprocessing\.(spawn|start_processes)"
    r"|ray\.(train|tune)\.\w+|wandb\.agent|torch\.distributed\.init_process_group|deepspeed\.init_distributed"
)
_WORKERS = re.compile(
    r"threading\.(Thread|Timer)|_thread\.start_new_thread|concurrent\.futures\.\w+Executor"
    r"|(torch\.)?multiprocess(ing)?(\.\w+)*\.(Process|Pool|ThreadPool)"
)
_COMMAND = re.compile(r"(^|[;&|]\s*)(accelerate\s+launch|torchrun|deepspeed|python\S*\s+-m\s+torch\.distributed)\b")
#: Training arguments and variables that spread one model over several GPUs.
_OTHER_STRATEGIES = ("fsdp", "deepspeed", "context_parallel_size", "parallelism_config")
_VARIABLES = ("UNSLOTH_FSDP2", "UNSLOTH_TP_SIZE", "UNSLOTH_PP_SIZE")
_OWN = "starts processes of its own inside each of the job's, so there is no script: call the training function itself"
_GROUP = "opens a process group, which the job's launcher does, so there is no script: take it out"
_JOB = (
    "starts a distributed job of its own inside each of the job's processes, so there is no script: convert the"
    " notebook that holds its training"
)
_A_SCRIPT = (
    "starts {0}, which a cell writes, on several GPUs, so there is no script to make: that file is one; to "
    "convert it, take out this line and the line %%writefile {0}, so that its code is the notebook's own"
)
_SHARDS = "shards the model, which excludes DDP, so there is no script: leave it out if the model fits one GPU"
_APART = (
    "trains in a separate thread or process, which the job does not control, so there is no script: call the "
    "function directly"
)


@rule("DDP004", Severity.ERROR)
def other_launcher(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in program.execution.calls(_LAUNCHERS):
        name = tree.qualified(call.func).rsplit(".", 1)[-1]
        yield Finding(call, f"{name} {_GROUP if name.startswith('init_') else _OWN}")
    for value in program.training.handed_on:
        if (starter := _starter(tree, value)) is not None:
            yield Finding(starter, _APART)
    for call, _ in program.forms_of(Kind.SHELL, Kind.CELL_MAGIC):
        if tree.is_live(call) and _COMMAND.search(program.effects.command(call)):
            file = program.written(program.effects.command(call))
            yield Finding(call, _A_SCRIPT.format(file) if file else _JOB)
    for call in program.training.arguments:
        for strategy in _OTHER_STRATEGIES:
            passed = keyword(call, strategy)
            if passed is not None and tree.literal(passed.value) not in (None, "", False, 1):
                yield Finding(passed, f"{strategy} {_SHARDS}")
    for node, variable, setting in program.settings:
        off = ("", "0", "false") if variable == "UNSLOTH_FSDP2" else ("", "0", "1")
        if variable in _VARIABLES and setting not in off and tree.is_live(node):
            yield Finding(node, f"{variable} {_SHARDS}")


def _starter(tree: Tree, value: cst.CSTNode) -> cst.Call | None:
    """The call that starts a thread or a process, where it is given a value."""
    for call in tree.ancestors(value):
        if isinstance(call, cst.Call):
            pool = tree.maker(call.func.value) if isinstance(call.func, cst.Attribute) else ""
            if _WORKERS.fullmatch(tree.qualified(call.func)) or _WORKERS.fullmatch(pool):
                return call
    return None
