"""IPython syntax, found and replaced by calls, with every line in its place."""

from __future__ import annotations

import time
from dataclasses import asdict

import pytest

from nb2ddp.notebook.magics import PLACEHOLDER, mask
from tests.examples import rows

P = PLACEHOLDER

BLANK = [
    ("!pip install \\\n  a \\\n  b\nx = 1", f"{P}(0\n\n)\nx = 1"),  # a continued line still takes as many lines
    ("# a title\n\n%%capture\n!ls", f"# a title\n\n{P}(0)\n{P}(1)"),
    ("%%bash\nls\ncd x", f"{P}(0\n\n)"),
    ("%%writefile a.py\n!not ours\n%cd nor this", f"{P}(0\n\n)"),
    ("%time f(1, \\\n  2)\nx", "f(1,    2)\n\nx"),
    ("\ncd data\n", f"\n{P}(0)\n"),
]

LEFT_ALONE = [
    "x = 1",
    "",
    "# !ls",
    'x = "!ls"',
    'x = """\n!ls\n%cd\n%%bash\nx?\n"""',
    "x = (7\n%3)",
    "x = 7 \\\n % 3",
    "y = not x != 3",
    "a = 'what?'",
    "f(get_ipython().system('ls'))",
    "get_ipython().system(command)",
    "ls = 1",
    "ls",  # bound: see the test
    "config",
    "time",
    "cat = 3\ncat",
    "# only a cell of one line\npwd",
    "pwd\nx = 1",
]


@pytest.mark.parametrize(("source", "masked"), [*rows(__file__, "masked"), *((a, [b]) for a, b in BLANK)])
def test_mask(source: str, masked: list[str]) -> None:
    """Lines do not move."""
    assert [mask(source).source] == masked
    assert masked[0].count("\n") == source.count("\n")


@pytest.mark.parametrize("source", LEFT_ALONE)
def test_what_is_left_alone(source: str) -> None:
    result = mask(source, bound=frozenset({"ls", "cat"}))
    assert result.source == source
    assert result.forms == ()


def test_many_forms_take_time_in_proportion() -> None:
    start = time.process_time()
    mask("!echo 'a b'\n%matplotlib inline\nx = 1\n" * 2000)
    assert time.process_time() - start < 10  # it took minutes when each form started a new search


def test_forms_are_numbered_from_the_first() -> None:
    result = mask("!a\nx = !b", first=5)
    assert result.source == f"{P}(5)\nx = {P}(6)"
    assert [form.text for form in result.forms] == ["a", "b"]


@pytest.mark.parametrize(("source", "answers"), rows(__file__, "forms"))
def test_form(source: str, answers: list[str]) -> None:
    (form,) = mask(source).forms
    fields = asdict(form) | {"kind": form.kind.name}
    assert [f"{name}: {value}".rstrip() for name, value in fields.items() if value is not None] == answers


@pytest.mark.parametrize(
    ("source", "text", "command"),
    [
        ("!wget a \\\n   -O b", "wget a     -O b", "wget a \\\n   -O b"),
        ("!echo 'a \\\nb'", "echo 'a  b'", "echo 'a  '\\\n'b'"),
        ("!echo \"it's a \\\n b\" \\'", "echo \"it's a   b\" \\'", "echo \"it's a  \\\n b\" \\'"),
        (
            "!curl -d '{ \\\n  \"a\": 1 \\\n}' \\\n  -s",
            "curl -d '{    \"a\": 1  }'    -s",
            "curl -d '{\n  \"a\": 1\n}' \\\n  -s",
        ),
        ("!ls", "ls", "ls"),
    ],
)
def test_command_keeps_line_breaks_that_the_shell_reads_alike(source: str, text: str, command: str) -> None:
    (form,) = mask(source).forms
    assert form.text == text
    assert form.command == command
