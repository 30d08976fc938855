"""Arguments of a call, passed in it or through a dictionary that it unpacks."""

from __future__ import annotations

import libcst as cst
import pytest

from nb2ddp.syntax.arguments import is_closed, passed
from nb2ddp.syntax.edits import apply, resolve, set_argument
from nb2ddp.syntax.tree import Tree


def asked(source: str) -> tuple[Tree, cst.Call]:
    tree = Tree(source)
    return tree, next(c for c in tree.of(cst.Call) if isinstance(c.func, cst.Name) and c.func.value == "f")


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("f(n=1)", "1"),
        ("f(m=1)", None),
        ("f(1)", None),
        ("k = {'n': 2}\nf(**k)", "2"),
        ("k = dict(n=3)\nf(**k)", "3"),
        ("f(**{'n': 4})", "4"),
        ("f(**dict(n=5))", "5"),
        ("k = {'n': 5}\nf(**{a: b for a, b in k.items() if a in known})", "5"),
        ("k = {'n': 5}\nj = {a: b for (a, b) in k.items() if a in known or 'm' in known}\nf(**j)", "5"),
        ("k = {'n': 5}\nf(**{a: b for a, b in k.items() if a != 'n'})", None),
        ("k = {'n': 5}\nf(**{a: g(b) for a, b in k.items() if a in known})", None),
        ("k = {'n': 5}\nk['n'] = 6\nf(**{a: b for a, b in k.items() if a in known})", None),
        ("k = {'n': 6}\nj = k\nf(**j)", "6"),
        ("k = {'n': 7}\nf(n=8, **k)", "8"),
        ("k = {'m': 1}\nj = {'n': 9}\nf(**k, **j)", "9"),
        ("k = load()\nf(**k)", None),
        ("k = {'n': 1, **j}\nf(**k)", None),
        ("k = {'n': 1}\nf(**{**k, 'm': 2})", "1"),
        ("k = {'n': 1}\nj = {**k, 'm': 2}\nf(**j)", "1"),
        ("k = {'n': 1}\nf(**{**k, **j})", None),
        ("k = {'n': 1}\nf(**{**j, **k})", "1"),
        ("k = {'n': 1}\nf(**{**k, key: 2})", None),
        ("k = {'n': 1}\nk['n'] = 2\nf(**{**k, 'm': 2})", None),
        ("k = {'n': 1}\nj = {**k}\nj['n'] = 2\nf(**j)", None),
        ("k = {'m': 1}\nfor n in m:\n    k = {**k, 'o': 2}\nf(**k)", None),
        ("k = {'n': 1}\nf(**{**k, 'n': 2})", "2"),
        ("k = {'n': 1}\nf(**{'n': 2, **k})", "1"),
        ("k = {'n': 1}\nf(**dict(k, m=2))", "1"),
        ("k = {'n': 1}\nf(**dict(k, n=2))", "2"),
        ("k = {'n': 1}\nf(**dict(n=2, **j))", "2"),
        ("k = {'n': 1}\nf(**dict(j, n=2, **k))", "2"),
        ("k = {'n': 1}\nf(**(k | {'n': 3}))", "3"),
        ("k = {'n': 1}\nk['m'] = g()\nf(**k)", "1"),
        ("k = {'n': 1}\nk[m] = g()\nf(**k)", None),
        ("k = {'n': 1}\nk.update(m=2)\nf(**k)", None),
        ("k = {'n': 1}\nk |= j\nf(**k)", None),
        ("k = {**k, 'n': 1}\nf(**k)", "1"),
        ("k = {key: 1}\nf(**k)", None),
        ("dict = list\nf(**dict(n=1))", None),
        ("def g(**k):\n    f(**k)", None),
    ],
)
def test_passed(source: str, value: str | None) -> None:
    tree, call = asked(source)
    found = passed(tree, call, "n")
    assert (tree.text(found.value) if found else None) == value


@pytest.mark.parametrize(
    ("source", "closed"),
    [
        ("f()", True),
        ("f(1, a=2)", True),
        ("k = {'a': 1}\nf(**k)", True),
        ("f(**dict(a=1))", True),
        ("f(**k)", False),
        ("k = {**j}\nf(**k)", False),
        ("j = {'a': 1}\nk = {**j, 'b': 2}\nf(**k)", True),
        ("j = {'a': 1}\nk = {**j} | i\nf(**k)", False),
        ("k = {'a': 1}\nf(**k, **j)", False),
        ("def g(**k):\n    f(**k)", False),
    ],
)
def test_is_closed(source: str, closed: bool) -> None:
    tree, call = asked(source)
    assert is_closed(tree, call) == closed


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()", "f(n=v)"),
        ("f(n=1)", "f(n=v)"),
        ("k = {'n': 1} # why\nf(**k)", "k = {'n': v} # why\nf(**k)"),
        ("k = dict(n = 1)\nf(**k)", "k = dict(n = v)\nf(**k)"),
        ("k = {'m': 1}\nf(**k)", "k = {'m': 1}\nf(**k, n=v)"),
        ("k = {'m': 1}\nk['n'] = 2\nf(**k)", "k = {'m': 1}\nk['n'] = 2\nf(**{**k, \"n\": v})"),
        (
            "k = {'m': 1}\nk['a'] = 2\nj = {a: b for a, b in k.items() if a in known}\nf(**j)",
            "k = {'m': 1}\nk['a'] = 2\nj = {a: b for a, b in k.items() if a in known}\nf(**j, n=v)",
        ),
        (
            "j = {a: b for a, b in k.items() if a in known}\nf(**j)",
            'j = {a: b for a, b in k.items() if a in known}\nf(**{**j, "n": v})',
        ),
        ("k = load()\nf(**k)", 'k = load()\nf(**{**k, "n": v})'),
        ("k = load()\nf(n=1, **k)", "k = load()\nf(n=v, **k)"),
        ("k = {'n': 1}\nf(**{**k, 'm': 2})", "k = {'n': v}\nf(**{**k, 'm': 2})"),
        ("k = {'n': 1}\nf(**{**k, 'n': 2})", "k = {'n': 1}\nf(**{**k, 'n': v})"),
        ("k = {'n': 1}\nf(**k, **j)", "k = {'n': v}\nf(**k, **j)"),
        ("k = {'n': 1}\nj = {**k}\nf(**j)", "k = {'n': v}\nj = {**k}\nf(**j)"),
    ],
)
def test_set_argument(before: str, after: str) -> None:
    tree, call = asked(before)
    assert apply(before, resolve(tree, [set_argument(tree, call, "n", "v")])) == after
