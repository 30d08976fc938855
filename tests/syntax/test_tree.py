"""What a parsed source knows of its names and places."""

from __future__ import annotations

import libcst as cst
import pytest

from nb2ddp.syntax.tree import Tree, argument, keyword, small_statements


def marked(source: str) -> tuple[Tree, cst.BaseExpression]:
    """The tree of a source, and the argument of its call of `ask`."""
    tree = Tree(source)
    call = next(c for c in tree.of(cst.Call) if isinstance(c.func, cst.Name) and c.func.value == "ask")
    return tree, call.args[0].value


QUALIFIED = [
    # imports
    ("import a\nask(a)", "a"),
    ("import a.b\nask(a.b.c)", "a.b.c"),
    ("import a.b as c\nask(c.d)", "a.b.d"),
    ("from a import b\nask(b)", "a.b"),
    ("from a.b import c as d\nask(d.e)", "a.b.c.e"),
    ("from .a import b\nask(b)", ".a.b"),
    ("from a import *\nask(b)", "a.b"),
    ("from a import *\nfrom b import *\nask(c)", "c"),
    # aliases
    ("from a import b\nc = b\nask(c)", "a.b"),
    ("import a\nb = a.c\nask(b.d)", "a.c.d"),
    ("b = load()\nask(b)", ".b"),
    ("b = load()\nask(b.c)", ".b.c"),
    ("ask(unknown.x)", "unknown.x"),
    ("ask(f().x)", ""),
    # the binding in effect
    ("from a import x\nfrom b import x\nask(x)", "b.x"),
    ("from a import x\nask(x)\nfrom b import x", "a.x"),
    ("from a import x\ndef f(x):\n    ask(x)", ".x"),
    ("def f():\n    ask(x)\nfrom a import x", "a.x"),
    ("from a import x\ndef f():\n    x = 1\nask(x)", "a.x"),
    ("from a import x\nclass C:\n    x = 1\n    def f(self):\n        ask(x)", "a.x"),
    ("from a import x\nif False:\n    from b import x\nask(x)", "a.x"),
    ("from a import x\n[x for x in y]\nask(x)", "a.x"),
    ("from a import x\n[ask(x) for x in y]", ".x"),
    ("from a import x\ng = lambda x: ask(x)", ".x"),
    ("from a import x\ndef f():\n    global x\n    from b import x\nask(x)", "b.x"),
    ("with open(p) as x:\n    ask(x)", ".x"),
    ("for a, (b, *x) in y:\n    ask(x)", ".x"),
    ("if (x := f()):\n    ask(x)", ".x"),
    ("try:\n    pass\nexcept E as x:\n    ask(x)", ".x"),
]


@pytest.mark.parametrize(("source", "name"), QUALIFIED)
def test_qualified(source: str, name: str) -> None:
    tree, node = marked(source)
    assert tree.qualified(node) == name


@pytest.mark.parametrize(
    ("source", "family"),
    [
        ("from trl import SFTTrainer\nask(SFTTrainer)", "trl.SFTTrainer"),
        ("from trl import SFTTrainer\nclass A(SFTTrainer): pass\nask(A)", "trl.SFTTrainer"),
        ("from trl import SFTTrainer\nclass A(SFTTrainer): pass\nclass B(A): pass\nC = B\nask(C)", "trl.SFTTrainer"),
        ("class A: pass\nask(A)", ".A"),
        ("class A(A): pass\nask(A)", "A"),  # Python has no other A to begin with
        ("from trl import SFTTrainer as A\nclass A(A): pass\nask(A)", "trl.SFTTrainer"),
    ],
)
def test_family(source: str, family: str) -> None:
    tree, node = marked(source)
    assert tree.family(node) == family


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("ask(3)", 3),
        ("ask(2.5)", 2.5),
        ("ask('a' 'b')", "ab"),
        ("ask(None)", None),
        ("ask(True)", True),
        ("x = 'a'\ny = x\nask(y)", "a"),
        ("x = 1\nx = 2\nask(x)", 2),
        ("x: int = 4\nask(x)", 4),
        ("x = 1\nx = ask(x)", 1),
        ("x = 1\nfor x in ask(x): pass", 1),
        ("x = 1\nwith ask(x) as x: pass", 1),
        ("x = f()\nask(x)", ...),
        ("x, y = 1, 2\nask(x)", ...),
        ("ask(unknown)", ...),
        ("x = 1\nx += 1\nask(x)", ...),
        ("for x in y:\n    ask(x)", ...),
        ("x = x\nask(x)", ...),
    ],
)
def test_literal(source: str, value: object) -> None:
    tree, node = marked(source)
    assert tree.literal(node) == value


