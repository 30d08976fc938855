"""DDP306: package installs leave the script; the live state of an install cell stays."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.environment import first_import
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Cut, Edit, Remove, Replace

#: What a package manager of the system is told to install.
_SYSTEM = re.compile(
    r"\b(?:apt|apt-get|aptitude|yum|dnf|brew|apk)(?:\s+-\S+)*\s+(?:install|add)((?:\s+-?\w[\w.+=-]*)+)"
)
#: What a cell of comments may be for besides: a licence, or code that is switched off.
_KEPT = re.compile(r"(?i)copyright|licen[cs]e|^#\s*(?!!)[\w.\[\]\"']+\s*(=|\(|import\b)", re.M)
_ONLY_INSTALLS = "nothing but an install stands here; the script leaves it out"


def find(program: Program) -> Iterator[Finding]:
    tree, removed = program.tree, program.installs.statements
    for statement in tree.in_order(removed):
        if any(above in removed for above in tree.ancestors(statement)):
            continue
        edits: tuple[Edit, ...] = (Remove(statement, keep_comment=False),)  # type: ignore[arg-type]
        cell = program.cell_at(tree.start(statement)).number
        if cell in program.installs.cells:
            edits = (*edits, Cut(*program.cell_span(cell)))
        elif isinstance(statement, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
            edits = (*edits, Cut(tree.comments_above(statement), tree.line_start(tree.start(statement))))
        if packages := _system_packages(program, statement):
            said = f"installs {packages} on the machine, which no requirements file can; the script leaves it out"
            message, severity = f"{said}: install it on each machine, before the job", Severity.WARNING
        else:
            message, severity = "installs packages; the script leaves it out: install them once, before the job", None
        yield Finding(statement, message, edits, severity=severity)
    yield from _hollow(program)
    for number in (each.number for each in program.code_cells):
        for start, end in (*_loose_comments(program, number), *_only_comments(program, number)):
            said = "a comment on the installation; the script leaves it out"
            below = next((line for line in tree.module.body if tree.start(line) >= start), tree.module.body[-1])
            yield Finding(below, said, (Cut(start, end),))
    for statement, kept in program.installs.imports.items():
        names = ", ".join(tree.text(alias).rstrip(", ") for alias in kept)
        said = "imports what only the installation needs; the script leaves it out"
        yield Finding(statement, said, (Replace(statement, f"import {names}"),))


def _system_packages(program: Program, statement: cst.CSTNode) -> str:
    """What a statement has the system's package manager install, as it is written."""
    tree = program.tree
    forms = [form for call in tree.within(statement, cst.Call) if (form := program.form(call)) is not None]
    texts = [tree.text(statement), *(part for form in forms for part in (form.text, form.body or ""))]
    named = [word for text in texts for found in _SYSTEM.findall(text) for word in found.split() if word[0] != "-"]
    return ", ".join(dict.fromkeys(named))


def _hollow(program: Program) -> Iterator[Finding]:
    """Tests of which only the `else` is left (an `else` of which nothing is left goes with its last line)."""
    tree, removed = program.tree, program.installs.statements
    for test in tree.of(cst.If):
        other = test.orelse
        if test in removed or not isinstance(other, cst.Else):
            continue
        suites = [each.body for each in (test, other) if isinstance(each.body, cst.IndentedBlock)]
        if [all(line in removed for line in suite.body) for suite in suites] == [True, False]:
            edits = (
                Replace(test.test, f"not ({tree.text(test.test)})"),
                Cut(tree.line_start(tree.start(test.body.body[0])), tree.line_end(tree.start(other)) + 1),
            )
            yield Finding(test, _ONLY_INSTALLS, edits)


def _only_comments(program: Program, cell: int) -> Iterator[tuple[int, int]]:
    """A cell of comments alone above the import of Unsloth: what an install, or a header that has it, left behind."""
    start, end = program.cell_span(cell)
    text = program.tree.source[start:end].strip()
    is_comment = all(line.startswith("#") or not line.strip() for line in text.splitlines())
    if not text or not is_comment or _KEPT.search(text):
        return
    installs = program.installs.statements or program.notebook.metadata.dependencies
    if installs and end <= first_import(program.tree):
        yield start, end


