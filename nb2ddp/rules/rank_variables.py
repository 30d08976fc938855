"""DDP103: leave the launcher's environment variables to the launcher."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.environment import ENV_MAGICS, LAUNCHER_VARIABLES, assignment, environ_key
from nb2ddp.facts.program import Program
from nb2ddp.notebook.magics import Kind
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Remove

_SET = "is what the launcher sets for each process"


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for statement in (*tree.live(cst.Assign), *tree.live(cst.Expr)):
        if (name := _variable(program, statement)) in LAUNCHER_VARIABLES:
            said = f"{name} {_SET}; the script leaves this out: say it where you start it"
            yield Finding(statement, said, (Remove(statement),))
    for call in program.tree.live(cst.Call):
        if tree.qualified(call.func) == "os.environ.update":
            words = {*tree.texts(call), *(each.keyword.value for each in call.args if each.keyword)}
            if named := sorted(words & LAUNCHER_VARIABLES):
                yield Finding(call, f"{', '.join(named)} {_SET}, and breaks the job here: leave it out", todo=True)


def _variable(program: Program, statement: cst.BaseSmallStatement) -> object:
    """The environment variable that a statement sets."""
    tree = program.tree
    if isinstance(statement, cst.Assign):
        return environ_key(tree, statement.targets[0].target)
    call = cst.ensure_type(statement, cst.Expr).value
    if not isinstance(call, cst.Call):
        return None
    form = program.form(call)
    if form is not None:
        pair = assignment(form.text) if form.kind is Kind.LINE_MAGIC and form.name in ENV_MAGICS else None
        return pair and pair[0]
    if tree.qualified(call.func) in ("os.environ.setdefault", "os.putenv") and call.args:
        return tree.literal(call.args[0].value)
    return None


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
