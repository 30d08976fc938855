"""Environment variables that a notebook sets, and when."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from nb2ddp.facts.installs import Installs
from nb2ddp.notebook.ipynb import Notebook
from nb2ddp.notebook.magics import Kind
from nb2ddp.syntax.cells import Source
from nb2ddp.syntax.tree import Tree

_ASSIGNMENT = re.compile(r"(?P<name>\w+)(?:\s*=\s*|\s+)(?P<value>.*)")
_COMMENT = re.compile(r"(?:^|\s+)(#.*)$")
#: What is read when it is needed, not by an import: settings of trackers, keys and tokens.
_READ_LATER = re.compile(
    r"(WANDB|COMET|MLFLOW|NEPTUNE|CLEARML|TRACKIO|OPENAI)_\w+|\w+_(KEY|TOKEN)|HUGGING_FACE_HUB_TOKEN"
)
#: What torchrun and accelerate set for each process, and what hides GPUs from them.
LAUNCHER_VARIABLES = frozenset(
    "CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT RANK "
    "WORLD_SIZE".split()
)
#: The GPUs that Colab and Kaggle lend: gigabytes that torch reports as `total_memory`, rounded down.
_GPUS = {"T4": 15, "P100": 16, "V100": 16, "L4": 23, "A100": 40, "H100": 80, "G4": 95}
_GPU = re.compile(rf"({'|'.join(_GPUS)})(?!\d)")


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU, with its memory in GB (10**9 bytes)."""

    name: str
    gigabytes: int


def gpu(notebook: Notebook) -> Gpu:
    """The GPU that the notebook's metadata names; where none is known a T4, which Colab lends for nothing."""
    known = _GPU.search(notebook.gpu)
    name = known[1] if known else "T4"
    return Gpu(name, _GPUS[name])


def uses_unsloth(tree: Tree) -> bool:
    """True where live code imports Unsloth, whatever for."""
    return any(map(tree.is_live, _imports_of_unsloth(tree)))


def _imports_of_unsloth(tree: Tree) -> list[cst.Import | cst.ImportFrom]:
    statements: list[cst.Import | cst.ImportFrom] = [*tree.of(cst.Import), *tree.of(cst.ImportFrom)]
    return [each for each in statements if "unsloth" in tree.text(each).split() or "unsloth." in tree.text(each)]


def assignment(text: str) -> tuple[str, str, str] | None:
    """Name, value and comment of `%env NAME=value # comment`; None where the magic only shows."""
    comment = _COMMENT.search(text)
    match = _ASSIGNMENT.fullmatch(_COMMENT.sub("", text).strip())
    return (match["name"], match["value"].strip(), comment[1] if comment else "") if match else None


def environ_key(tree: Tree, target: cst.BaseExpression) -> object:
    """The variable that `os.environ[...]` names as an assignment's target."""
    if not isinstance(target, cst.Subscript) or tree.qualified(target.value) != "os.environ":
        return None
    index = target.slice[0].slice
    return tree.literal(index.value) if isinstance(index, cst.Index) else None


def settings(source: Source, installs: Installs) -> dict[str, str]:
    """Environment variables with plain values that the notebook sets before its own import of Unsloth."""
    return {name: value for _, name, value in early_settings(source, installs)}


def early_settings(source: Source, installs: Installs) -> list[tuple[cst.CSTNode, str, str]]:
    """Statements that set a variable to a plain value before the import of Unsloth, with its name and value."""
    tree = source.tree
    first = min(map(tree.start, _imports_of_unsloth(tree)), default=0)
    found: list[tuple[cst.CSTNode, str, str]] = []
    for statement in tree.of(cst.Assign):
        name = environ_key(tree, statement.targets[0].target)
        value = tree.literal(statement.value)
        if isinstance(name, str) and isinstance(value, str):
            found.append((statement, name, value))
    for call, form in source.forms_of(Kind.LINE_MAGIC):
        pair = assignment(form.text) if form.name in ("env", "set_env") else None
        if pair is not None and not {"$", "{"} & set(pair[1]):
            found.append((call, pair[0], pair[1]))
    return sorted(
        (
            (node, name, value)
            for node, name, value in found
            if tree.start(node) < first
            and name not in LAUNCHER_VARIABLES
            and not _READ_LATER.fullmatch(name)
            and tree.parents[tree.statement(node)] is tree.module
            and not installs.covers(node)
        ),
        key=lambda item: tree.start(item[0]),
    )
