"""Run rules over a program: find on the untouched tree, then edit once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from nb2ddp.facts.execution import Phase
from nb2ddp.facts.parts import Part
from nb2ddp.facts.program import Program
from nb2ddp.notebook.magics import Kind
from nb2ddp.results import Diagnostic, NotebookError, Severity
from nb2ddp.rules.rule import Finding, Rule
from nb2ddp.rules.suppress import Suppressions
from nb2ddp.syntax.edits import Edit, Guard, InsertBefore, Replace, apply, resolve

#: How code that edits insert begins, and the part of the setup block that it relies on (see `templates/setup.py.j2`).
_RELIES: Final = {
    "PartialState().": Part.WAIT,
    "run_once": Part.RUN_ONCE,
    "subprocess.": Part.SUBPROCESS,
    "asyncio.": Part.ASYNCIO,
}


@dataclass(frozen=True)
class Rewrite:
    """The rewritten code cells, by cell number, with what was found and what the setup block must hold."""

    cells: dict[int, str]
    diagnostics: tuple[Diagnostic, ...]
    needs: frozenset[Part]


def rewrite(program: Program, rules: Iterable[Rule], suppressions: Suppressions | None = None) -> Rewrite:
    """Apply rules to a program.

    Args:
        program: a parsed notebook.
        rules: in the order in which edits at one place apply.
        suppressions: the places that the notebook keeps rules from; None for nowhere.
    """
    found = [
        (rule, finding)
        for rule in rules
        for finding in rule.find(program)
        if _applies(program, rule, finding)
        and (suppressions is None or not suppressions.covers(rule.code, program.location(finding.node)))
    ]
    edits = [edit for rule, finding in found for edit in _edits(program, rule, finding)]
    unmasked = [Replace(call, form.source) for call, form in program.forms_of(*Kind)]  # where no rule wanted them
    changes = resolve(program.tree, [*edits, *unmasked], program.cell_starts)
    spans = {cell.number: program.cell_span(cell.number) for cell in program.code_cells}
    cells = {each: apply(program.tree.source, changes, *span).removesuffix("\n") for each, span in spans.items()}
    diagnostics = sorted(
        (_diagnostic(program, rule, finding) for rule, finding in found),
        key=lambda each: each.order,
    )
    needs = frozenset(need for _, finding in found for need in finding.needs)
    return Rewrite(cells, tuple(diagnostics), needs.union(*map(relied_on, edits)))


def _applies(program: Program, rule: Rule, finding: Finding) -> bool:
    """False for what is found on several processes where the main process is alone: its code is the notebook's."""
    is_alone = program.closes_group and program.execution.phase(finding.node) is Phase.AFTER
    return not (rule.is_on_processes and is_alone)


def refuse(diagnostics: Iterable[Diagnostic]) -> None:
    """Stop at the first finding that makes a script pointless or wrong.

    Raises:
        NotebookError: with the finding's code, place and message.
    """
    errors = [diagnostic for diagnostic in diagnostics if diagnostic.severity is Severity.ERROR]
    if errors:
        first = min(errors, key=lambda error: error.code == "DDP002")  # any other reason tells more
        raise NotebookError(first.message, first.location, first.code, first.name)


def relied_on(edit: Edit) -> frozenset[Part]:
    """The parts of the setup block that an edit's text needs."""
    texts = [text for text in vars(edit).values() if isinstance(text, str)]
    needs = {part for text in texts for begins, part in _RELIES.items() if text.startswith(begins)}
    if isinstance(edit, Guard) and edit.waits:
        needs.add(Part.WAIT)
    if Part.RUN_ONCE in needs:
        needs |= {Part.WAIT, *([Part.WHOLE_JOB] if "in_whole_job" in texts[-1] else [])}
    return frozenset(needs)


def _edits(program: Program, rule: Rule, finding: Finding) -> list[Edit]:
    edits = list(finding.edits)
    if finding.todo:
        statement = program.tree.statement(finding.node)
        todo = f"# TODO[nb2ddp] {rule.code}:"
        above = program.tree.comments_above(statement)
        if todo not in program.tree.source[above : program.tree.start(statement)]:
            edits.append(InsertBefore(statement, f"{todo} {finding.message}"))
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
