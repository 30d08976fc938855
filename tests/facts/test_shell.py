"""Shell commands of a notebook, converted to Python."""

from __future__ import annotations

import libcst as cst
import pytest

from nb2ddp.facts.commands import is_install, never_ends, only_shows, without_installs, written_by
from nb2ddp.facts.shell import Run, parse, quoted
from nb2ddp.syntax.tree import Tree
from tests.examples import table

NOTEBOOK = """\
import sys
name = "abc"
table = {"k": 2}
items = ["u"]
number = 7
run()
later = 8
"""
VALUES = {"name": "abc", "table": {"k": 2}, "items": ["u"], "number": 7}


def parsed(command: str) -> Run:
    """Return the Python form of a command at the place where the notebook calls `run()`."""
    tree = Tree(NOTEBOOK)
    return parse(command, tree.bound_at(tree.of(cst.Call)[0]))


def shell_text(command: str) -> str:
    """Return the command that the script passes to the shell."""
    return str(eval(parsed(command).expression, dict(VALUES)))


@table(__file__, "text")
def test_what_the_script_hands_to_the_shell(code: str, answers: list[str]) -> None:
    """The script fills in names of the notebook, keeps braces and dollar signs of the shell, and removes comments."""
    assert [shell_text(code)] == answers


@table(__file__, "run")
def test_run(code: str, answers: list[str]) -> None:
    assert [parsed(code).run] == answers


def test_lines() -> None:
    expected = 'subprocess.run("ls", shell=True, capture_output=True, text=True).stdout.splitlines()'
    assert parsed("ls").lines == expected


@table(__file__, "installs")
def test_installs(code: str, answers: list[str]) -> None:
    rest = "".join(answers)
    assert is_install(code) == (rest in ("", "command -v uv"))
    assert without_installs(code).strip("() ") == rest


@pytest.mark.parametrize("command", ["ls", "pip list", "git clone a", "echo pip install a", "wget pip", "pipx run a"])
def test_no_install(command: str) -> None:
    assert not is_install(command)


@pytest.mark.parametrize(
    "script",
    [
        "echo a && pip install b; echo c",
        "if ! command -v uv; then\n  pip install uv\nfi",
        'V="$(python -c "print(1)")"\npip install "a==$V"',
        "case $V in\n  6.*) pip install a;;\n  *) exit 1;;\nesac",
        "pip install a # b; c\nexport X=1",
    ],
)
def test_a_script_that_only_decides_what_to_install(script: str) -> None:
    assert is_install(script)


@table(__file__, "writes")
def test_what_a_command_writes(code: str, answers: list[str]) -> None:
    assert set(answers) <= set(written_by(code))


@table(__file__, "only shows")
def test_only_shows(code: str, answers: list[str]) -> None:
    assert [str(only_shows(code))] == answers
    assert only_shows("")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        'say "a"',
        "it's",
        """both ' and \"""",
        "back\\slash",
        "ends with \\",
        'ends with "',
        "two\nlines\n",
        'two\n"""lines',
        "'''\n\"\"\"",
        'lines\n"',
        "tab\there",
        "zero \x00 and bell \x07",
        "carriage\rreturn",
        "Größe 日本 🙂",
        "\u200b\u2028",
        "C:\\new\\table",
        "\\",
        "'",
        '"',
        '\\"',
    ],
)
def test_quoted_is_the_text(text: str) -> None:
    assert eval(quoted(text)) == text


@pytest.mark.parametrize("joiner", ["&&", "||", ";"])
def test_a_line_that_goes_on_with_another_command_leaves_no_backslash(joiner: str) -> None:
    assert without_installs(f"./quantize a.gguf \\\n  {joiner} echo done").split() in (
        ["./quantize", "a.gguf", joiner, "echo", "done"],
        ["./quantize", "a.gguf;", "echo", "done"],
    )


@table(__file__, "never ends")
def test_commands_that_never_end(code: str, answers: list[str]) -> None:
    assert [str(never_ends(code))] == answers
