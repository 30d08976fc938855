"""DDP103: leave the launcher's environment variables to the launcher."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.edits import Remove
from nb2ddp.ipython import Kind
from nb2ddp.model import Severity
from nb2ddp.program import Finding, Program
from nb2ddp.rule import Example, Rule
from nb2ddp.rules.env_magic import assignment
from nb2ddp.tree import Tree

#: What torchrun and accelerate set for each process, and what hides GPUs from them.
LAUNCHER_VARIABLES = frozenset(
    "CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT RANK "
    "WORLD_SIZE".split()
)


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for statement in (*tree.of(cst.Assign), *tree.of(cst.Expr)):
        name = _variable(program, statement)
        if name in LAUNCHER_VARIABLES and tree.is_live(statement):
            yield Finding(
                statement,
                f"{name} is set by the launcher for each process",
                edits=(Remove(statement),),
                severity=Severity.WARNING,
            )
    for call in tree.of(cst.Call):
        if tree.qualified(call.func) == "os.environ.update" and tree.is_live(call):
            words = {a.keyword.value for a in call.args if a.keyword} | {
                str(s.evaluated_value) for s in tree.within(call, cst.SimpleString)
            }
            if named := sorted(words & LAUNCHER_VARIABLES):
                message = f"{', '.join(named)} is set by the launcher for each process: leave it out"
                yield Finding(call, message, severity=Severity.WARNING, todo=True)


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
        pair = assignment(form.text) if form.kind is Kind.LINE_MAGIC and form.name in ("env", "set_env") else None
        return pair and pair[0]
    if tree.qualified(call.func) in ("os.environ.setdefault", "os.putenv") and call.args:
        return tree.literal(call.args[0].value)
    return None


def environ_key(tree: Tree, target: cst.BaseExpression) -> object:
    """The variable that `os.environ[...]` names as an assignment's target."""
    if not isinstance(target, cst.Subscript) or tree.qualified(target.value) != "os.environ":
        return None
    index = target.slice[0].slice
    return tree.literal(index.value) if isinstance(index, cst.Index) else None


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
