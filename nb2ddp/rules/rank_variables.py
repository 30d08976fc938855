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
from nb2ddp.syntax.environ import environ_key
from nb2ddp.syntax.tree import Statement

_POPS = re.compile(r"os\.(environ\.(pop|__delitem__)|unsetenv)")
_SET = "is what the launcher sets for each process"


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for taken, names in _taken_out(program):
        said = f"{', '.join(names)} {_SET}: without it each process trains alone; the script leaves this out"
        yield Finding(taken, said, (Remove(taken, keep_comment=False),))
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


def _taken_out(program: Program) -> Iterator[tuple[cst.BaseSmallStatement | Statement, list[str]]]:
    """What takes the launcher's variables out of the environment: `del`, `pop`, or a loop that does nothing else."""
    tree = program.tree
    for item in tree.live(cst.Del):
        if (name := environ_key(tree, item.target)) in LAUNCHER_VARIABLES:
            yield item, [str(name)]
    for call in tree.live(cst.Call):
        if not _POPS.fullmatch(tree.qualified(call.func)) or not call.args or program.alone(call) is None:
            continue
        loop, name = tree.around(call, cst.For), tree.literal(call.args[0].value)
        if name in LAUNCHER_VARIABLES:
            yield cst.ensure_type(tree.parents[call], cst.Expr), [str(name)]
        elif loop is not None and tree.definition(call.args[0].value) is loop:
            words = tree.texts(tree.value(loop.iter))
            lines = tree.within(loop, cst.SimpleStatementLine)
            if words and LAUNCHER_VARIABLES.issuperset(words) and len(lines) <= 1:
                yield loop, words


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
        Example('import os\nprint(os.environ["CUDA_VISIBLE_DEVICES"])\n'),
    ),
)
