"""DDP103: Lines that set or delete `CUDA_VISIBLE_DEVICES`, `WORLD_SIZE`, `RANK` and the like are removed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from nb2ddp.facts.environment import holder
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import Cut, Edit, Remove
from nb2ddp.syntax.environ import LAUNCHER_VARIABLES, environ_key
from nb2ddp.syntax.tree import Statement, Tree

_POPS = re.compile(r"os\.(environ\.(pop|__delitem__)|unsetenv)")
_SET = "is what the launcher sets for each process"


@rule("DDP103", Severity.WARNING)
def launcher_variable_set(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for taken, names, is_all in _taken_out(program):
        said = f"{', '.join(names)} {_SET}: without it each process trains alone"
        edits = (Remove(taken, keep_comment=False, comments_above=True),) if is_all else ()
        remedy = "; the script leaves this out" if is_all else ": leave it in the environment"
        yield Finding(taken, f"{said}{remedy}", edits, todo=not is_all)
    for node, name, _ in program.settings:
        statement = holder(program, node)
        if name in LAUNCHER_VARIABLES and statement is not None and tree.is_live(node):
            why = "would give every process the same GPUs" if name == "CUDA_VISIBLE_DEVICES" else _SET
            said = f"{name} {why}; the script leaves this out: say it where you start it"
            yield Finding(node, said, (_without(tree, node, statement),))
    known = {node for node, *_ in program.settings}
    for call in program.tree.live(cst.Call):
        if tree.qualified(call.func) == "os.environ.update":
            strings = [text for text in tree.within(call, cst.SimpleString) if known.isdisjoint(tree.ancestors(text))]
            words = {tree.content(text) for text in strings}
            if named := sorted(words & LAUNCHER_VARIABLES):
                yield Finding(call, f"{', '.join(named)} {_SET}, and breaks the job here: leave it out", todo=True)


def _without(tree: Tree, node: cst.CSTNode, statement: cst.BaseSmallStatement | cst.For) -> Edit:
    """Leave out what sets a launcher's variable: its statement, or of one that sets others too its entry."""
    entries: Sequence[cst.CSTNode] = ()
    if isinstance(node, (cst.DictElement, cst.Arg)):
        owner = tree.parents[node]
        entries = owner.elements if isinstance(owner, cst.Dict) else cst.ensure_type(owner, cst.Call).args
    kept = [each for each in entries if not _is_launchers(tree, each)]
    if not kept:
        return Remove(statement, keep_comment=False, comments_above=True)
    at = entries.index(node)
    if tree.start(node) < tree.start(kept[-1]):
        return Cut(tree.start(node), tree.start(entries[at + 1]))
    return Cut(tree.span(kept[-1])[1], tree.span(node)[1])


def _is_launchers(tree: Tree, entry: cst.CSTNode) -> bool:
    """True for an entry or an argument that sets a variable of the launcher's."""
    if isinstance(entry, cst.DictElement):
        return tree.literal(entry.key) in LAUNCHER_VARIABLES
    return isinstance(entry, cst.Arg) and entry.keyword is not None and entry.keyword.value in LAUNCHER_VARIABLES


def _taken_out(program: Program) -> Iterator[tuple[cst.BaseSmallStatement | Statement, list[str], bool]]:
    """What takes the launcher's variables out of the environment: `del`, `pop`, or a loop of them.

    With the variables, and whether it does nothing else.
    """
    tree = program.tree
    taken: list[tuple[cst.BaseSmallStatement, object]] = [
        (statement, environ_key(tree, statement.target)) for statement in tree.live(cst.Del)
    ]
    for call in tree.live(cst.Call):
        if _POPS.fullmatch(tree.qualified(call.func)) and call.args and (statement := program.alone(call)) is not None:
            taken.append((statement, tree.literal(call.args[0].value)))
    for small, name in taken:
        loop = tree.around(small, cst.For)
        if name in LAUNCHER_VARIABLES:
            yield small, [str(name)], True
        elif name is ... and loop is not None:
            words = tree.texts(tree.value(loop.iter))
            lines = [each for line in tree.within(loop, cst.SimpleStatementLine) for each in line.body]
            if names := [word for word in words if word in LAUNCHER_VARIABLES]:
                yield loop, names, lines == [small] and names == words
