"""DDP304: help requests go."""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import trailing_comment
from nb2ddp.notebook.magics import Kind
from nb2ddp.rules.rule import Example, Finding, Rule, left_out


def find(program: Program) -> Iterator[Finding]:
    for call, form in program.forms_of(Kind.HELP, Kind.AUTOCALL):
        edits = (left_out(program, call, trailing_comment(form.source)),)
        if form.kind is Kind.HELP:
            yield Finding(call, f"{form.text}? shows help; the script leaves it out", edits)
        else:
            said = "is IPython's automatic call, which the script leaves out: write it as a Python call"
            yield Finding(call, f"{form.name}{form.text} {said}", edits, todo=True)


RULE = Rule(
    code="DDP304",
    name="help-request",
    summary="`name?` and `?name` are removed.",
    why="Help is for a person who reads the notebook, and the syntax is not Python.",
    find=find,
    examples=(
        Example("model.generate?\n?len\nx = 1\n", "x = 1\n"),
        Example('x = "really?"\n'),
    ),
)
