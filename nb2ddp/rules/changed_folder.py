"""DDP321: After `%cd` and `os.chdir`, the folder is added to `sys.path` if imports follow that may be from it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.environment import packages_of
from nb2ddp.facts.program import Program
from nb2ddp.facts.texts import filled, spelled
from nb2ddp.notebook.magics import Kind
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.script.modules import ON_COLAB, ON_INDEX, is_published
from nb2ddp.syntax.edits import InsertAfter
from nb2ddp.syntax.tree import small_statements

_SAID = "IPython imports from the folder it is in, a script from its own; the script adds this folder to sys.path"

_ADDS = re.compile(r"sys\.path\.(append|insert)")
#: The current folder, as code names it.
_CURRENT = re.compile(r"(str\()?(os\.getcwd|(pathlib\.)?Path\.cwd)\(\)\)?|['\"]\.?['\"]")


@rule("DDP321")
def import_from_changed_folder(program: Program) -> Iterator[Finding]:
    tree = program.tree
    changes = [call for call, form in program.forms_of(Kind.LINE_MAGIC) if form.name in ("cd", "pushd")]
    changes += program.execution.calls("os.chdir")
    for call in changes:
        line = tree.statement(call)
        alone = program.alone(call) is not None and len(small_statements(line)) == 1
        is_certain = tree.function(call) is None and tree.is_live(call)
        below = _imports_below(program, call) if alone and is_certain else []
        later = [tree.start(other) for other in changes if tree.start(other) > tree.start(call)]
        ends = min(map(tree.start, below), default=0), min(later, default=len(tree.source))
        if below and not _adds_below(program, line) and not _adds(program, call, *ends):
            yield Finding(call, _SAID, (InsertAfter(line, "sys.path.insert(0, os.getcwd())"),))


def _imports_below(program: Program, call: cst.CSTNode) -> list[cst.Import | cst.ImportFrom]:
    """The imports below a change of folder of what is no known package."""
    tree, sources = program.tree, [cell.source for cell in program.code_cells]
    lines: list[cst.Import | cst.ImportFrom] = [*tree.live(cst.Import), *tree.live(cst.ImportFrom)]

    def is_known(name: str) -> bool:
        return name in ON_COLAB | ON_INDEX or is_published(name, sources)

    below = (line for line in lines if tree.start(line) > tree.start(call))
    return [line for line in below if not all(map(is_known, packages_of(line)))]


def _adds_below(program: Program, line: cst.CSTNode) -> bool:
    """True where the notebook's next line adds a folder itself."""
    suite = list(getattr(program.tree.parents[line], "body", ()))
    below = suite[suite.index(line) + 1 :][:1]
    return any("sys.path" in program.tree.text(line) for line in below)


def _adds(program: Program, change: cst.Call, imports: int, leaves: int) -> bool:
    """True where the notebook adds the folder that it changes to before it imports from there.

    By a path from the root, or as the current folder before it leaves it.
    """
    tree, form = program.tree, program.execution.source.form(change)
    entered = [filled(tree, form.text.strip(" '\""))] if form is not None else []
    entered = entered or [text for each in change.args[:1] for text in spelled(tree, each.value)]
    for call in program.execution.calls(_ADDS):
        if not call.args:
            continue
        tests = (above for above in tree.ancestors(call) if isinstance(above, (cst.If, cst.Try, cst.FunctionDef)))
        is_certain = all(isinstance(each, cst.If) and "sys.path" in tree.text(each.test) for each in tests)
        texts = spelled(tree, call.args[-1].value)
        named = [text.rstrip("/") for text in texts if re.fullmatch(r"[/~][^*]+", text)]
        is_here = tree.start(change) < tree.start(call) < leaves and _CURRENT.fullmatch(tree.text(call.args[-1].value))
        is_it = is_here or (named and named == [text.rstrip("/") for text in entered])
        if is_certain and is_it and tree.start(call) < imports:
            return True
    return False
