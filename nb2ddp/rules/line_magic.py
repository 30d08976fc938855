"""DDP303: `%cd` becomes `os.chdir`, `%time f()` becomes `f()`; `name?` and settings of the notebook are removed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import NOTEBOOK_MAGICS
from nb2ddp.facts.environment import ENV_MAGICS
from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import parse, trailing_comment
from nb2ddp.notebook.magics import Kind, Syntax
from nb2ddp.rules.rule import Finding, left_out, rule
from nb2ddp.syntax.edits import Replace

#: Without Python to run they do nothing; with it they stand no more (ipython.py).
_TIMERS = frozenset({"time", "timeit", "prun", "memit", "mprun", "lprun"})

_HELP = "shows help; the script leaves it out"
_AUTOMATIC = "is IPython's automatic call, which the script leaves out: write it as a Python call"


@rule("DDP303")
def line_magic(program: Program) -> Iterator[Finding]:
    for call, form in program.forms_of(Kind.HELP, Kind.AUTOCALL):
        is_call = form.kind is Kind.AUTOCALL
        message = f"{form.name}{form.text} {_AUTOMATIC}" if is_call else f"{form.text}? {_HELP}"
        yield Finding(call, message, (left_out(program, call, trailing_comment(form.source)),), todo=is_call)
    for call, form in program.forms_of(Kind.LINE_MAGIC):
        if form.name in ENV_MAGICS or program.installs.is_install(call):
            continue  # DDP301, DDP306
        is_alone = program.alone(call) is not None
        code = _code(program, call, form, shown=is_alone)
        comment = trailing_comment(form.text) if is_alone else ""
        edit = Replace(call, f"{code}  {comment}".rstrip()) if code else left_out(program, call, comment)
        if code is None:
            said = "works in a notebook only, so the script leaves it out: write what it does in Python"
            yield Finding(call, f"%{form} {said}", (edit,), todo=True)
        else:
            does = "does the same in Python" if code else "leaves it out"
            yield Finding(call, f"%{form.name} works in a notebook only; the script {does}", (edit,))


def _code(program: Program, call: cst.Call, form: Syntax, shown: bool) -> str | None:
    """The Python that a magic stands for: empty where it only steers the notebook, None where there is none."""
    if form.name in ("cd", "pushd"):
        folder = form.text.removeprefix("-q ").strip().strip("'\"") or "~"
        if folder.startswith("-"):
            return None
        name = re.fullmatch(r"\{(\w+)\}|\$(\w+)", folder)
        if name is not None and program.tree.bound(name[1] or name[2], call):
            return f"os.chdir({name[1] or name[2]})"
        path = parse(folder, program.tree.bound_at(call)).expression
        return f"os.chdir(os.path.expanduser({path}))" if folder.startswith("~") else f"os.chdir({path})"
    if form.name == "pwd":
        return "" if shown else "os.getcwd()"
    if form.name == "store":
        return None if "-r" in form.text.split() else ""
    return "" if form.name in NOTEBOOK_MAGICS | _TIMERS and shown else None
