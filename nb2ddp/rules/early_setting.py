"""DDP105: Environment variables set before Unsloth is imported move to the setup block.

Unsloth and torch read many of them when they are imported, such as UNSLOTH_VLLM_STANDBY, and the setup block imports
Unsloth before the notebook does. So do modules that the notebook hides: `sys.modules["torchao"] = None`.

A value may be made of constants and of the user's folder, as `os.path.expanduser("~/hf")`.

If code above them reads or changes them, they are set in both places, and so are those below a test that asks `os` or
`sys` alone (`if os.path.exists("/kaggle"):`), with that test. What is set below the import of a library that reads the
Hub's or torch's variables, such as transformers, stays there: it has read them already. Settings of torch's memory
move: torch reads them at its first call to a GPU, which the setup block makes.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.environment import Setting, first_import, holder
from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import quoted
from nb2ddp.rules.rule import Example, Finding, Rule, without_names
from nb2ddp.syntax.edits import AddToSetup, Cut, Edit, Remove
from nb2ddp.syntax.environ import environ_key
from nb2ddp.syntax.tree import Tree

_IMPORTED = "os is imported only for variables that the setup block sets; the script leaves it out"


def find(program: Program) -> Iterator[Finding]:
    tree, moved = program.tree, set[cst.CSTNode]()
    for setting in program.early_settings:
        node, small = setting.node, holder(program, setting.node)
        edits: tuple[Edit, ...] = ()
        if setting.moves and small is not None:
            moved.add(small)
            edits = (Remove(small, keep_comment=False), *_comments(tree, setting))
        said = f"{setting.name} must be set before Unsloth is imported; the script sets it above that import"
        yield Finding(node, said, edits, fixed=True)
    yield from _hidden(program)
    for statement in tree.of(cst.Import):
        others = [alias for alias in statement.names if tree.text(alias).rstrip(", ") != "os"]
        uses = tree.readers("os", statement) if len(others) < len(statement.names) else []
        if uses and all(moved.intersection(tree.ancestors(use)) for use in uses):
            edit = without_names(program, statement, others) if others else Remove(statement)
            yield Finding(statement, _IMPORTED, (edit,))


def _hidden(program: Program) -> Iterator[Finding]:
    """Modules that the notebook hides from Unsloth: `sys.modules["torchao"] = None`."""
    tree = program.tree
    for assign in tree.of(cst.Assign):
        name = environ_key(tree, assign.targets[0].target, "sys.modules")
        is_early = tree.start(assign) < first_import(tree) and tree.is_certain(assign)
        if isinstance(name, str) and is_early and tree.text(assign.value) == "None":
            said = f"{name} must be hidden before Unsloth is imported; the script hides it above that import"
            end = tree.span(assign)[1]
            beside = tree.source[end : tree.line_end(end)].strip(" ;")
            line = f"sys.modules[{quoted(name)}] = None  {beside if beside.startswith('#') else ''}".rstrip()
            hidden = AddToSetup(line, before_imports=True)
            yield Finding(assign, said, (Remove(assign, keep_comment=False, comments_above=True), hidden))


def _comments(tree: Tree, setting: Setting) -> Iterator[Cut]:
    """The lines of the comments that move with a setting, and the blank one above them."""
    if setting.comments:
        is_apart = tree.source[: setting.above].endswith("\n\n")
        yield Cut(setting.above - is_apart, tree.line_start(tree.start(setting.node)))


RULE = Rule(
    name="setting-after-import",
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
# must be set before torch is imported
os.environ["TORCH_LOGS"] = "recompiles"
os.environ["UNSLOTH_VLLM_STANDBY"] = "1"
import torch

# keys and settings
os.environ["VLLM_USE_V1"] = "1"
os.environ["WANDB_PROJECT"] = "rows"
from unsloth import FastModel
""",
            """\
import os
import torch

# keys and settings
os.environ["WANDB_PROJECT"] = "rows"
from unsloth import FastModel
""",
        ),
        Example(
            """\
import os, sys
ROOT = "/data"
sys.modules["torchao"] = None  # broken here
os.environ["HF_HOME"] = f"{ROOT}/hf"
os.environ["HF_DATASETS_CACHE"] = os.path.join(ROOT, "rows")
os.environ["TMPDIR"] = os.environ["TEMP"] = "/data/tmp"
os.environ.setdefault("UNSLOTH_COMPILE_DISABLE", "1")
os.environ.update({"TORCH_LOGS": "graph"}, TOKENIZERS_PARALLELISM="false")
os.environ |= {"VLLM_USE_V1": "1"}
for key, value in {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "4"}.items():
    os.environ[key] = value
os.environ.update({"TORCH_COMPILE_DISABLE": "1", "WANDB_PROJECT": "rows"})
os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder = "/data/c"
import torch
from unsloth import FastModel
""",
            """\
import os, sys
ROOT = "/data"
os.environ.update({"TORCH_COMPILE_DISABLE": "1", "WANDB_PROJECT": "rows"})
os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder = "/data/c"
import torch
from unsloth import FastModel
""",
        ),
        Example(  # the user's folder is the same above that import
            """\
import os
from pathlib import Path
ROOT = Path.home() / "runs"
os.environ["CUDA_HOME"] = os.path.expanduser("~/venvs/gpu")
os.environ["HF_HOME"] = str(ROOT / "hf")
os.environ["TRITON_CACHE_DIR"] = f"{ROOT}/triton"
os.environ["TORCH_LOGS"] = ",".join(["graph", "recompiles"])
os.environ["OMP_NUM_THREADS"] = str(4)
from unsloth import FastModel
""",
            """\
from pathlib import Path
ROOT = Path.home() / "runs"
from unsloth import FastModel
""",
        ),
        Example(  # nothing tells these values
            """\
import os, sys
root = "/data"
if os.path.exists("/scratch"):
    root = "/scratch"
os.environ["HF_HOME"] = f"{root}/hf"
os.environ["HF_DATASETS_CACHE"] = f"{os.getcwd()}/rows"
os.environ["TORCH_LOGS"] = ",".join(sys.argv)
for key, value in {"OMP_NUM_THREADS": 4}.items():
    os.environ[key] = str(value)
sys.modules["mine"] = sys
from unsloth import FastModel
sys.modules["torchao"] = None
"""
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
        Example('import os\nos.environ["UNSLOTH_RETURN_LOGITS"] = "1"\nfrom unsloth import FastModel\n'),
        Example('import os\nos.environ["WANDB_LOG_MODEL"] = "checkpoint"\nfrom unsloth import FastModel\n'),
        Example(
            'import os\nimport modelscope\nos.environ["HF_HUB_OFFLINE"] = "1"\nfrom unsloth import FastModel\n',
            "import modelscope\nfrom unsloth import FastModel\n",
        ),
        Example(
            """\
import os
IS_KAGGLE = os.path.exists("/kaggle/input")
if IS_KAGGLE:
    os.environ["HF_HUB_OFFLINE"] = "1"
if asked():
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
from unsloth import FastModel
""",
            reported=True,
        ),
        Example(  # another package has read them already
            "import os\nfrom huggingface_hub import snapshot_download\nsnapshot_download(name)\n"
            'os.environ["HF_HUB_OFFLINE"] = "1"\nfrom unsloth import FastModel\n'
        ),
        Example(
            """\
import os, torch
from datasets import load_dataset
rows = load_dataset(name)
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from unsloth import FastModel
os.environ["PYTORCH_ALLOC_CONF"] = "backend:native"
""",
            """\
import os, torch
from datasets import load_dataset
rows = load_dataset(name)
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from unsloth import FastModel
os.environ["PYTORCH_ALLOC_CONF"] = "backend:native"
""",
        ),
        Example('from unsloth import FastLanguageModel\nimport os\nos.environ["TOKENIZERS_PARALLELISM"] = "false"\n'),
    ),
)
