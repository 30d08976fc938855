"""Recognize code that reads and sets environment variables."""

from __future__ import annotations

import re

import libcst as cst

from nb2ddp.syntax.tree import Tree

#: Variables that torchrun and accelerate set for each process, and those that hide GPUs from processes.
LAUNCHER_VARIABLES = frozenset(
    "CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT RANK "
    "WORLD_SIZE".split()
)
#: Variables that every shell sets.
SHELL_VARIABLES = frozenset(
    "HOME HOSTNAME LANG LD_LIBRARY_PATH LOGNAME PATH PWD PYTHONPATH SHELL TERM TMPDIR USER".split()
)

#: Functions that read an environment variable.
READS = re.compile(r"os\.(environ\.get|getenv)")


def environ_key(tree: Tree, target: cst.BaseExpression, mapping: str = "os.environ") -> object:
    """Return the variable that an assignment to `os.environ[...]` sets, or the key that it sets in another mapping."""
    if not isinstance(target, cst.Subscript) or tree.qualified(target.value) != mapping:
        return None
    index = target.slice[0].slice
    return tree.literal(index.value) if isinstance(index, cst.Index) else None


def sets_only(tree: Tree, assign: cst.Assign, name: object) -> bool:
    """Return whether an assignment sets this environment variable and nothing else."""
    return {environ_key(tree, each.target) for each in assign.targets} == {name}