@pytest.mark.parametrize(
    ("source", "live"),
    [
        ("ask(1)", True),
        ("if False:\n    ask(1)", False),
        ("if 0:\n    ask(1)", False),
        ("while False:\n    ask(1)", False),
        ("if False:\n    pass\nelse:\n    ask(1)", True),
        ("if False:\n    def f():\n        ask(1)", False),
        ("if x:\n    ask(1)", True),
        ("if False: ask(1)", False),
    ],
)
def test_is_live(source: str, live: bool) -> None:
    tree, node = marked(source)
    assert tree.is_live(node) == live


@pytest.mark.parametrize(
    ("source", "statement", "top"),
    [
        ("x = [ask(1)]", "x = [ask(1)]", "x = [ask(1)]"),
        ("a = 1; ask(1); b = 2", "a = 1; ask(1); b = 2", "a = 1; ask(1); b = 2"),
        ("if x:\n    ask(1)", "ask(1)", "if x:\n    ask(1)"),
        ("if x: ask(1)", "if x: ask(1)", "if x: ask(1)"),
        ("def f():\n    return ask(1)", "return ask(1)", "def f():\n    return ask(1)"),
        ("with ask(1):\n    pass", "with ask(1):\n    pass", "with ask(1):\n    pass"),
    ],
)
def test_statement(source: str, statement: str, top: str) -> None:
    tree, node = marked(source)
    assert tree.text(tree.statement(node)) == statement
    assert tree.text(tree.top_statement(node)).rstrip("\n") == top


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


MADE_OF = [
    ("a = f()\nask(a + 1)", ["a + 1", "f()"]),
    ("a = f()\nb = [a]\nc = b\nask(c)", ["c", "b", "[a]", "f()"]),
    ("a, b = f(c)\nask(b)", ["b", "f(c)"]),
    ("with f() as a:\n    ask(a)", ["a", "f()"]),
    ("for a in rows:\n    ask(a)", ["a", "rows"]),
    ("rows = f()\nask([a for a in rows])", ["[a for a in rows]", "rows", "f()"]),
    ("a = 1\nfor _ in b:\n    a = a + 1\nask(a)", ["a", "a + 1", "1"]),
    ("def f(a):\n    ask(a)", ["a"]),
    ("ask(unknown)", ["unknown"]),
]


@pytest.mark.parametrize(("source", "parts"), MADE_OF)
def test_made_of(source: str, parts: list[str]) -> None:
    tree, node = marked(source)
    assert [tree.text(part) for part in tree.made_of(node)] == parts


GOES_TO = [
    ("print(ask(1))", ["print(ask(1))"]),
    ("a = ask(1)\nprint(a)", ["print(a)"]),
    ("a = ask(1) - 2\nb = f(a)\nprint(b)\nreturned[b] = 1", ["print(b)", "returned[b] = 1"]),
    ("a, b = ask(1)\nprint(a)", ["a, b = ask(1)"]),
    ("a = ask(1)\na = a + 1\nprint(a)", ["print(a)"]),
    ("a = ask(1)", []),
]


@pytest.mark.parametrize(("source", "places"), GOES_TO)
def test_goes_to(source: str, places: list[str]) -> None:
    tree = Tree(source)
    call = next(c for c in tree.of(cst.Call) if tree.text(c.func) == "ask")
    assert [tree.text(tree.statement(place)) for place in tree.goes_to(call)] == places


@pytest.mark.parametrize(
    ("code", "ruled_out"),
    [
        ("if WHOLE:\n    f('x')\n", True),
        ("if WHOLE:\n    f()\nelse:\n    f('x')\n", False),
        ("if not_known():\n    f()\nelif WHOLE:\n    f('x')\n", True),
        ("f(['x'] if WHOLE else [])\n", True),
        ("f([] if WHOLE else ['x'])\n", False),
        ("if PART:\n    f()\nelse:\n    f('x')\n", True),
        ("if sys.argv:\n    WHOLE = True\nif WHOLE:\n    f('x')\n", False),
        ("if f('x') if WHOLE is None else 0:\n    pass\n", False),
    ],
)
def test_what_a_constant_rules_out_is_live(code: str, ruled_out: bool) -> None:
    tree = Tree(f"WHOLE = False\nPART = True\n{code}")
    text = next(each for each in tree.of(cst.SimpleString) if tree.content(each) == "x")
    assert tree.is_ruled_out(text) is ruled_out
    assert tree.is_live(text)


def test_within_holds_nothing_around() -> None:
    tree = Tree("f(a)[0].g(h())")
    owner = tree.of(cst.Subscript)[0]
    assert [tree.text(call) for call in tree.within(owner, cst.Call)] == ["f(a)"]
