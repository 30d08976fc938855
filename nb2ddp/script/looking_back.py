"""The cells of a notebook that only look at what was trained, for a process that did not train it.

They come after the last training, and write, save and train nothing. What they need is loaded from where the notebook
saves the model, or is code of the notebook that makes nothing anew: imports, functions, constants.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import quoted
from nb2ddp.notebook.magics import PLACEHOLDER
from nb2ddp.notebook.python import Names, names
from nb2ddp.syntax.tree import argument, keyword

#: What does more than look: it writes, sends, trains, or is IPython's.
_ACTS = re.compile(
    r"\b(save|push|train|evaluate|predict|merge|export|map|write|upload|quantize|patch|add|resize|cast)\w*\("
    r"|\bto_(csv|json|parquet|disk)\(|\bopen\(|\binput\(|__ipython__|\btrainer\b|\bload_\w+\(|subprocess|\bos\.system"
)
#: A call that a constant may be made by.
_PURE = re.compile(r"\b(get_chat_template|TextStreamer|dedent|strip|join)$")


@dataclass(frozen=True)
class _Statement:
    text: str
    node: ast.stmt
    names: Names
    start: int  #: offset in the notebook's source

    def holds(self, offset: int) -> bool:
        """True for an offset within the statement."""
        return self.start <= offset < self.start + len(self.text)


def looking_cells(program: Program) -> list[str]:
    """The sources of cells to run after the script: what they need first; none where nothing can be looked at."""
    saved, load = _saved(program), next(iter(program.loads), None)
    statements = list(_statements(program))
    loading = next((s for s in statements if load is not None and s.holds(program.tree.start(load))), None)
    if saved is None or load is None or loading is None or not program.training.is_before_end(load):
        return []
    available = [s for s in statements if s.start < program.training.end]
    chosen = _needed(loading.names.reads, available[: available.index(loading)], loading)
    cells, ran = [], set[int]()
    for cell in program.code_cells:
        start, end = program.cell_span(cell.number)
        own = [s for s in statements if start <= s.start < end]
        source = program.tree.source[start:end].strip("\n")
        if start < program.training.end or _ACTS.search(source) or all(map(_is_off, own)):
            continue
        needed = _needed(names(source).reads - {saved[0]}, available, loading, ran)
        if needed is not None and chosen is not None:
            chosen |= needed
            cells.append(source)
            available += own
            ran |= {s.start for s in own}
    if not cells or chosen is None:
        return []
    wanted = [s for s in statements if s.start in chosen or s is loading]
    first = [_from_folder(program, s, load, *saved) if s is loading else s.text for s in wanted]
    return ["\n".join(first), *cells]


def _saved(program: Program) -> tuple[str, str] | None:
    """The model that the notebook saves after training, by its name, and the folder that it saves it in."""
    tree = program.tree
    for call in tree.of(cst.Call):
        if program.training.is_before_end(call) or not tree.is_live(call) or not call.args:
            continue
        owner, _, method = tree.text(call.func).rpartition(".")
        folder = tree.literal(call.args[0].value)
        if method == "save_pretrained" and re.fullmatch(r"\w*model\w*", owner) and isinstance(folder, str):
            return owner, folder
    return None


def _is_off(statement: _Statement) -> bool:
    """True for `if False:`, which published notebooks have around what a reader may want."""
    test = statement.node.test if isinstance(statement.node, ast.If) else None
    return isinstance(test, ast.Constant) and not test.value


def _statements(program: Program) -> Iterator[_Statement]:
    """The notebook's statements that stand in no block; several on one line count as one."""
    source = program.tree.source
    starts = [0, *(match.end() for match in re.finditer("\n", source))]
    done = -1
    for node in ast.parse(source).body:
        start, end = starts[node.lineno - 1], starts[node.end_lineno or node.lineno]
        if start > done:
            text = source[start:end].rstrip("\n")
            yield _Statement(text, node, names(text), start)
        done = start


def _needed(
    reads: frozenset[str], available: list[_Statement], loading: _Statement, ran: Set[int] = frozenset()
) -> set[int] | None:
    """Where the statements begin that bind what some code reads; None where one of them does more than that.

    Args:
        reads: the names.
        available: the statements that stand above the code.
        loading: the one that loads the model.
        ran: where those begin that have run already.
    """
    chosen: set[int] = set()
    pending = [(name, len(available)) for name in sorted(reads)]
    while pending:
        name, before = pending.pop()
        at = next((n for n in reversed(range(before)) if name in available[n].names.defines), None)
        if at is None or available[at].start in ran:
            continue  # a builtin, or there
        statement = available[at]
        if statement is not loading and not _makes_nothing(statement):
            return None
        if statement.start not in chosen:
            chosen.add(statement.start)
            pending += [(each, at) for each in sorted(statement.names.reads)]
    return chosen


def _makes_nothing(statement: _Statement) -> bool:
    """True for an import, a function, a class, and a constant."""
    if PLACEHOLDER in statement.text:
        return False
    if isinstance(statement.node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)):
        return True
    calls = [ast.unparse(node.func) for node in ast.walk(statement.node) if isinstance(node, ast.Call)]
    return isinstance(statement.node, ast.Assign) and all(_PURE.search(call) for call in calls)


def _from_folder(program: Program, loading: _Statement, load: cst.Call, model: str, folder: str) -> str:
    """The notebook's load, from the folder that the script saved the model in."""
    tree = program.tree
    passed = argument(load, "model_name", 0) or keyword(load, "pretrained_model_name_or_path")
    if passed is None:
        return loading.text
    start, end = (offset - loading.start for offset in tree.span(passed.value))
    text = loading.text[:start] + quoted(folder) + loading.text[end:]
    targets = [name for name in sorted(loading.names.defines) if "model" in name]
    return text if model in loading.names.defines or not targets else f"{text}\n{model} = {targets[0]}"
