"""DDP009: A template that gets too few values gets a `TODO`: the script stops where they are filled in."""

from __future__ import annotations

import string
from collections.abc import Iterator
from itertools import count

import libcst as cst

from nb2ddp.facts.flow import is_tried
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.tree import Tree, method


@rule("DDP009", Severity.WARNING)
def unfilled_template(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in tree.live(cst.Call):
        if method(call) != "format" or any(each.star for each in call.args) or is_tried(tree, call):
            continue
        if lacked := [name for name in _fields(tree, call) if name not in _given(call)]:
            name = tree.text(cst.ensure_type(call.func, cst.Attribute).value)
            fields = ", ".join(f"{{{field}}}" for field in lacked)
            yield Finding(call, _MESSAGE.format(name, fields), todo=True)


_MESSAGE = "{} has {}, for which this call gives no value: the script stops here; give it one, or change the template"


def _fields(tree: Tree, call: cst.Call) -> list[str]:
    """The names or numbers of the values that a template asks for, each once; none where nothing tells the template."""
    template = cst.ensure_type(call.func, cst.Attribute).value
    text = tree.literal(template) if tree.function(call) is None else tree.fixed(template)
    numbers = map(str, count())
    try:
        parsed = list(string.Formatter().parse(text)) if isinstance(text, str) else []
    except ValueError:  # no template: of another method of this name
        return []
    asked = [field.partition(".")[0].partition("[")[0] for _, field, _, _ in parsed if field is not None]
    return list(dict.fromkeys(name or next(numbers) for name in asked))


def _given(call: cst.Call) -> set[str]:
    """The names of the values that a call gives, or their numbers."""
    numbers = map(str, count())
    return {next(numbers) if each.keyword is None else each.keyword.value for each in call.args}
