"""DDP321: After `%cd` and `os.chdir`, the folder is added to `sys.path` if imports follow that may be from it.

IPython imports modules from the working directory, a script from its own folder. After `%cd clone`, an import from the
clone would fail. Python's own modules and known packages are not from there.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.environment import packages_of
from nb2ddp.facts.program import Program
from nb2ddp.notebook.magics import Kind
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.script.modules import ON_COLAB, ON_INDEX, is_published
from nb2ddp.syntax.edits import InsertAfter
from nb2ddp.syntax.tree import small_statements

_SAID = "IPython imports from the folder it is in, a script from its own; the script adds this folder to sys.path"


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    changes = [call for call, form in program.forms_of(Kind.LINE_MAGIC) if form.name in ("cd", "pushd")]
    for call in [*changes, *program.execution.calls("os.chdir")]:
        line = tree.statement(call)
        alone = program.alone(call) is not None and len(small_statements(line)) == 1
        is_certain = tree.function(call) is None and tree.is_live(call)
        if alone and is_certain and _imports_below(program, call) and not _adds_below(program, line):
            yield Finding(call, _SAID, (InsertAfter(line, "sys.path.insert(0, os.getcwd())"),))


def _imports_below(program: Program, call: cst.CSTNode) -> bool:
    """True where something is imported below a change of folder that is no known package."""
    tree, sources = program.tree, [cell.source for cell in program.code_cells]
    lines: list[cst.Import | cst.ImportFrom] = [*tree.live(cst.Import), *tree.live(cst.ImportFrom)]
    names = {name for line in lines if tree.start(line) > tree.start(call) for name in packages_of(line)}
    return not all(name in ON_COLAB | ON_INDEX or is_published(name, sources) for name in names)


def _adds_below(program: Program, line: cst.CSTNode) -> bool:
    """True where the notebook's next line adds a folder itself."""
    suite = list(getattr(program.tree.parents[line], "body", ()))
    below = suite[suite.index(line) + 1 :][:1]
    return any("sys.path" in program.tree.text(line) for line in below)


RULE = Rule(
    name="import-from-changed-folder",
    find=find,
    examples=(
        Example(
            "%cd clone\nfrom profiler import Profiler\n",
            "%cd clone\nsys.path.insert(0, os.getcwd())\nfrom profiler import Profiler\n",
        ),
        Example(
            "import os, sys\nfolder = 'clone'\nif folder:\n    os.chdir(folder)\nimport profiler\n",
            "import os, sys\nfolder = 'clone'\nif folder:\n    os.chdir(folder)\n"
            "    sys.path.insert(0, os.getcwd())\nimport profiler\n",
        ),
        Example("import torch\n%cd clone\nprint(torch.__version__)\n"),
        Example("%cd data\nimport json\nfrom datasets import load_dataset\n"),
        Example("%cd clone\nsys.path.insert(0, '.')\nimport profiler\n"),
    ),
)
