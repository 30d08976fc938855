"""Comments in the notebook that suppress a rule on a line: `# nb2ddp: ignore[DDP101, DDP303]`.

A comment applies to the line that it ends or, if it stands alone, to the next line of code. The rule's finding is
dropped and its edit is not made.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import libcst as cst

from nb2ddp.codes import UNUSED
from nb2ddp.facts.program import Program
from nb2ddp.notebook.magics import Kind
from nb2ddp.results import Diagnostic, Location, Severity

_COMMENT = re.compile(r"#\s*nb2ddp:\s*ignore(?:\[([^\]\n]*)\])?")


@dataclass(frozen=True)
class _Suppression:
    code: str
    place: Location  #: of the comment
    line: int  #: the line of its cell to which it applies


class Suppressions:
    """The suppression comments of a notebook.

    Attributes:
        used: those that have suppressed a finding.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._found = list(_find(program))
        self.used = set[_Suppression]()

    def covers(self, code: str, place: Location) -> bool:
        """Return whether a comment suppresses a rule at a place; the comment then counts as used."""
        covering = [s for s in self._found if (s.code, s.place.cell, s.line) == (code, place.cell, place.line)]
        self.used.update(covering)
        return bool(covering)

    def unused(self, applied: Collection[str], known: Collection[str]) -> Iterator[Diagnostic]:
        """Yield a warning for each comment that suppressed nothing.

        Args:
            applied: the codes of the rules that were applied; comments for other rules are not judged.
            known: the codes of all rules.
        """
        for each in self._found:
            if each.code not in known:
                what = f"no rule has the code {each.code!r}" if each.code else "it names no code: ignore[DDP101]"
            elif each.code in applied and each not in self.used:
                what = f"{each.code} finds nothing on line {each.line}"
            else:
                continue
            found = UNUSED.found(f"unused suppression: {what}", Severity.WARNING)
            yield replace(found, location=each.place, line_text=self._program.notebook.line_text(each.place))


def _find(program: Program) -> Iterator[_Suppression]:
    """Yield each code of each comment."""
    texts: list[tuple[cst.CSTNode, str]] = [(node, node.value) for node in program.tree.of(cst.Comment)]
    texts += [(call, form.source) for call, form in program.forms_of(*Kind) if form.body is None]
    sources = {cell.number: cell.source.split("\n") for cell in program.code_cells}
    for node, text in texts:
        for match in _COMMENT.finditer(text):
            start = program.location(node)
            line = start.line + text.count("\n", 0, match.start())
            column = match.start() - (text.rfind("\n", 0, match.start()) + 1) + 1
            place = Location(start.cell, line, column + (start.column - 1 if line == start.line else 0))
            lines = sources[start.cell]
            stands_alone = lines[line - 1].lstrip().startswith("#")
            target = _next_line(lines, line) if stands_alone else line
            for code in (match[1] or "").split(","):
                yield _Suppression(code.strip(), place, target)


def _next_line(lines: list[str], line: int) -> int:
    """Return the number, from 1, of the next line that contains more than a comment."""
    below = enumerate(map(str.strip, lines[line:]), start=line + 1)
    return next((number for number, text in below if text and not text.startswith("#")), line)
