"""DDP105: what the notebook sets before it imports Unsloth is set before the setup block does."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.environment import Setting, blocked_modules
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Cut, Edit, Remove, Replace
from nb2ddp.syntax.tree import Tree


def find(program: Program) -> Iterator[Finding]:
    tree, moved = program.tree, set[cst.CSTNode]()
    for setting in program.early_settings:
        node = setting.node
        small = node if isinstance(node, cst.Assign) else program.alone(cst.ensure_type(node, cst.Call))
        edits: tuple[Edit, ...] = ()
        if setting.moves and small is not None:
            moved.add(small)
            edits = (Remove(small, keep_comment=False), *_comments(tree, setting))
        said = f"{setting.name} would be set too late, after the import of Unsloth; the script sets it before"
        yield Finding(node, said, edits, fixed=True)
    for blocked in blocked_modules(tree):
        said = f"{tree.text(blocked)} would come too late, after the import of Unsloth; the script does it before"
        yield Finding(blocked, said, (Remove(blocked, keep_comment=False),))
    for statement in tree.of(cst.Import):
        names = [tree.text(alias).rstrip(", ") for alias in statement.names]
        uses = tree.readers("os", statement) if "os" in names else []
        if uses and all(moved.intersection(tree.ancestors(use)) for use in uses):
            said = "os is imported only for variables that the setup block sets; the script leaves it out"
            others = ", ".join(name for name in names if name != "os")
            yield Finding(statement, said, (Replace(statement, f"import {others}") if others else Remove(statement),))


def _comments(tree: Tree, setting: Setting) -> Iterator[Cut]:
    """The lines of the comments that move with a setting, and the blank one above them."""
    if setting.comments:
        is_apart = tree.source[: setting.above].endswith("\n\n")
        yield Cut(setting.above - is_apart, tree.line_start(tree.start(setting.node)))


RULE = Rule(
    code="DDP105",
    name="setting-after-import",
    summary="Environment variables set before Unsloth is imported, and blocked modules, move to the setup block.",
    why=(
        "Unsloth and torch read many of them when they are imported, such as UNSLOTH_VLLM_STANDBY, and the setup "
        'block imports Unsloth before the notebook does. A module is blocked by `sys.modules["flash_attn"] = '
        "None`.\n\nIf code above them reads or changes them, they are set in both places. What is set below the import "
        "of another package stays there: that package has read it already."
    ),
    find=find,
    examples=(
        Example(
            """\
import os, warnings; os.environ["UNSLOTH_VLLM_STANDBY"] = "1"
import torch

# the kernels of an older Triton
%env FLA_TILELANG=0

from unsloth import FastModel
""",
            """\
import warnings
import torch

from unsloth import FastModel
""",
        ),
        Example(
            """\
import os
if os.environ.get("UNSLOTH_VLLM_STANDBY", "0") == "0":
    print("standby")
os.environ["UNSLOTH_VLLM_STANDBY"] = "1"
os.environ["FLA_TILELANG"] = "1"
os.environ["FLA_TILELANG"] = "0"
from unsloth import FastModel
""",
            reported=True,
        ),
        Example(
            'import sys\nsys.modules["flash_attn"] = None  # an old build\nfrom unsloth import FastModel\n',
            "import sys\nfrom unsloth import FastModel\n",
        ),
        Example('import os\nos.environ["UNSLOTH_RETURN_LOGITS"] = "1"\nfrom unsloth import FastModel\n'),
        Example('import os\nos.environ["WANDB_LOG_MODEL"] = "checkpoint"\nfrom unsloth import FastModel\n'),
        Example(  # another package has read them already
            "import os\nfrom huggingface_hub import snapshot_download\nsnapshot_download(name)\n"
            'os.environ["HF_HUB_OFFLINE"] = "1"\nfrom unsloth import FastModel\n'
        ),
        Example('from unsloth import FastLanguageModel\nimport os\nos.environ["TOKENIZERS_PARALLELISM"] = "false"\n'),
    ),
)
