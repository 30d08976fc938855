"""DDP306: package installs leave the script; the live state of an install cell stays."""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Remove


def find(program: Program) -> Iterator[Finding]:
    tree, removed = program.tree, program.installs.statements
    for statement in sorted(removed, key=tree.start):
        if any(above in removed for above in tree.ancestors(statement)):
            continue
        yield Finding(
            statement,
            "serves only the installation of packages: install them once, before the job",
            edits=(Remove(statement, keep_comment=False),),  # type: ignore[arg-type]
        )


RULE = Rule(
    code="DDP306",
    name="package-install",
    summary="Package installs go, with what only they need; environment variables, settings, constants, imports, clones"
    " and paths of an install cell stay.",
    why="Every process would install at once, into an environment that the running job already imports from. The"
    " branch that only Colab takes goes too.",
    find=find,
    examples=(
        Example(
            """\
%%capture
import os, re
os.environ["UNSLOTH_VLLM_STANDBY"] = "1" # longer contexts
if "COLAB_" not in "".join(os.environ.keys()):
    !pip install unsloth
else:
    import torch; v = re.match(r"[0-9.]+", str(torch.__version__)).group(0)
    !pip install "torch=={v}" unsloth
!pip install --no-deps trl==0.22.2
import torch; torch._dynamo.config.recompile_limit = 64;
seed = 3407
# %%
set_seed(seed)
""",
            """\
%%capture
import os, re
os.environ["UNSLOTH_VLLM_STANDBY"] = "1" # longer contexts
import torch; torch._dynamo.config.recompile_limit = 64;
seed = 3407
# %%
set_seed(seed)
""",
        ),
        Example(
            """\
!pip install unsloth
try:
    import flash_attn
    attention = "flash_attention_2"
except ImportError:
    attention = "sdpa"
# %%
load(attention)
""",
            """\
try:
    import flash_attn
    attention = "flash_attention_2"
except ImportError:
    attention = "sdpa"
# %%
load(attention)
""",
        ),
        Example('print("pip install unsloth")\n'),
    ),
)
