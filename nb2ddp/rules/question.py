"""DDP311: what a person would type comes from the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import LOGIN
from nb2ddp.facts.environment import environ_key
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Remove, Replace
from nb2ddp.syntax.tree import Tree

_ASKING = re.compile(r"(builtins\.)?input|getpass\.(getpass|unix_getpass)|maskpass\.\w+")


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in tree.live(cst.Call):
        name = tree.qualified(call.func)
        if _ASKING.fullmatch(name):
            yield _asked(program, call)
        elif re.fullmatch(LOGIN, name) and not call.args and (statement := program.alone(call)) is not None:
            said = "asks a person for a token; the script leaves it out: set HF_TOKEN in the environment"
            yield Finding(call, f"{name.rsplit('.', 1)[-1]}() {said}", (Remove(statement),))


def _asked(program: Program, call: cst.Call) -> Finding:
    """Read the variable that the answer is for; nobody answers a process of a job."""
    tree, owner = program.tree, program.tree.parents[call]
    asked = f"{tree.text(call.func)}() asks a person, and a job has none"
    if isinstance(owner, cst.Expr):
        return Finding(call, f"{asked}; the script leaves it out", (Remove(owner),))
    target = _target(tree, call)
    if isinstance(owner, cst.Assign) and isinstance(key := environ_key(tree, owner.targets[0].target), str):
        return Finding(call, f"{asked}: set {key} in the environment", (Remove(owner),))
    number = _questions(tree, tree.module).index(call) + 1
    variable = target.value.upper() if isinstance(target, cst.Name) else f"ANSWER_{number}"
    loop = any(isinstance(above, (cst.While, cst.For)) for above in tree.ancestors(call))
    again = "; it gets the same answer each time, so take the loop out" if loop else ""
    read = Replace(call, f'os.environ["{variable}"]')
    return Finding(call, f"{asked}: set {variable} in the environment{again}", (read,), todo=loop)


def _target(tree: Tree, call: cst.Call) -> cst.CSTNode | None:
    """What the answer is assigned to, or the keyword it is passed under."""
    for above in tree.ancestors(call):
        if isinstance(above, cst.Arg) and above.keyword is not None:
            return above.keyword
        if isinstance(above, cst.Assign):
            return above.targets[0].target if len(_questions(tree, above)) == 1 else None
        if isinstance(above, (cst.AnnAssign, cst.NamedExpr)):
            return above.target
        if isinstance(above, cst.BaseSmallStatement):
            return None
    return None


def _questions(tree: Tree, node: cst.CSTNode) -> list[cst.Call]:
    """The calls inside a node that ask a person."""
    return [call for call in tree.within(node, cst.Call) if _ASKING.fullmatch(tree.qualified(call.func))]


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
