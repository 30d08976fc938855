"""Edits of a source: what they replace, in which style, and what they leave unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import libcst as cst
import pytest

from nb2ddp.syntax.edits import (
    Edit,
    Guard,
    InsertAfter,
    InsertBefore,
    Remove,
    Replace,
    SetKeyword,
    Wrap,
    apply,
    resolve,
)
from nb2ddp.syntax.tree import Statement, Tree, small_statements
from tests.examples import table


def edited(source: str, edits: Callable[[Tree], Iterable[Edit]], cells: tuple[int, ...] = ()) -> str:
    tree = Tree(source)
    return apply(source, resolve(tree, edits(tree), cells))


def lines(source: str) -> list[str]:
    """Return an edited source in the form of a table's answers."""
    return [source.rstrip("\n")] if source else []


def calls(tree: Tree, name: str) -> list[cst.Call]:
    return [c for c in tree.of(cst.Call) if isinstance(c.func, cst.Name) and c.func.value == name]


def statements(tree: Tree, name: str) -> list[cst.BaseSmallStatement]:
    """Return the small statements that call a function."""
    lines = [*tree.of(cst.SimpleStatementLine), *tree.of(cst.SimpleStatementSuite)]
    wanted = calls(tree, name)
    found = [s for line in lines for s in small_statements(line) if any(c in wanted for c in tree.within(s, cst.Call))]
    return sorted(found, key=tree.start)


def whole(tree: Tree, name: str) -> list[Statement]:
    """Return the whole statements that call a function, each once."""
    return list(dict.fromkeys(tree.statement(call) for call in calls(tree, name)))


@table(__file__, "set keyword")
def test_set_keyword(code: str, answers: list[str]) -> None:
    assert lines(edited(f"{code}\n", lambda tree: [SetKeyword(calls(tree, "f")[0], "n", "v")])) == answers


def test_blank_lines_stay() -> None:
    assert edited("a\n\nx()\n\nb\n", lambda tree: [Remove(s) for s in statements(tree, "x")]) == "a\n\n\nb\n"
    after = edited("x(\n)\n\n# below\n", lambda tree: [InsertAfter(whole(tree, "x")[0], "a")])
    assert after == "x(\n)\na\n\n# below\n"
    guarded = edited("x()\n# between\n\nx(1)\n", lambda tree: [Guard(s, s, "if r") for s in whole(tree, "x")])
    assert guarded == "if r:\n    x()\n    # between\n\n    x(1)\n"


def test_set_two_keywords_and_one_of_them_twice() -> None:
    def edits(tree: Tree) -> list[Edit]:
        (call,) = calls(tree, "f")
        return [SetKeyword(call, "n", "v"), SetKeyword(call, "m", "w"), SetKeyword(call, "n", "late")]

    assert edited("f(\n  a=1,\n)\n", edits) == "f(\n  a=1,\n  n=v,\n  m=w,\n)\n"
    assert edited("f()", edits) == "f(n=v, m=w)"


@table(__file__, "remove")
def test_remove(code: str, answers: list[str]) -> None:
    assert lines(edited(f"{code}\n", lambda tree: [Remove(s) for s in statements(tree, "x")])) == answers


def test_remove_with_its_comment() -> None:
    assert edited("x() # why\ny()\n", lambda tree: [Remove(statements(tree, "x")[0], keep_comment=False)]) == "y()\n"


@table(__file__, "insert before")
def test_insert_before(code: str, answers: list[str]) -> None:
    assert lines(edited(f"{code}\n", lambda tree: [InsertBefore(whole(tree, "x")[0], "a\nb")])) == answers


@table(__file__, "insert after")
def test_insert_after(code: str, answers: list[str]) -> None:
    assert lines(edited(f"{code}\n", lambda tree: [InsertAfter(whole(tree, "x")[0], "a\nb")])) == answers


@pytest.mark.parametrize(
    "source",
    [
        "if c:\n    x()\n    # trails\n",
        "if c:\n    pass\nelse:\n    x()\n    # trails\n",
        "try:\n    pass\nexcept E:\n    pass\nfinally:\n    x()\n    # trails\n",
        "try:\n    pass\nexcept E:\n    x()\n    # trails\n",
        "match c:\n    case 1:\n        x()\n    # trails\n",
    ],
)
def test_insert_after_a_block_stands_above_comments_that_trail_it(source: str) -> None:
    result = edited(source, lambda tree: [InsertAfter(tree.top_statement(calls(tree, "x")[0]), "a")])
    assert result.endswith("x()\na\n    # trails\n")


