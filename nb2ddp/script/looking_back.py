"""Find the cells after training that only inspect its results, for a process that did not train.

They come after the last training, and write, save and train nothing. They load the model from the
folder in which the notebook saves it, and repeat the notebook's imports, functions and constants.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import quoted
from nb2ddp.notebook.magics import PLACEHOLDER
from nb2ddp.notebook.python import Names, names
from nb2ddp.syntax.tree import Tree, argument, keyword, small_statements

#: What does more than look: it writes, sends, trains, or is IPython's.
_ACTS = re.compile(
    r"\b(save|push|train|evaluate|predict|merge|export|map|write|upload|quantize|patch|add|resize|cast)\w*\("
    r"|\bto_(csv|json|parquet|disk)\(|\bopen\(|\binput\(|__ipython__|\btrainer\b|\bload_\w+\(|subprocess|\bos\.system"
)
#: A call that a constant may be made by.
_PURE = re.compile(r"\b(get_chat_template|TextStreamer|dedent|strip|join)$")


def looking_cells(program: Program) -> list[str]:
    """Return the cells to run after the script, what they need first; empty if there are none."""
    tree, training = program.tree, program.training
    saved, load = _saved(program), next(iter(program.loads), None)
    if saved is None or load is None or not training.is_before_end(load):
        return []
    loading = tree.top_statement(load)
    known: dict[cst.CSTNode, Names] = {part: names(_text(tree, part)) for part in tree.module.body}
    available = [part for part in known if tree.start(part) < training.end]
    chosen = _needed(tree, known, known[loading].reads, available[: available.index(loading)], loading)
    cells, ran = [], set[cst.CSTNode]()
    for cell in program.code_cells:
        start, end = program.cell_span(cell.number)
        own = [part for part in known if start <= tree.start(part) < end]
        source = tree.source[start:end].strip("\n")
        used = names(source)  # none where this Python cannot read the cell
        if start < training.end or used == Names() or _ACTS.search(source) or all(_is_off(tree, part) for part in own):
            continue
        needed = _needed(tree, known, used.reads - {saved[0]}, available, loading, ran)
        if needed is not None and chosen is not None:
            chosen |= needed
            cells.append(source)
            available += own
            ran.update(own)
    if not cells or chosen is None:
        return []
    wanted = [part for part in known if part in chosen or part is loading]
    first = [_from_folder(program, part, load, *saved) if part is loading else _text(tree, part) for part in wanted]
    return ["\n".join(first), *cells]


def _saved(program: Program) -> tuple[str, str] | None:
    """Return the variable of the model that the notebook saves after training, and the folder."""
    tree = program.tree
    for call in tree.of(cst.Call):
        if program.training.is_before_end(call) or not tree.is_live(call) or not call.args:
            continue
        owner, _, method = tree.text(call.func).rpartition(".")
        folder = tree.literal(call.args[0].value)
        if method == "save_pretrained" and re.fullmatch(r"\w*model\w*", owner) and isinstance(folder, str):
            return owner, folder
    return None


def _is_off(tree: Tree, statement: cst.CSTNode) -> bool:
    """True for `if False:`, which published notebooks put around optional code."""
    return isinstance(statement, cst.If) and not tree.is_live(statement.body)


def _text(tree: Tree, statement: cst.CSTNode) -> str:
    """Return a top-level statement with the comment after it."""
    start, end = tree.span(statement)
    return tree.source[start : tree.line_end(end)]


def _needed(
    tree: Tree,
    known: Mapping[cst.CSTNode, Names],
    reads: frozenset[str],
    available: Sequence[cst.CSTNode],
    loading: cst.CSTNode,
    ran: Set[cst.CSTNode] = frozenset(),
) -> set[cst.CSTNode] | None:
    """Return the statements that bind the names that code reads; None if one does more than that.

    Args:
        tree: the notebook's code.
        known: its statements, with the names that each binds and reads.
        reads: the names.
        available: the statements above the code.
        loading: the statement that loads the model.
        ran: the statements that have run already.
    """
    chosen: set[cst.CSTNode] = set()
    pending = [(name, len(available)) for name in sorted(reads)]
    while pending:
        name, before = pending.pop()
        at = next((n for n in reversed(range(before)) if name in known[available[n]].defines), None)
        if at is None or available[at] in ran:
            continue  # a builtin, or there
        statement = available[at]
        if statement is not loading and not _makes_nothing(tree, statement):
            return None
        if statement not in chosen:
            chosen.add(statement)
            pending += [(read, at) for read in sorted(known[statement].reads)]
    return chosen


def _makes_nothing(tree: Tree, statement: cst.CSTNode) -> bool:
    """True for an import, a function, a class, or a constant."""
    if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
        return PLACEHOLDER not in tree.text(statement)
    smalls = small_statements(statement)
    calls = [tree.text(call.func) for call in tree.within(statement, cst.Call)]
    is_binding = bool(smalls) and all(isinstance(small, (cst.Import, cst.ImportFrom, cst.Assign)) for small in smalls)
    return is_binding and all(_PURE.search(call) for call in calls)


def _from_folder(program: Program, loading: cst.CSTNode, load: cst.Call, model: str, folder: str) -> str:
    """Return the notebook's load, with the folder in which the script saved the model."""
    tree = program.tree
    text = _text(tree, loading)
    passed = argument(load, "model_name", 0) or keyword(load, "pretrained_model_name_or_path")
    if passed is None:
        return text
    start, end = (offset - tree.start(loading) for offset in tree.span(passed.value))
    defines = names(text).defines
    targets = [name for name in sorted(defines) if "model" in name]
    text = text[:start] + quoted(folder) + text[end:]
    return text if model in defines or not targets else f"{text}\n{model} = {targets[0]}"
