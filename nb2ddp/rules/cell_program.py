"""DDP309: `%%writefile` writes the file, `%%bash` and `%%sh` run the shell; other cell magics become comments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import FILE_MAGICS
from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import is_install, parse, quoted, without_comment
from nb2ddp.notebook.magics import Kind, Syntax
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import Remove, Replace

#: The shells that run the body.
_SHELLS = {**dict.fromkeys(("bash", "!", "sx", "system"), "bash"), "sh": "sh"}
#: Magics that go on where their shell fails.
_SILENT = frozenset({"!", "sx", "system"})
#: Programs that do nothing with the body: `%%script false` switches a cell off.
_OFF = re.compile(r"(--\S+\s+)*(false|true|echo)\b")
#: Magics that draw in the notebook, and that show a text to read.
_DRAWN = frozenset({"html", "HTML", "javascript", "js", "svg", "SVG"})
_TEXT = frozenset({"latex", "markdown"})
_INSTALLS_TOO = (
    "this cell installs packages and does more, so the script runs all of it, installs too: move the installs "
    "out, and install once before the job"
)


@rule("DDP309")
def cell_magic_with_own_body(program: Program) -> Iterator[Finding]:
    for call, form in program.forms_of(Kind.CELL_MAGIC):
        statement = program.alone(call)
        if form.body is None or statement is None or program.installs.is_install(call):
            continue
        commented = Replace(statement, "\n".join(f"# {line}".rstrip() for line in form.body.split("\n")))
        code = _code(program, call, form)
        if form.name in _DRAWN:
            said = f"%%{form.name} draws in a notebook; the script leaves it out"
            yield Finding(call, said, (Remove(statement),))
        elif form.name in _TEXT or (form.name == "script" and _OFF.match(form.text)):
            yield Finding(call, f"%%{form} runs no code; the script keeps it as a comment", (commented,))
        elif code is None:
            said = "works in a notebook only, so the script does not run this cell: write what it does in Python"
            yield Finding(call, f"%%{form} {said}", (commented,), todo=True)
        else:
            if form.name in _SHELLS and any(is_install(line.strip()) for line in form.body.split("\n")):
                yield Finding(call, _INSTALLS_TOO, todo=True)
            said = f"%%{form.name} works in a notebook only; the script does the same in Python"
            yield Finding(call, said, (Replace(statement, code), *program.placement.once(statement)))


def _code(program: Program, call: cst.Call, form: Syntax) -> str | None:
    """The statement that does what a cell magic does; None where there is none, or where it has options."""
    words, body = _words(form.text), form.body or ""
    if form.name in FILE_MAGICS and words:
        mode = "a" if {"-a", "--append"} & set(words) else "w"
        path = parse(words[-1], program.tree.bound_at(call)).expression
        return f'with open({path}, "{mode}", encoding="utf-8") as file:\n    file.write({quoted(body + chr(10))})'
    if form.name not in _SHELLS or words:
        return None
    check = "" if form.name in _SILENT else ", check=True"
    return f'subprocess.run(["{_SHELLS[form.name]}", "-c", {quoted(body)}]{check})'


def _words(text: str) -> list[str]:
    try:
        return shlex.split(without_comment(text))
    except ValueError:
        return text.split()