def test_what_follows_an_inner_statement_stands_before_what_follows_an_outer_one() -> None:
    def edits(tree: Tree) -> list[Edit]:
        (call,) = calls(tree, "x")
        return [InsertAfter(tree.top_statement(call), "outer"), InsertAfter(tree.statement(call), "inner")]

    assert edited("if c:\n    x()\n", edits) == "if c:\n    x()\n    inner\nouter\n"


@table(__file__, "guard")
def test_guard(code: str, answers: list[str]) -> None:
    assert lines(edited(f"{code}\n", lambda tree: [Guard(s, s, "if r", "w()") for s in whole(tree, "x")])) == answers


def test_guards_inside_one_another() -> None:
    def edits(tree: Tree) -> list[Edit]:
        outer, inner = tree.of(cst.If)[0], whole(tree, "x")[0]
        return [Guard(outer, outer, "if r", "w()"), Guard(inner, inner, "if m")]

    assert edited("if c:\n    x()\n    y()\n", edits) == (
        "if r:\n    if c:\n        if m:\n            x()\n        y()\nw()\n"
    )


def test_guards_stay_within_a_cell() -> None:
    source = "x()\nx(1)\n"
    result = edited(
        source, lambda tree: [Guard(s, s, "if r") for s in whole(tree, "x")], cells=(0, source.index("x(1)"))
    )
    assert result == "if r:\n    x()\nif r:\n    x(1)\n"


def test_guards_with_other_headers_stay_apart() -> None:
    def edits(tree: Tree) -> list[Edit]:
        first, second = whole(tree, "x")
        return [Guard(first, first, "if r"), Guard(second, second, "if m")]

    assert edited("x()\nx(1)\n", edits) == "if r:\n    x()\nif m:\n    x(1)\n"


def test_a_guard_indents_what_other_edits_write() -> None:
    def edits(tree: Tree) -> list[Edit]:
        first, second = whole(tree, "x")
        return [
            Replace(calls(tree, "x")[0], 'open(p)\nwrite("""a\nb""")'),
            InsertBefore(second, "# TODO"),
            InsertAfter(second, "after"),
            Guard(first, second, "if r", "w()"),
        ]

    expected = 'if r:\n    open(p)\n    write("""a\nb""")\n    # TODO\n    x(1)\n    after\nw()\n'
    assert edited("x()\nx(1)\n", edits) == expected


def test_what_is_inserted_above_a_guarded_statement_stands_above_the_header() -> None:
    def edits(tree: Tree) -> list[Edit]:
        (statement,) = whole(tree, "x")
        return [Guard(statement, statement, "if r"), InsertBefore(statement, "# TODO")]

    assert edited("x()\n", edits) == "# TODO\nif r:\n    x()\n"


def test_a_guard_of_what_is_gone_is_gone() -> None:
    def edits(tree: Tree) -> list[Edit]:
        (statement,) = whole(tree, "x")
        return [Guard(statement, statement, "if r", "w()"), Remove(statement)]

    assert edited("x()\ny()\n", edits) == "y()\n"


def test_edits_inside_replaced_text_are_dropped() -> None:
    def edits(tree: Tree) -> list[Edit]:
        (outer,), (inner,) = calls(tree, "f"), calls(tree, "g")
        return [SetKeyword(inner, "n", "v"), Replace(outer, "1")]

    assert edited("x = f(g()) # why\n", edits) == "x = 1 # why\n"


def test_edits_inside_one_another_compose() -> None:
    def edits(tree: Tree) -> list[Edit]:
        (outer,), (inner,) = calls(tree, "f"), calls(tree, "g")
        return [SetKeyword(outer, "n", "v"), SetKeyword(inner, "m", "w"), InsertBefore(tree.statement(outer), "a")]

    assert edited("x = f(g()) # why\n", edits) == "a\nx = f(g(m=w), n=v) # why\n"


def test_the_same_edit_twice_is_one() -> None:
    def edits(tree: Tree) -> list[Edit]:
        (statement,) = whole(tree, "x")
        return [InsertBefore(statement, "a"), InsertBefore(statement, "a")]

    assert edited("x()\n", edits) == "a\nx()\n"


def test_apply_to_a_part() -> None:
    source = "x()\ny()\nx()\n"
    tree = Tree(source)
    changes = resolve(tree, [Replace(call, "z()") for call in calls(tree, "x")])
    assert apply(source, changes, 0, 4) == "z()\n"
    assert apply(source, changes, 4, 8) == "y()\n"
    assert apply(source, changes, 4) == "y()\nz()\n"
    assert apply(source, []) == source


