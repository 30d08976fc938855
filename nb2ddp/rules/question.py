"""DDP311: what a person would type comes from the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import LOGIN
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Remove, Replace
from nb2ddp.syntax.tree import Tree

_ASKING = re.compile(r"(builtins\.)?input|getpass\.(getpass|unix_getpass)|maskpass\.\w+")


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in tree.of(cst.Call):
        name = tree.qualified(call.func)
        if not tree.is_live(call):
            continue
        if _ASKING.fullmatch(name):
            yield _asked(program, call)
        elif re.fullmatch(LOGIN, name) and not call.args and (statement := program.alone(call)) is not None:
            yield Finding(
                call,
                f"{name.rsplit('.', 1)[-1]}() asks a person for a token; the script leaves it out: set HF_TOKEN in the"
                " environment",
                (Remove(statement),),
            )


def _asked(program: Program, call: cst.Call) -> Finding:
    """Read the variable that the answer is for; nobody answers a process of a job."""
    tree = program.tree
    asked = f"{tree.text(call.func)}() asks a person, and a job has none"
    if program.alone(call) is not None:
        told = f"{asked}; the script leaves it out"
        return Finding(call, told, (Remove(tree.parents[call]),))  # type: ignore[arg-type]
    target = _target(tree, call)
    if isinstance(target, cst.Subscript) and tree.qualified(target.value) == "os.environ":
        index = target.slice[0].slice
        key = tree.literal(index.value) if isinstance(index, cst.Index) else ...
        if isinstance(key, str) and isinstance(tree.parents[call], cst.Assign):
            told = f"{asked}: set {key} in the environment"
            return Finding(call, told, (Remove(tree.parents[call]),))  # type: ignore[arg-type]
    variable = target.value.upper() if isinstance(target, cst.Name) else f"ANSWER_{_number(program, call)}"
    loop = any(isinstance(above, (cst.While, cst.For)) for above in tree.ancestors(call))
    again = "; it gets the same answer each time, so take the loop out" if loop else ""
    return Finding(
        call,
        f"{asked}: set {variable} in the environment{again}",
        (Replace(call, f'os.environ["{variable}"]'),),
        todo=loop,
    )


def _number(program: Program, call: cst.Call) -> int:
    """Where a question stands among all of the notebook's."""
    asked = [c for c in program.tree.of(cst.Call) if _ASKING.fullmatch(program.tree.qualified(c.func))]
    return asked.index(call) + 1


def _target(tree: Tree, call: cst.Call) -> cst.CSTNode | None:
    """What the answer is assigned to, or the keyword it is passed under."""
    for above in tree.ancestors(call):
        if isinstance(above, cst.Arg) and above.keyword is not None:
            return above.keyword
        if isinstance(above, cst.Assign):
            alone = len([c for c in tree.within(above, cst.Call) if _ASKING.fullmatch(tree.qualified(c.func))]) == 1
            return above.targets[0].target if alone else None
        if isinstance(above, cst.AnnAssign):
            return above.target
        if isinstance(above, (cst.NamedExpr, cst.BaseSmallStatement)):
            return above.target if isinstance(above, cst.NamedExpr) else None
    return None


RULE = Rule(
    code="DDP311",
    name="question-to-a-person",
    summary="`input()`, `getpass()` and `notebook_login()` become variables of the environment.",
    why="Every process would wait for an answer, and a job has nobody to give one. The Hub's libraries read"
    " HF_TOKEN by themselves.",
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
