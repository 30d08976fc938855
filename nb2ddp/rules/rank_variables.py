"""DDP103: leave the launcher's environment variables to the launcher."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.environment import LAUNCHER_VARIABLES, settings
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Remove

_SET = "is what the launcher sets for each process"


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
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


RULE = Rule(
    code="DDP103",
    name="launcher-variable-set",
    summary="Assignments of `CUDA_VISIBLE_DEVICES`, `WORLD_SIZE`, `RANK`, `LOCAL_RANK` and the like go.",
    why='accelerate and torchrun set these for each process. A notebook\'s `CUDA_VISIBLE_DEVICES = "0"` would send '
    "every process to the same GPU. To choose GPUs, set it for the launch command.",
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
        Example('import os\nprint(os.environ["CUDA_VISIBLE_DEVICES"])\n'),
    ),
)