def test_removal_that_two_rules_ask_for() -> None:
    def edits(tree: Tree) -> list[Edit]:
        return [Remove(small, keep_comment=keep) for small in tree.of(cst.Expr) for keep in (True, False)]

    assert edited("x(); y()\nz = 1\n", edits) == "z = 1\n"


def test_two_edits_around_one_node_stand_inside_one_another() -> None:
    def edits(tree: Tree) -> list[Edit]:
        (call,) = calls(tree, "x")
        return [Wrap(call, "f(", ", 1)"), Wrap(call, "g(", ", 2)")]

    assert edited("x()\n", edits) == "f(g(x(), 2), 1)\n"


def test_lines_below_a_block_stay_where_its_last_statement_goes() -> None:
    def edits(tree: Tree) -> list[Edit]:
        block, last = tree.of(cst.If)[0], whole(tree, "x")[0]
        return [Guard(block, block, "if r", "w()"), InsertAfter(block, "after"), Remove(last)]

    assert edited("if c:\n    y()\n    x()\nz()\n", edits) == "if r:\n    if c:\n        y()\n    after\nw()\nz()\n"


#: A cell between two others, and the rest of it after `x()` is removed.
CELLS_THAT_LOSE_CODE = [
    ("# of x\n\nx()\n# below\n", "# of x\n\n# below\n"),
    ("# of x\n\nx()\nx()  # beside\n", "# of x\n\n"),
    ("# @title of x\nx()\n", "# @title of x\n"),
    ("# y = 1\n\nx()\n", "# y = 1\n\n"),
    ("# Copyright 2026\n\nx()\n", "# Copyright 2026\n\n"),
    ("y()\n\n# of x\n\nx()\n", "y()\n\n# of x\n\n"),
    ("y()\n# of y\n\nx()\n", "y()\n# of y\n\n"),
    ("y()\n# of x\nx()\n\nz()\n", "y()\n\nz()\n"),
    ("# of both\n\nx()\ny()\n", "# of both\n\ny()\n"),
    ("# of x\nx()\n# of the next\nx()\n\ny()\n", "# of x\n\ny()\n"),
    ("# of all\nx()\n# of the next\nx()\ny()\n", "# of all\n# of the next\ny()\n"),
    ("if c:\n    # of both\n    x()\n    y()\n", "if c:\n    # of both\n    y()\n"),
]


@pytest.mark.parametrize(("cell", "left"), CELLS_THAT_LOSE_CODE)
def test_comments_of_code_that_is_gone_go_with_it(cell: str, left: str) -> None:
    before, after = "# above\na()\n", "# below\nb()\n"
    cells = (0, len(before), len(before + cell))

    def edits(tree: Tree) -> list[Edit]:
        return [Remove(statement, keep_comment=False, comments_above=True) for statement in statements(tree, "x")]

    assert edited(before + cell + after, edits, cells) == before + left + after


def test_what_is_put_into_a_cell_keeps_its_comments() -> None:
    def edits(tree: Tree) -> list[Edit]:
        (line,) = whole(tree, "x")
        return [Remove(line), InsertBefore(line, "# TODO")]

    assert edited("# of x\nx()\n", edits, (0,)) == "# of x\n# TODO\n"


def test_an_else_goes_with_its_statements() -> None:
    source = (
        "if a:\n    x\nelse:\n    x\n    # both\n    x\nif b:\n    x  # why\nelse:\n    x  # why\n"
        "for c in d:\n    y\nelse:\n    x\nz\n"
    )
    tree = Tree(source)
    removals = [Remove(tree.statement(name)) for name in tree.of(cst.Name) if name.value == "x"]
    assert apply(source, resolve(tree, removals)) == (
        "if a:\n    pass\nif b:\n    # why\n    pass\nelse:\n    # why\n    pass\nfor c in d:\n    y\nz\n"
    )


def test_an_else_stays_where_something_is_added_to_it() -> None:
    source = "if a:\n    y\nelse:\n    x\n"
    tree = Tree(source)
    statement = tree.statement(next(name for name in tree.of(cst.Name) if name.value == "x"))
    edits: list[Edit] = [Remove(statement), InsertBefore(statement, "# TODO")]
    assert apply(source, resolve(tree, edits)) == "if a:\n    y\nelse:\n    # TODO\n    pass\n"
