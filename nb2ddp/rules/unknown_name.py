"""DDP005: A name that is undefined when the script reads it gets a `TODO`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.notebook.magics import Kind
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.script.modules import IN_SETUP
from nb2ddp.syntax.tree import Tree


@rule("DDP005", Severity.WARNING)
def unknown_name(program: Program) -> Iterator[Finding]:
    tree = program.tree
    certain = not _defines_unseen(program)
    together = defaultdict[tuple[cst.CSTNode, bool], list[cst.Name]](list)
    firsts = dict[tuple[cst.CSTNode | None, bool], cst.CSTNode]()  # of neighbouring lines, of which one `TODO` speaks
    for use in _first_uses(program):
        fails = certain and not _is_caught(tree, use) and bool(program.execution.phase(use))
        line = tree.statement(use)
        above = _line_above(program, line) if fails else None
        first = firsts.setdefault((line, fails), firsts.get((above, fails), line))
        together[first, fails].append(use)
    for (_, fails), uses in together.items():
        told = f"the script stops here; {_remedy(tree, uses)}" if fails else _PERHAPS
        yield Finding(uses[0], f"{_said(program, uses)}: {told}", todo=fails)


def _remedy(tree: Tree, uses: list[cst.Name]) -> str:
    if all(tree.around(use, cst.Del) is not None for use in uses):
        return "leave this line out"
    return f"define {'it' if len(uses) == 1 else 'them'} above"


_PERHAPS = (
    "where this runs, the script stops, unless a `try` goes on or something else defines it; look whether it does"
)


def _line_above(program: Program, line: cst.CSTNode) -> cst.CSTNode | None:
    """The statement above a statement, in the same suite of the same cell."""
    tree = program.tree
    suite = list(getattr(tree.parents[line], "body", ()))
    above = suite[suite.index(line) - 1] if line in suite[1:] else None
    return (
        above if above is not None and program.cell_at(tree.start(above)) == program.cell_at(tree.start(line)) else None
    )


def _first_uses(program: Program) -> list[cst.Name]:
    """Where each name that stands for nothing is read for the first time, in order."""
    tree, names = program.tree, program.names

    def is_stop(line: cst.CSTNode) -> bool:
        return isinstance(line, cst.Expr) and names.is_stop(line)

    unknown = (
        [use for use in tree.loads(name) if names.is_unknown(use) and not is_stop(tree.parents[use])]
        for name in set(tree.names_read) - IN_SETUP
    )
    return sorted((uses[0] for uses in unknown if uses), key=tree.start)


def _said(program: Program, uses: Iterable[cst.Name]) -> str:
    """What is wrong with the names of one statement: those of one reason together."""
    by_reason = defaultdict[str, list[str]](list)
    for use in uses:
        by_reason[_reason(program, use)].append(repr(use.value))
    return ", ".join(
        f"{names[0]} is {reason}" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} are {reason}"
        for reason, names in by_reason.items()
    )


def _reason(program: Program, use: cst.Name) -> str:
    tree = program.tree
    bindings = [each for each in tree.bindings(use.value) if tree.is_live(each.node)]
    here = any(tree.span(each.node)[0] <= tree.start(use) < tree.span(each.node)[1] for each in bindings)
    values = [each.value for each in bindings]
    needed = [value is not None and use.value in map(tree.text, tree.within(value, cst.Name)) for value in values]
    if here or (needed and all(needed)):
        return "made of itself before it has a value"
    if not bindings:
        return "never defined"
    in_cell = program.cell_at(tree.start(bindings[0].node)) == program.cell_at(tree.start(use))
    return "defined only further down" + ("" if in_cell else " (the cells are out of order)")


def _defines_unseen(program: Program) -> bool:
    """True where names may come from what is run as text, or from another notebook."""
    magics = any(form.name in ("run", "store", "load") for _, form in program.forms_of(Kind.LINE_MAGIC))
    return magics or any(program.execution.calls(name) for name in ("exec", "globals", "locals", "vars"))


def _is_caught(tree: Tree, use: cst.Name) -> bool:
    """True below a `try` that goes on without the name."""
    return any(isinstance(above, cst.Try) and above.handlers for above in tree.ancestors(use))
