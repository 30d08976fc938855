"""DDP309: cell magics with a body of another language, or for a file, become Python."""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.edits import Remove, Replace
from nb2ddp.ipython import Kind, Syntax
from nb2ddp.model import Severity
from nb2ddp.once import WAIT, once_a_machine
from nb2ddp.program import Finding, Program
from nb2ddp.rule import Example, Rule
from nb2ddp.shell import parse, quoted

_SHELLS = {"bash": "bash", "sh": "sh", "script": "", "!": "bash", "sx": "bash", "system": "bash"}
_PYTHONS = frozenset({"python", "python3", "pypy"})
_FILES = frozenset({"writefile", "file"})
#: Magics that draw in the notebook.
_SHOWN = frozenset({"html", "HTML", "javascript", "js", "latex", "markdown", "svg", "SVG"})


def find(program: Program) -> Iterator[Finding]:
    for call, form in program.forms_of(Kind.CELL_MAGIC):
        statement = program.alone(call)
        if form.body is None or statement is None or program.installs.is_install(call):
            continue
        code, needs = _code(program, form)
        if code is None:
            yield Finding(
                call,
                f"%%{form.name} has no counterpart in a script: write what it does in Python",
                edits=(Remove(statement),),
                severity=Severity.NOTE if form.name in _SHOWN else Severity.WARNING,
                todo=form.name not in _SHOWN,
            )
            continue
        guard = once_a_machine(program, statement)
        yield Finding(
            call,
            f"%%{form.name} is IPython's",
            edits=(Replace(statement, code), *guard),
            needs=needs | (WAIT if guard else frozenset()),
        )


def _code(program: Program, form: Syntax) -> tuple[str | None, frozenset[str]]:
    """The statement that does what a cell magic does, and what it needs of the setup block."""
    body = form.body or ""
    words = [word for word in form.text.split() if not word.startswith("-")]
    if form.name in _FILES and words:
        mode = "a" if "-a" in form.text.split() or "--append" in form.text else "w"
        path = parse(words[-1].strip("'\""), program.tree).expression
        return (
            f'with open({path}, "{mode}", encoding="utf-8") as file:\n    file.write({quoted(body + chr(10))})',
            frozenset(),
        )
    if form.name in _SHELLS:
        shell = _SHELLS[form.name] or (words[0] if words else "sh")
        function = "Popen" if "--bg" in form.text.split() else "run"
        return f'subprocess.{function}(["{shell}", "-c", {quoted(body)}])', frozenset({"subprocess"})
    if form.name in _PYTHONS:
        return f'subprocess.run([sys.executable, "-c", {quoted(body)}])', frozenset({"subprocess"})
    return None, frozenset()


RULE = Rule(
    code="DDP309",
    name="cell-magic-with-own-body",
    summary="`%%writefile` writes the file, `%%bash` and `%%sh` run the shell, `%%html` and its like go.",
    why="A script has no magics. Before training each machine's first process does it and the others wait, so that no"
    " two processes write one file.",
    find=find,
    examples=(
        Example(
            "%%writefile reward.py\ndef reward(x):\n    return x\n# %%\ntrainer.train()\n# %%\n%%bash\nls out\n",
            """\
if local_rank == 0:
    with open("reward.py", "w", encoding="utf-8") as file:
        file.write(\"\"\"def reward(x):
    return x
\"\"\")
PartialState().wait_for_everyone()
# %%
trainer.train()
# %%
subprocess.run(["bash", "-c", "ls out"])
""",
        ),
        Example("%%capture\nx = 1\n"),
    ),
)
