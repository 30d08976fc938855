"""Arguments of a call, passed in it or through a dictionary that it unpacks."""

from __future__ import annotations

import libcst as cst

from nb2ddp.syntax.arguments import is_closed, passed
from nb2ddp.syntax.edits import apply, resolve, set_argument
from nb2ddp.syntax.tree import Tree
from tests.examples import table


def asked(source: str) -> tuple[Tree, cst.Call]:
    tree = Tree(source)
    return tree, next(c for c in tree.of(cst.Call) if isinstance(c.func, cst.Name) and c.func.value == "f")


@table(__file__, "passed")
def test_passed(code: str, answers: list[str]) -> None:
    tree, call = asked(code)
    found = passed(tree, call, "n")
    assert [tree.text(found.value) if found else "None"] == answers


@table(__file__, "closed")
def test_is_closed(code: str, answers: list[str]) -> None:
    assert [str(is_closed(*asked(code)))] == answers


@table(__file__, "set")
def test_set_argument(code: str, answers: list[str]) -> None:
    tree, call = asked(code)
    assert [apply(code, resolve(tree, [set_argument(tree, call, "n", "v")]))] == answers
