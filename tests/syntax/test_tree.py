"""Names and places in a parsed source."""

from __future__ import annotations

import libcst as cst

from nb2ddp.syntax.tree import Tree, argument, keyword, small_statements
from tests.examples import table


def marked(source: str) -> tuple[Tree, cst.BaseExpression]:
    """Return the tree of a source, and the argument of its call of `ask`."""
    tree = Tree(source)
    call = next(c for c in tree.of(cst.Call) if isinstance(c.func, cst.Name) and c.func.value == "ask")
    return tree, call.args[0].value


@table(__file__, "qualified")
def test_qualified(code: str, answers: list[str]) -> None:
    tree, node = marked(code)
    assert tree.qualified(node) == "".join(answers)


@table(__file__, "family")
def test_family(code: str, answers: list[str]) -> None:
    tree, node = marked(code)
    assert [tree.family(node)] == answers


@table(__file__, "literal")
def test_literal(code: str, answers: list[str]) -> None:
    tree, node = marked(code)
    value = tree.literal(node)
    assert ["unknown" if value is ... else repr(value)] == answers


@table(__file__, "live")
def test_is_live(code: str, answers: list[str]) -> None:
    tree, node = marked(code)
    assert [str(tree.is_live(node))] == answers


@table(__file__, "statement")
def test_statement(code: str, answers: list[str]) -> None:
    tree, node = marked(code)
    assert [tree.text(tree.statement(node)), tree.text(tree.top_statement(node)).rstrip("\n")] == answers


def test_places() -> None:
    source = "x = 1\n# über\nif ä:\n    ask('日本', 2)\n"
    tree, node = marked(source)
    start, end = tree.span(node)
    assert source[start:end] == tree.text(node) == "'日本'"
    assert tree.line_column(start) == (4, 9)
    assert source[tree.line_start(start) : tree.line_end(start)] == "    ask('日本', 2)"
    assert tree.indentation(node) == "    ask("


def test_loads_are_no_bindings_and_no_labels() -> None:
    tree = Tree("import x\nx.x = f(x=x)\nx: int = 1\nx += 1\ndef g(x): return x\nfrom x import y\n")
    assert [tree.line_column(tree.start(node)) for node in tree.loads("x")] == [(2, 1), (2, 11), (4, 1), (5, 18)]


def test_bound_names() -> None:
    tree = Tree(
        "import a.b\nfrom c import d as e\nf = g = 1\nh, [i, *j] = k\nfor l in m: pass\nwith n as o: pass\n"
        "def p(q, *r, s=1, **t): u = 1\nclass V: w = 1\n[y for x in z]\n(aa := 1)\n"
    )
    assert tree.bound_names == set("aefghijlopqrstuVwx") | {"aa"}


def test_arguments() -> None:
    tree = Tree("f(1, a, b=2)\ng(*x, 1)\nh(**y)")
    f, g, h = tree.of(cst.Call)
    assert argument(f, "none", 1) is f.args[1]
    assert argument(f, "b", 0) is keyword(f, "b") is f.args[2]
    assert argument(f, "c", 2) is argument(f, "c", 9) is argument(f, "c") is None
    assert argument(g, "c", 1) is None
    assert argument(h, "y", 0) is None


def test_what_a_statement_holds() -> None:
    tree = Tree("if ok:\n    a = f(g('x', key=1), 'y')\nif False:\n    h(key=2)\n")
    above = list(tree.inside_statement(tree.of(cst.SimpleString)[0]))
    assert [tree.text(node) for node in above if isinstance(node, cst.Call)] == [
        "g('x', key=1)",
        "f(g('x', key=1), 'y')",
    ]
    assert not any(isinstance(node, (cst.Assign, cst.If)) for node in above)
    assert tree.texts(tree.module) == ["x", "y"]
    assert [tree.text(value) for value in tree.given("key")] == ["1"]


def test_small_statements() -> None:
    tree = Tree("a; b\nif x: c; d\n")
    assert len(small_statements(tree.module.body[0])) == 2
    assert len(small_statements(cst.ensure_type(tree.module.body[1], cst.If).body)) == 2
    assert small_statements(tree.module.body[1]) == ()


@table(__file__, "made of")
def test_made_of(code: str, answers: list[str]) -> None:
    tree, node = marked(code)
    assert [tree.text(part) for part in tree.backward_slice(node)] == answers


@table(__file__, "goes to")
def test_goes_to(code: str, answers: list[str]) -> None:
    tree = Tree(code)
    call = next(c for c in tree.of(cst.Call) if tree.text(c.func) == "ask")
    assert [tree.text(tree.statement(place)) for place in tree.sinks(call)] == answers


@table(__file__, "ruled out")
def test_what_a_constant_rules_out_is_live(code: str, answers: list[str]) -> None:
    tree = Tree(f"WHOLE = False\nPART = True\n{code}\n")
    text = next(each for each in tree.of(cst.SimpleString) if tree.content(each) == "x")
    assert [str(tree.is_ruled_out(text))] == answers
    assert tree.is_live(text)


def test_within_holds_nothing_around() -> None:
    tree = Tree("f(a)[0].g(h())")
    owner = tree.of(cst.Subscript)[0]
    assert [tree.text(call) for call in tree.within(owner, cst.Call)] == ["f(a)"]
