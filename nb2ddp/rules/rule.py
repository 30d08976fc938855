"""A rule: a coded problem, a function that finds it, and a page that explains it, whose examples are its tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import libcst as cst

from nb2ddp.codes import Code
from nb2ddp.results import Severity
from nb2ddp.syntax.cells import Source
from nb2ddp.syntax.edits import Edit, Remove, Replace

if TYPE_CHECKING:
    from nb2ddp.facts.program import Program


class Finding:
    """One place where a rule applies.

    Args:
        node: where it is.
        message: what was found, in one line.
        edits: the changes of the script there; none for a finding that only reports.
        severity: None means the rule's severity, or a warning if `todo` is set.
        todo: leave `# TODO[nb2ddp] CODE: message` above the statement.
        fixed: the script no longer has the problem; None if that follows from the edits.
    """

    def __init__(
        self,
        node: cst.CSTNode,
        message: str,
        *edits: Edit,
        severity: Severity | None = None,
        todo: bool = False,
        fixed: bool | None = None,
    ) -> None:
        self.node, self.message, self.edits = node, message, edits
        self.severity, self.todo, self.fixed = severity, todo, fixed


#: What a rule yields.
Findings = Iterator[Finding]


def todo(node: cst.CSTNode, message: str, *edits: Edit) -> Finding:
    """Return a finding that asks a person to do something: it leaves a `TODO` with the message in the script."""
    return Finding(node, message, *edits, todo=True)


def warning(node: cst.CSTNode, message: str) -> Finding:
    """Return a finding that a person should look at."""
    return Finding(node, message, severity=Severity.WARNING)


def left_out(source: Source, call: cst.Call, comment: str = "") -> Edit:
    """Remove a call from the script: its whole statement if it has no other code, else replace the call by None.

    Args:
        source: the notebook's code.
        call: the call to remove.
        comment: the comment in IPython syntax, which replaces the statement.
    """
    statement = source.alone(call)
    return Replace(call, "None") if statement is None else Remove(statement, comment=comment, comments_above=True)


def without_names(source: Source, statement: cst.Import | cst.ImportFrom, kept: Sequence[cst.ImportAlias]) -> Replace:
    """Keep only some names of an import."""
    tree, aliases = source.tree, cast(Sequence[cst.ImportAlias], statement.names)
    start, end = tree.span(statement)
    names = ", ".join(tree.text(alias).rstrip(", ") for alias in kept)
    head, tail = tree.source[start : tree.start(aliases[0])], tree.source[tree.span(aliases[-1])[1] : end]
    return Replace(statement, f"{head}{names}{tail}")


def shown(source: Source, call: cst.Call) -> str:
    """Return how a message names a call: `f(...)`, or `!command`."""
    form = source.form(call)
    return f"{source.tree.text(call.func)}(...)" if form is None else f"!{form.command}"


def made_alone(program: Program, call: cst.Call, made: str, used: str, needed: str) -> Findings:
    """Let one process of each machine make an object, and use it; leave a `TODO` if another process needs it."""
    alone = program.placement.alone(call)
    for node, edits in alone.items():
        yield Finding(node, made if node is call else used, *edits)
    if not alone:
        yield todo(call, needed)


def trained(program: Program) -> Iterator[tuple[cst.Call, str]]:
    """Yield the calls that train, each with its trainer as code; "" for a trainer without a name."""
    tree = program.tree
    for call in program.training.calls:
        owner, name = tree.member(call.func) or (call.args[0].value if call.args else call, "train")
        is_function = any(isinstance(above, (cst.Lambda, cst.BaseComp)) for above in tree.inside_statement(call))
        if name not in ("evaluate", "predict"):
            yield call, tree.text(owner) if isinstance(owner, (cst.Name, cst.Attribute)) and not is_function else ""


#: Yields the places in a notebook that have a rule's problem.
Find = Callable[["Program"], Findings]


@dataclass(frozen=True)
class Rule(Code):
    """One coded problem of notebook code under DDP.

    Attributes:
        code: `DDP` and three digits: 0 cannot convert, 1 placement, 2 trainer, 3 notebook-only code, 4 phases.
        name: the problem, in kebab case.
        find: yields the places.
        severity: the severity of its findings, unless a finding has another.
        also_alone: a rule of placement, trainers or phases also applies to code that the main process runs alone.
    """

    find: Find
    severity: Severity = Severity.NOTE
    also_alone: bool = False

    @property
    def is_on_processes(self) -> bool:
        """True if only several processes have the problem: placement, trainer, phases."""
        return self.code[3] in "124" and not self.also_alone


def rule(code: str, severity: Severity = Severity.NOTE, *, also_alone: bool = False) -> Callable[[Find], Rule]:
    """Turn a function that finds places into a rule with the function's name; the page of its code explains it."""
    return lambda find: Rule(code, find.__name__.replace("_", "-"), find, severity, also_alone)
