"""Run rules over a program: find on the untouched tree, then edit once."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from nb2ddp.facts.execution import Phase
from nb2ddp.facts.program import Program
from nb2ddp.notebook.magics import Kind
from nb2ddp.results import Diagnostic, NotebookError, Severity
from nb2ddp.rules.rule import Finding, Rule
from nb2ddp.rules.suppress import Suppressions
from nb2ddp.script.inserted import Inserted
from nb2ddp.script.linker import renamed, taken, words
from nb2ddp.script.modules import IN_SETUP
from nb2ddp.syntax.edits import (
    OF_NO_CODE,
    AddToSetup,
    Edit,
    InsertAbove,
    InsertBefore,
    Replace,
    apply,
    resolve,
    written,
)

#: Imports of whole modules without aliases.
_PLAIN_IMPORT = re.compile(r"import (\w+(?:, *\w+)*);?\s*(?:#.*)?")


@dataclass(frozen=True)
class Rewrite:
    """The rewritten code cells, by cell number, with the findings and the inserted code."""

    cells: dict[int, str]
    diagnostics: tuple[Diagnostic, ...]
    inserted: Inserted


def rewrite(program: Program, rules: Iterable[Rule], suppressions: Suppressions | None = None) -> Rewrite:
    """Apply rules to a program.

    Args:
        program: a parsed notebook.
        rules: in the order in which edits at one place apply.
        suppressions: the places where the notebook suppresses rules; None for no such place.
    """
    found = [
        (rule, finding)
        for rule in rules
        for finding in rule.find(program)
        if _applies(program, rule, finding)
        and (suppressions is None or not suppressions.covers(rule.code, program.location(finding.node)))
    ]
    edits = [edit for rule, finding in found for edit in _edits(program, rule, finding)]
    # a decorator goes below all other lines above its function
    edits.sort(key=lambda edit: isinstance(edit, InsertBefore) and edit.text.startswith("@"))
    inserted, fresh = _inserted(edits), taken(program)
    if fresh:  # the notebook uses names of the setup block for something else
        edits = [_renamed(program, edit, fresh) for edit in edits]
    unmasked = [Replace(call, form.source) for call, form in program.forms_of(*Kind)]  # where no rule edits it
    changes = resolve(program.tree, [*edits, *unmasked], program.cell_starts)
    spans = {cell.number: program.cell_span(cell.number) for cell in program.code_cells}
    texts = {each: apply(program.tree.source, changes, *span).removesuffix("\n") for each, span in spans.items()}
    changed = [
        each for each, span in spans.items() if texts[each] != program.tree.source[slice(*span)].removesuffix("\n")
    ]
    cells = texts | {each: "" for each in changed if _is_left_over(each, texts)}
    diagnostics = sorted(
        (_diagnostic(program, rule, finding) for rule, finding in found),
        key=lambda each: each.order,
    )
    return Rewrite(cells, tuple(diagnostics), inserted)


def _is_left_over(number: int, cells: dict[int, str]) -> bool:
    """Return whether a cell has only imports left, which have no effect and whose names no other cell uses."""
    cell = cells[number]
    lines = [line for line in cell.splitlines() if line.strip() and not line.startswith("#")]
    imports = [_PLAIN_IMPORT.fullmatch(line) for line in lines]
    names = {name for each in imports if each is not None for name in each[1].replace(" ", "").split(",")}
    is_plain = names <= sys.stdlib_module_names | IN_SETUP and not OF_NO_CODE.search(cell)
    if not lines or None in imports or not is_plain:
        return False
    others = "\n".join(other for each, other in cells.items() if each != number)
    return not any(re.search(rf"\b{name}\b", others) for name in names)


def _applies(program: Program, rule: Rule, finding: Finding) -> bool:
    """Return False if a rule for several processes finds code that the main process runs alone: it stays as it is."""
    is_alone = program.closes_group and program.execution.phase(finding.node) is Phase.AFTER
    return not (rule.is_on_processes and is_alone)


def refuse(diagnostics: Iterable[Diagnostic]) -> None:
    """Refuse a notebook if a finding makes a script pointless or wrong.

    Raises:
        NotebookError: with all such findings.
    """
    errors = [diagnostic for diagnostic in diagnostics if diagnostic.severity is Severity.ERROR]
    if errors:
        raise NotebookError.of([error for error in errors if error.code != "DDP002"] or errors)


def _inserted(edits: Iterable[Edit]) -> Inserted:
    """Return the code that edits insert into the cells and into the setup block."""
    setup = dict.fromkeys((edit.before_imports, edit.text) for edit in edits if isinstance(edit, AddToSetup))
    cells = [text for edit in edits if not isinstance(edit, AddToSetup) for text in written(edit)]
    first, last = (tuple(text for early, text in setup if early is wanted) for wanted in (True, False))
    return Inserted(tuple(cells), first, last)


def _renamed(program: Program, edit: Edit, names: dict[str, str]) -> Edit:
    """Return an edit with new names for those of the setup block; names of the notebook in the replaced code stay."""
    if isinstance(edit, Replace):
        own = words(program.tree.text(edit.node))
        names = {name: other for name, other in names.items() if name.removesuffix("(") not in own}
    texts: dict[str, Any] = {key: renamed(text, names) for key, text in vars(edit).items() if isinstance(text, str)}
    return replace(edit, **texts)


def _edits(program: Program, rule: Rule, finding: Finding) -> list[Edit]:
    edits = list(finding.edits)
    if finding.todo:
        statement = program.tree.statement(finding.node)
        todo = f"# TODO[nb2ddp] {rule.code}:"
        above = program.tree.comments_above(statement)
        if todo not in program.tree.source[above : program.tree.start(statement)]:
            edits.append(InsertAbove(statement, f"{todo} {finding.message}"))
    return edits


def _diagnostic(program: Program, rule: Rule, finding: Finding) -> Diagnostic:
    location = program.location(finding.node)
    fixed = bool(finding.edits) if finding.fixed is None else finding.fixed
    return Diagnostic(
        code=rule.code,
        name=rule.name,
        severity=finding.severity or (Severity.WARNING if finding.todo else rule.severity),
        message=finding.message,
        location=location,
        line_text=program.notebook.line_text(location),
        fixed=fixed and not finding.todo and (finding.severity or rule.severity) is Severity.NOTE,
    )
