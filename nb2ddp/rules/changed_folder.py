"""DDP321: After `%cd` and `os.chdir`, imports that may be from the folder get a warning."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.environment import packages_of
from nb2ddp.facts.program import Program
from nb2ddp.notebook.magics import Kind
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.script.modules import ON_COLAB, ON_INDEX, is_published

_SAID = "IPython imports from the folder it is in, a script from its own: add sys.path.insert(0, os.getcwd()) below"


@rule("DDP321", Severity.WARNING)
def import_from_changed_folder(program: Program) -> Iterator[Finding]:
    changes = [call for call, form in program.forms_of(Kind.LINE_MAGIC) if form.name in ("cd", "pushd")]
    changes += program.execution.calls("os.chdir")
    for call in changes if "sys.path" not in program.text else ():
        if program.tree.function(call) is None and program.tree.is_live(call) and _imports_below(program, call):
            yield Finding(call, _SAID)


def _imports_below(program: Program, call: cst.CSTNode) -> list[cst.Import | cst.ImportFrom]:
    """The imports below a change of folder of what is no known package."""
    tree, sources = program.tree, [cell.source for cell in program.code_cells]
    lines: list[cst.Import | cst.ImportFrom] = [*tree.live(cst.Import), *tree.live(cst.ImportFrom)]

    def is_known(name: str) -> bool:
        return name in ON_COLAB | ON_INDEX or is_published(name, sources)

    below = (line for line in lines if tree.start(line) > tree.start(call))
    return [line for line in below if not all(map(is_known, packages_of(line)))]
