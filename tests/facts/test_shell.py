"""Shell commands of a notebook as Python."""

from __future__ import annotations

import libcst as cst
import pytest

from nb2ddp.facts.commands import is_install, never_ends, only_shows, without_installs, written_by
from nb2ddp.facts.shell import Run, parse, quoted
from nb2ddp.syntax.tree import Tree

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
    """What becomes of a command that stands where the notebook calls `run()`."""
    tree = Tree(NOTEBOOK)
    return parse(command, tree.bound_at(tree.of(cst.Call)[0]))


def shell_text(command: str) -> str:
    """The command that the script hands to the shell."""
    return str(eval(parsed(command).expression, dict(VALUES)))


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo {name}", "echo abc"),
        ("echo $name", "echo abc"),
        ("echo $later", "echo $later"),
        ("echo {table['k']}", "echo 2"),
        ('echo {table["k"]}', "echo 2"),
        ("echo {items[0]} {len(name)}", "echo u 3"),
        ("echo {name!r}", "echo 'abc'"),
        ("echo \"{name}\" 'x'", "echo \"abc\" 'x'"),
        ("echo $name/{number}", "echo abc/7"),
        ("wget {name} \\\n  -O x", "wget abc \\\n  -O x"),
    ],
)
def test_names_of_the_notebook_are_filled_in(command: str, text: str) -> None:
    assert shell_text(command) == text


@pytest.mark.parametrize(
    "command",
    [
        "mkdir -p {a,b}/{c,d}",
        "echo {1..3}",
        "echo $HOME ${HOME} $(ls) $$",
        "awk '{print $1}' f",
        "awk '{print $name}' f",
        "curl -d '{\"a\": 1}' x",
        "find . -exec rm {} \\;",
        "echo {unknown}",
        "echo {unknown} {name}",
        "echo {name",
        "grep -E 'a{2,3}' f",
    ],
)
def test_braces_and_dollars_of_the_shell_stay(command: str) -> None:
    assert shell_text(command) == command


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("ls # all", "ls"),
        ("echo '# no' # yes", "echo '# no'"),
        ('echo "a # b"', 'echo "a # b"'),
        ("wget http://x/#part", "wget http://x/#part"),
    ],
)
def test_comments_go(command: str, text: str) -> None:
    assert shell_text(command) == text


@pytest.mark.parametrize(
    ("command", "run"),
    [
        ("ls", 'subprocess.run("ls", shell=True)'),
        ("serve &", 'subprocess.Popen("serve", shell=True)'),
        ("a && b", 'subprocess.run("a && b", shell=True)'),
        ("source x", 'subprocess.run("source x", shell=True, executable="/bin/bash")'),
        ("mkdir {a,b}", 'subprocess.run("mkdir {a,b}", shell=True, executable="/bin/bash")'),
        ("cp {name} x", 'subprocess.run(f"cp {name} x", shell=True)'),
    ],
)
def test_run(command: str, run: str) -> None:
    assert parsed(command).run == run


def test_lines() -> None:
    expected = 'subprocess.run("ls", shell=True, capture_output=True, text=True).stdout.splitlines()'
    assert parsed("ls").lines == expected


@pytest.mark.parametrize(
    ("command", "rest"),
    [
        ("pip install a", ""),
        ("pip3 install -q a # why", ""),
        ("python -m pip install a", ""),
        ("{sys.executable} -m pip install a", ""),
        ("uv pip install --system a b", ""),
        ("pip uninstall -y a && pip install b", ""),
        ("sudo apt-get -y install a", ""),
        ("conda install a", ""),
        ("npm install a", ""),
        ("(command -v uv || pip install uv)", "command -v uv"),
        ("pip install a && wget b", "wget b"),
        ("wget a; pip install b", "wget a"),
        ("rm -rf unsloth_compiled_cache __pycache__/", ""),
    ],
)
def test_installs(command: str, rest: str) -> None:
    assert is_install(command) == (rest in ("", "command -v uv"))
    assert without_installs(command).strip("() ") == rest


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


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        ("ls > x 2>&1", ["x"]),
        ("mkdir -p a b", ["a", "b"]),
        ("wget -O a.csv https://x.org/b.csv?d=1", ["a.csv", "b.csv"]),
        ("git clone https://x.org/y.git", ["y"]),
        ("git clone https://x.org/y.git z", ["z"]),
        ("cp a b/c", ["b/c"]),
        ("kaggle datasets download -d me/rows", ["rows.zip"]),
        ("hf download a/b --local-dir=m", ["m"]),
    ],
)
def test_what_a_command_writes(command: str, paths: list[str]) -> None:
    assert set(paths) <= set(written_by(command))


@pytest.mark.parametrize(
    ("command", "shows"),
    [
        ("ls -la", True),
        ("nvidia-smi", True),
        ("cat x | head -3", True),
        ("pip show x", True),
        ("python --version", True),
        ("ls; pwd", True),
        ("ls > x", False),
        ("echo a >> b", False),
        ("ls $(rm x)", False),
        ("ls `rm x`", False),
        ("ls | xargs rm", False),
        ("grep -c x rows.txt", True),
        ("awk '{print $1}' rows.txt | sort -n", True),
        ("env | grep x", True),
        ("env X=1 python a.py", False),
        ("sort rows.txt -o rows.txt", False),
        ("sed -ni s/a/b/ rows.txt", False),
        ("cd rows && ls", True),
        ("source a.sh && env", True),
        ("source a.sh", False),
        ("source a.sh && python b.py", False),
        ('bash -c "source a.sh && env | grep x"', True),
        ("bash -lc 'ls; pwd'", True),
        ('bash -c "python a.py"', False),
        ("bash a.sh", False),
        ("", True),
        ("cat x && rm y", False),
        ("git clone x", False),
        ("lsof", False),
    ],
)
def test_only_shows(command: str, shows: bool) -> None:
    assert only_shows(command) == shows


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


@pytest.mark.parametrize(
    ("command", "is_endless"),
    [
        ("nvidia-smi dmon", True),
        ("rocm-smi --loop 1", True),
        ("while true; do nvidia-smi; sleep 1; done", True),
        ("top -b -n 1", False),
        ("nvidia-smi", False),
    ],
)
def test_commands_that_never_end(command: str, is_endless: bool) -> None:
    assert never_ends(command) is is_endless
