"""How code reads and sets environment variables."""

from __future__ import annotations

import re

import libcst as cst

from nb2ddp.syntax.tree import Tree

#: What torchrun and accelerate set for each process, and what hides GPUs from them.
LAUNCHER_VARIABLES = frozenset(
    "CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT RANK "
    "WORLD_SIZE".split()
)
#: Variables that every shell sets.
SHELL_VARIABLES = frozenset(
    "HOME HOSTNAME LANG LD_LIBRARY_PATH LOGNAME PATH PWD PYTHONPATH SHELL TERM TMPDIR USER".split()
)

#: What reads a variable of the environment.
READS = re.compile(r"os\.(environ\.get|getenv)")


def environ_key(tree: Tree, target: cst.BaseExpression, mapping: str = "os.environ") -> object:
    """The variable that `os.environ[...]` names as an assignment's target, or the key of another mapping."""
    if not isinstance(target, cst.Subscript) or tree.qualified(target.value) != mapping:
        return None
    index = target.slice[0].slice
    return tree.literal(index.value) if isinstance(index, cst.Index) else None


def sets_only(tree: Tree, assign: cst.Assign, name: object) -> bool:
    """True for an assignment that sets this variable of the environment, and binds nothing else."""
    return {environ_key(tree, each.target) for each in assign.targets} == {name}
