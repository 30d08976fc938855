"""DDP311: what a person would type comes from the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.edits import Edit, Remove, Replace
from nb2ddp.model import Severity
from nb2ddp.program import Finding, Program
from nb2ddp.rule import Example, Rule

_ASKING = re.compile(r"(builtins\.)?input|getpass\.(getpass|unix_getpass)|maskpass\.\w+")
_LOGIN = re.compile(r"(huggingface_hub\.)?(notebook_login|interpreter_login|login)")


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in tree.of(cst.Call):
        name = tree.qualified(call.func)
        if not tree.is_live(call):
            continue
        if _ASKING.fullmatch(name):
            yield _asked(program, call)
        elif _LOGIN.fullmatch(name) and not call.args and (statement := program.alone(call)) is not None:
            yield Finding(
                call,
                f"{name.rsplit('.', 1)[-1]}() asks for a token: set HF_TOKEN in the environment",
                (Remove(statement),),
                severity=Severity.WARNING,
            )


def _asked(program: Program, call: cst.Call) -> Finding:
    """Read the variable that the answer is for; nobody answers a process of a job."""
    tree = program.tree
    variable, edit = "ANSWER", None
    parent = tree.parents[call]
    if isinstance(parent, cst.Assign):
        target = parent.targets[0].target
        if isinstance(target, cst.Name):
            variable = target.value.upper()
        elif isinstance(target, cst.Subscript) and tree.qualified(target.value) == "os.environ":
            key = tree.literal(target.slice[0].slice.value) if isinstance(target.slice[0].slice, cst.Index) else ...
            if isinstance(key, str):
                variable, edit = key, Remove(parent)
    elif isinstance(parent, cst.Arg) and parent.keyword is not None:
        variable = parent.keyword.value.upper()
    elif isinstance(parent, cst.Expr):
        variable, edit = "", Remove(parent)
    edits: tuple[Edit, ...] = (edit or Replace(call, f'os.environ["{variable}"]'),)
    told = f": set {variable} in the environment" if variable else ""
    return Finding(call, f"{tree.text(call.func)}() asks a person{told}", edits, severity=Severity.WARNING)


RULE = Rule(
    code="DDP311",
    name="question-to-a-person",
    summary="`input()`, `getpass()` and `notebook_login()` become variables of the environment.",
    why="Every process would wait for an answer, and a job has nobody to give one. The Hub's libraries read"
    " HF_TOKEN by "
    "themselves.",
    find=find,
    severity=Severity.WARNING,
    examples=(
        Example(
            """\
import os
from getpass import getpass
from huggingface_hub import notebook_login
notebook_login()
os.environ["WANDB_API_KEY"] = getpass("key: ")
hf_token = input("token? ")
""",
            """\
import os
from getpass import getpass
from huggingface_hub import notebook_login
hf_token = os.environ["HF_TOKEN"]
""",
        ),
        Example("def input(x):\n    return x\ny = input(1)\n"),
    ),
)
