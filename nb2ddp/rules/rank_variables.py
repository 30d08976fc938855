"""DDP103: leave the launcher's environment variables to the launcher."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.environment import LAUNCHER_VARIABLES, settings
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Remove
from nb2ddp.syntax.tree import Statement

_POPS = re.compile(r"os\.(environ\.(pop|__delitem__)|unsetenv)")
_SET = "is what the launcher sets for each process"


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for taken, names, is_all in _taken_out(program):
        said = f"{', '.join(names)} {_SET}: without it each process trains alone"
        if is_all:
            yield Finding(
                taken, f"{said}; the script leaves this out", (Remove(taken, keep_comment=False, comments_above=True),)
            )
        else:
            yield Finding(taken, f"{said}: leave it in the environment", todo=True)
    for node, name, _ in settings(program):
        statement = node if isinstance(node, cst.Assign) else program.alone(cst.ensure_type(node, cst.Call))
        if name in LAUNCHER_VARIABLES and statement is not None and tree.is_live(node):
            said = f"{name} {_SET}; the script leaves this out: say it where you start it"
            yield Finding(statement, said, (Remove(statement),))
    for call in program.tree.live(cst.Call):
        if tree.qualified(call.func) == "os.environ.update":
            words = {*tree.texts(call), *(each.keyword.value for each in call.args if each.keyword)}
            if named := sorted(words & LAUNCHER_VARIABLES):
                yield Finding(call, f"{', '.join(named)} {_SET}, and breaks the job here: leave it out", todo=True)


def _taken_out(program: Program) -> Iterator[tuple[cst.BaseSmallStatement | Statement, list[str], bool]]:
    """What takes the launcher's variables out of the environment: `del`, `pop`, or a loop of them.

    With the variables, and whether it does nothing else.
    """
    tree = program.tree
    taking = [
        (item, item.target.slice[0].slice) for item in tree.live(cst.Del) if isinstance(item.target, cst.Subscript)
    ]
    taken: list[tuple[cst.BaseSmallStatement, cst.BaseExpression]] = [
        (item, part.value) for item, part in taking if isinstance(part, cst.Index) and _is_environ(program, item)
    ]
    for call in tree.live(cst.Call):
        if _POPS.fullmatch(tree.qualified(call.func)) and call.args and program.alone(call) is not None:
            taken.append((cst.ensure_type(tree.parents[call], cst.Expr), call.args[0].value))
    for item, key in taken:
        name, loop = tree.literal(key), tree.around(item, cst.For)
        if name in LAUNCHER_VARIABLES:
            yield item, [str(name)], True
        elif loop is not None and tree.definition(key) is loop and (names := _gone_through(program, loop)):
            lines = [each for line in tree.within(loop, cst.SimpleStatementLine) for each in line.body]
            alone = all(each is item or _tells(program, each) for each in lines)
            yield loop, names, alone and LAUNCHER_VARIABLES.issuperset(tree.texts(tree.value(loop.iter)))


def _is_environ(program: Program, item: cst.Del) -> bool:
    target = cst.ensure_type(item.target, cst.Subscript)
    return program.tree.qualified(target.value) == "os.environ"


def _tells(program: Program, statement: cst.BaseSmallStatement) -> bool:
    call = statement.value if isinstance(statement, cst.Expr) else None
    return isinstance(call, cst.Call) and program.tree.qualified(call.func) == "print"


def _gone_through(program: Program, loop: cst.For) -> list[str]:
    """The launcher's variables among those that a loop goes through, or lets through by their beginning."""
    tree = program.tree
    words = tree.texts(tree.value(loop.iter))
    if "os.environ" in tree.text(loop.iter):
        begins = tuple(text for test in tree.within(loop, cst.If) for text in tree.texts(test.test))
        return sorted(name for name in LAUNCHER_VARIABLES if begins and name.startswith(begins))
    return [word for word in words if word in LAUNCHER_VARIABLES]


RULE = Rule(
    code="DDP103",
    name="launcher-variable-set",
    summary="Lines that set or delete `CUDA_VISIBLE_DEVICES`, `WORLD_SIZE`, `RANK` and the like are removed.",
    why=(
        'The launcher sets these variables for each process. A notebook\'s `CUDA_VISIBLE_DEVICES = "0"` would send '
        "every process to the same GPU; without WORLD_SIZE or RANK, each process trains alone and all write to one "
        "folder. To choose GPUs, set the variable for the launch command."
    ),
    find=find,
    severity=Severity.WARNING,
    examples=(
        Example(
            """\
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # the big one
os.environ["TOKENIZERS_PARALLELISM"] = "false"
%env CUDA_VISIBLE_DEVICES=0
""",
            """\
import os
# the big one
os.environ["TOKENIZERS_PARALLELISM"] = "false"
""",
        ),
        Example(
            """\
import os
del os.environ["RANK"]
os.environ.pop("WORLD_SIZE", None)
for name in ("LOCAL_RANK", "MASTER_ADDR"):
    os.environ.pop(name, None)
os.environ.pop("HF_HOME", None)
""",
            'import os\nos.environ.pop("HF_HOME", None)\n',
        ),
        Example(
            """\
import os
# train on one GPU
for key in ["WORLD_SIZE", "RANK", "MASTER_PORT"]:
    if key in os.environ:
        del os.environ[key]
        print(key, "is gone")

for key in ["HF_HOME", "LOCAL_RANK"]:
    os.environ.pop(key, None)
for key in list(os.environ):
    if key.startswith("MASTER_"):
        del os.environ[key]
for key in ["HF_HOME"]:
    del os.environ[key]
""",
            """\
import os

# TODO[nb2ddp] DDP103: LOCAL_RANK is what the launcher sets for each process: without it each process trains alone: \
leave it in the environment
for key in ["HF_HOME", "LOCAL_RANK"]:
    os.environ.pop(key, None)
for key in ["HF_HOME"]:
    del os.environ[key]
""",
        ),
        Example('import os\nprint(os.environ["CUDA_VISIBLE_DEVICES"])\n'),
    ),
)
