"""DDP405: A remote service is asked once for all ranks, and a server is started once on each machine."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.execution import Phase
from nb2ddp.facts.program import Program
from nb2ddp.facts.services import answer, gpus_of, questions
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, made_alone, rule
from nb2ddp.script.inserted import LEAVE_GPUS
from nb2ddp.syntax.edits import AddToSetup
from nb2ddp.syntax.tree import Tree, argument

_COMMAND = re.compile(
    r"\b(vllm serve|ollama serve|uvicorn|gunicorn|sglang|llama-server|text-generation-launcher|http\.server)\b|--port\b"
)
_HERE = re.compile(r"\b(localhost|127\.0\.0\.1|0\.0\.0\.0)\b|\[::1\]")
_CALLS = re.compile(r"(http\.server|socketserver)\.\w*Server|.*\bSyntheticDataKit\.from_pretrained")

FEWER = "one process fewer than the machine has GPUs"
_ONCE = "asks a service, which may answer each process differently; in the script one asks for all"
_EACH = (
    "asks a service in every process, and each may get other data and be billed for it: fetch it to a file once, "
    "before the job"
)
_STARTED = "starts a server in every process; in the script one process of each machine does, and runs what uses it"
_USED = "uses a server that only one process of each machine starts; in the script that process does it"
_TAKEN = "starts a server in every process, and all but the first find its port taken: start it once, before the job"


@rule("DDP405")
def server_or_remote_data(program: Program) -> Iterator[Finding]:
    execution = program.execution
    asked: set[cst.Call] = set()
    for call in execution.calls(phase=Phase.TOGETHER):
        starts, asks = _starts(program, call), execution.does(call) & Does.ASK
        if starts and (gpus := gpus_of(program.tree, call, program.effects.command(call))):
            seen = ",".join(str(number) for number in range(8) if str(number) not in gpus)
            said = f"starts a server on GPU {', '.join(gpus)}; the script leaves that to it: start {FEWER}"
            yield Finding(call, said, (AddToSetup(f'{LEAVE_GPUS}"{seen}")', True),), Severity.WARNING)
        if not (starts or asks) or program.placement.runs_alone_as_placed(call):
            continue
        if starts:
            yield from _started(program, call)
        else:
            asked.update(each for each in questions(program.tree, call) if execution.runs(each))
    for call in program.tree.in_order(asked):
        apart = program.placement.runs_alone_as_placed(call) or _is_rewards(program, call)
        if not apart and not _asks_whether(program.tree, call):
            yield _asked(program, call)


def _is_rewards(program: Program, call: cst.Call) -> bool:
    """True for what rewards alone ask, each process for its own completions: in methods of an environment too."""
    tree, function = program.tree, program.tree.function(call)
    if program.rewards.is_only_here(call):
        return True
    used = tree.named(function) if function in program.rewards.functions and function is not None else []
    return bool(used) and all(tree.owner(use) in program.rewards.functions for use in used)


def _asks_whether(tree: Tree, call: cst.Call) -> bool:
    """True for a question that all may ask: of a server on this machine, or whether one answers at all."""
    if tree.text(call.func).rsplit(".", 1)[-1] not in ("get", "head", "urlopen"):
        return False
    url = argument(call, "url", 0)
    if url is not None and any(_HERE.search(tree.text(part)) for part in tree.made_of(url.value)):
        return True
    return isinstance(tree.parents[tree.extended(call, cst.Attribute, cst.Call)], cst.Expr)


def _asked(program: Program, call: cst.Call) -> Finding:
    """A question that is asked once for all, or a `TODO` where its answer cannot be handed on."""
    given = answer(program.tree, call)
    edits = program.placement.shared(given, in_whole_job=True) if given is not None else ()
    return Finding(call, f"{program.tree.text(call.func)}(...) {_ONCE if edits else _EACH}", edits, todo=not edits)


def _started(program: Program, call: cst.Call) -> Iterator[Finding]:
    """A server that one process of each machine starts, where no other needs what holds it; else a `TODO`."""
    if program.tree.qualified(call.func) == "subprocess.Popen" or program.alone(call) is not None:
        return  # DDP403 and DDP305 say so of any program
    yield from made_alone(program, call, _STARTED, _USED, _TAKEN)


def _starts(program: Program, call: cst.Call) -> bool:
    """True for a call, or a shell command, that starts a server beside the script."""
    if program.execution.does(call) & Does.SERVE:
        return False
    started = _COMMAND.search(program.effects.command(call))
    return bool(started or _CALLS.fullmatch(program.tree.qualified(call.func)))
