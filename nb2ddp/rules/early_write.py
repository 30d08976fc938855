"""File writes, downloads and programs before training run in one process of each machine; the others wait."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

import libcst as cst

from nb2ddp.facts.effects import ACTIONS, Does
from nb2ddp.facts.execution import Phase
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, made_alone, rule
from nb2ddp.syntax.arguments import passed
from nb2ddp.syntax.edits import Replace, written
from nb2ddp.syntax.tree import argument

#: Fields of training arguments that must be the same in every process.
_SAME_EVERYWHERE = ("output_dir", "logging_dir", "seed", "data_seed")
#: What is free, at the moment, on the machine or a GPU of it.
_FREE = re.compile(
    r"torch\.cuda\.(memory\.)?mem_get_info|psutil\.(virtual_memory|disk_usage)|shutil\.disk_usage"
    r"|pynvml\.nvmlDeviceGetMemoryInfo|GPUtil\.get(GPUs|Available)"
)
_NEEDED = (
    "in all processes at once, because other code of this statement must run in each: move it to a statement of its "
    "own, or do it before the job"
)
_ALONE = ", which all processes would do at once; in the script one does it"
_ONCE = f"{_ALONE}, and the others wait"
_OF_ITS_OWN = (
    ", but each rank has its own completions; in the script only the first rank of each machine writes: to keep "
    "all, put local_rank into the file's name and let every rank write"
)
_IN_TURN = " into a cache that has no lock; in the script one process of each machine does, before the others"
_SCRATCH = "{}(...): all processes use one scratch file, and overwrite each other's data"
#: What has the others wait, in an edit.
_WAITS = re.compile(r"wait_for_everyone|run_once|main_process_first")
_PROGRAMS = re.compile(r"subprocess\.(check_output|getoutput|run)|os\.popen")
#: A text in quotes: what is before its file's ending, and that.
_PATH = re.compile(r"""(?P<f>f?)(?P<quote>["'])(?P<stem>[^"']*?[^"'.])(?P<ending>\.\w+)?(?P=quote)""")


@rule("DDP403")
def written_by_every_process(program: Program) -> Iterator[Finding]:
    tree = program.tree
    scratch_files = set[tuple[cst.FunctionDef | None, str]]()
    for decision in program.placement.decisions:
        call, function = decision.call, tree.function(decision.call)
        action = ACTIONS[program.execution.does(call) & Does.ACT]
        message = f"{tree.text(call.func)}(...) {action}"
        if function is not None and decision.place is not call:
            message = f"{function.name.value}() {action} ({tree.text(call.func)}){_ONCE}"
            yield Finding(decision.place, message, decision.edits)
        elif (scratch := _scratch(program, call)) is not None:
            if (function, scratch) not in scratch_files:
                scratch_files.add((function, scratch))
                yield from _apart(program, call, scratch)
        elif decision.edits:
            is_reward = function in program.rewards.functions
            severity = Severity.WARNING if is_reward else None
            waits = any(_WAITS.search(text) for edit in decision.edits for text in written(edit))
            said = _OF_ITS_OWN if is_reward else _ONCE if waits else _ALONE
            yield Finding(call, f"{message}{said}", decision.edits, severity)
        elif tree.qualified(call.func) == "subprocess.Popen":
            once = f"{message}{_ONCE}"
            yield from made_alone(program, call, once, once, f"{message} {_NEEDED}")
        else:
            yield Finding(call, f"{message} {_NEEDED}", todo=True)
    yield from _own_values(program)
    yield from _cached(program)


def _apart(program: Program, call: cst.Call, scratch: str) -> Iterator[Finding]:
    """A scratch file of its own for each process, where the notebook writes its path out; else a `TODO`."""
    tree = program.tree
    bound = tree.bindings(scratch, call)
    path = bound[0].value if len(bound) == 1 else None
    if isinstance(path, cst.Call) and tree.qualified(path.func) in ("os.path.join", "pathlib.Path") and path.args:
        path = path.args[-1].value
    parts = _PATH.fullmatch(tree.text(path)) if isinstance(path, (cst.SimpleString, cst.FormattedString)) else None
    message = _SCRATCH.format(tree.text(call.func))
    if path is not None and "local_rank" in tree.text(path):
        return
    if path is None or parts is None or (not parts["f"] and "{" in parts["stem"]):
        yield Finding(call, f"{message}: put local_rank into {scratch}", todo=True)
        return
    own = "f{quote}{stem}_{{local_rank}}{ending}{quote}".format(**parts.groupdict(""))
    yield Finding(call, f"{message}; the script gives each its own", (Replace(path, own),))


def _cached(program: Program) -> Iterator[Finding]:
    """Downloads into caches that processes disturb each other in."""
    calls = program.execution.calls(does=Does.CACHE, phase=Phase.BEFORE | Phase.BETWEEN)
    guards = [(guard, call) for call in calls for guard in program.placement.in_turn(call)]
    for guard, call in dict(reversed(guards)).items():
        is_own = guard.first is program.tree.statement(call)
        message = f"{program.tree.text(call.func)}(...) downloads{_IN_TURN}"
        yield Finding(call if is_own else guard.first, message, (guard,))


def _own_values(program: Program) -> Iterator[Finding]:
    """What the time, a random name or free memory makes another in each process: folders, seeds, batch sizes."""
    tree = program.tree
    configs = program.training.arguments
    fields = [passed(tree, config, name) for config in configs for name in _SAME_EVERYWHERE]
    folders = [argument(config, "output_dir", 0) for config in configs]
    values = [field.value for field in (*fields, *folders) if field is not None]
    early = Phase.BEFORE | Phase.BETWEEN
    asked = [call for call in program.execution.calls(_PROGRAMS, phase=early) if "nvidia-smi" in tree.text(call)]
    free = [*program.execution.calls(_FREE, phase=early), *asked]
    uses = [(call, tree.bound_uses(assign)) for call in free if (assign := tree.around(call, cst.Assign)) is not None]
    kept = [call for call, names in uses if any(tree.around(name, cst.Assign, cst.If, cst.IfExp) for name in names)]
    for node in dict.fromkeys([*(node for value in values for node in program.execution.unlike(value)), *kept]):
        message = f"{tree.text(node)} differs between processes, and so may the training"
        if edits := program.placement.shared(node, in_whole_job=True):
            yield Finding(node, f"{message}; in the script one process computes it for all", edits)
        elif not program.placement.runs_alone(node):
            yield Finding(node, f"{message}: write a fixed value", todo=True)


def _scratch(program: Program, call: cst.Call) -> str | None:
    """A path that one function writes and removes again, where this call uses it: its name.

    Or that a reward names more than once, which each process calls with its own rows: its text.
    """
    tree, function = program.tree, program.tree.function(call)
    if function is None:
        return None
    for text in tree.within(call, cst.SimpleString) if function in program.rewards.functions else ():
        path = tree.content(text)
        if PurePath(path).suffix and sum(path in other for other in tree.texts(function)) > 1:
            return tree.text(text)
    calls = tree.within(function, cst.Call)
    removing = [each for each in calls if tree.qualified(each.func) in ("os.remove", "os.unlink", "shutil.rmtree")]
    named = {name.value: name for each in removing for name in tree.within(each, cst.Name)}
    removed = {text for text, name in named.items() if tree.bindings(text, name)}
    return next((name.value for name in tree.within(call, cst.Name) if name.value in removed), None)