def _loose_comments(program: Program, cell: int) -> Iterator[tuple[int, int]]:
    """Comments of an install cell that stand above no line of code, and its title."""
    tree = program.tree
    if not program.installs.is_install_cell(cell) or cell in program.installs.cells:
        return
    start, end = program.cell_span(cell)
    code = [tree.span(line) for line in tree.module.body if start <= tree.start(line) < end]
    begin = at = start
    while at < end:
        line = tree.source[at : tree.line_end(at)]
        after = tree.line_end(at) + 1
        if not line.startswith("#") or any(a <= at < b for a, b in code):
            begin = after
        elif line.replace(" ", "").startswith("#@title"):
            after += tree.source.startswith("\n", after)
            yield at, after
            begin = after
        elif not tree.source[after : tree.line_end(after)].strip() or after >= end:
            yield begin, after
            begin = after
        at = after


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
import os
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
        Example(
            """\
# @title Installation

# transformers 5 needs these
!pip install unsloth
import sys, torch
if torch.cuda.get_device_capability()[0] >= 8:
    !pip install flash-attn
else:
    os.environ["FLA_TILELANG"] = "0"
# the old ones are still in memory
for m in list(sys.modules):
    if "PIL" in m or "google" in m:
        sys.modules.pop(m)
try:
    import numpy; kept = f"numpy=={numpy.__version__}"
except ImportError:
    kept = ""
kept = kept or "numpy"
!pip install {kept}
# %%
%%bash
set -e
# the GPU's own build
TAG="$(nvidia-smi | awk '{print $1}')"
[ -n "$TAG" ] || { echo "no GPU"; exit 1; }
case "$TAG" in
  a*) T=a ;;
  *) T=b ;;
esac
python -m pip install -U torch \\
    --index-url "https://example.com/${T}"
""",
            """\
import torch
if not (torch.cuda.get_device_capability()[0] >= 8):
    os.environ["FLA_TILELANG"] = "0"
# %%
""",
        ),
        Example(
            """\
trainer.train()
# %%
!pip install rouge-score
from rouge_score import rouge_scorer
scorer = rouge_scorer.RougeScorer(["rougeL"])
for row in rows:
    print(scorer.score(row["answer"], ask(row["question"])))
""",
            """\
trainer.train()
# %%
from rouge_score import rouge_scorer
scorer = rouge_scorer.RougeScorer(["rougeL"])
for row in rows:
    print(scorer.score(row["answer"], ask(row["question"])))
""",
        ),
        Example(
            """\
import os, re
!pip install unsloth
import torch; torch._dynamo.config.recompile_limit = 64
def kind(path):
    return re.sub("[.].*", "", os.path.basename(path))
# %%
!pip install trl
import os, json
# %%
import os, torch
print(kind(os.getcwd()), json.dumps(torch.__version__))
""",
            """\
import os, re
import torch; torch._dynamo.config.recompile_limit = 64
def kind(path):
    return re.sub("[.].*", "", os.path.basename(path))
# %%
import json
# %%
import os, torch
print(kind(os.getcwd()), json.dumps(torch.__version__))
""",
        ),
        Example(
            """\
!pip install unsloth
# %%
# the release, not a moving main
# (--no-deps is deliberate)
# %%
# os.environ["HF_TOKEN"] = "..."
# %%
from unsloth import FastModel
# %%
# the model
""",
            """\
# %%
# %%
# os.environ["HF_TOKEN"] = "..."
# %%
from unsloth import FastModel
# %%
# the model
""",
        ),
        Example('print("pip install unsloth")\n'),
        Example(
            """\
import subprocess
done = subprocess.run(["pip", "install", "unsloth"])
if done.returncode:
    raise SystemExit("no packages")
subprocess.run(["pip", "install", "trl"])
""",
            """\
import subprocess
done = subprocess.run(["pip", "install", "unsloth"])
if done.returncode:
    raise SystemExit("no packages")
""",
        ),
    ),
)
