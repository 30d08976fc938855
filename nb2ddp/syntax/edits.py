"""Edits that rules ask for, and their application to the source in one step.

A rule names nodes of the untouched tree; here they become replacements of text. What no edit names stays byte
for byte, edits inside one another compose, and nothing is parsed again.
"""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import libcst as cst

from nb2ddp.syntax.tree import Statement, Tree, head, keyword, small_statements

INDENT = "    "
_LONG_STRING = re.compile(r'("""|\'\'\').*?\1', re.DOTALL)


@dataclass(frozen=True)
class Replace:
    """Put other text in the place of a node."""

    node: cst.CSTNode
    text: str


@dataclass(frozen=True)
class Wrap:
    """Put text on both sides of a node."""

    node: cst.CSTNode
    before: str
    after: str


@dataclass(frozen=True)
class SetKeyword:
    """Pass `name = value` to a call, in the style of its other arguments, replacing what is passed under it."""

    call: cst.Call
    name: str
    value: str


@dataclass(frozen=True)
class SetUnpacked:
    """Add `name: value` to what a call unpacks: `**settings` becomes `**{**settings, "name": value}`."""

    argument: cst.Arg
    name: str
    value: str


@dataclass(frozen=True)
class InsertBefore:
    """Put lines above a statement, at its indentation, below the comments that stand above it."""

    statement: Statement
    text: str


@dataclass(frozen=True)
class InsertAfter:
    """Put lines below a statement, at its indentation."""

    statement: Statement
    text: str


@dataclass(frozen=True)
class Remove:
    """Take a statement out. A comment beside it stays, on a line of its own, unless it is to go too.

    `comment` is one that IPython syntax holds, which stands for the statement.
    """

    statement: cst.BaseSmallStatement | Statement
    keep_comment: bool = True
    comment: str = ""


@dataclass(frozen=True)
class Cut:
    """Take whole lines out, by their offsets: comments that go with a statement, or all of a cell."""

    start: int
    end: int


@dataclass(frozen=True)
class Guard:
    """Put neighbouring statements under a header, then optionally a line below them.

    `Guard(a, b, "if local_rank == 0", "wait()")` writes `if local_rank == 0:` above `a`, indents `a` to `b`, and
    writes `wait()` below.
    """

    first: Statement
    last: Statement
    header: str
    after: str = ""
    waits: bool = True  #: other processes wait until they are done, here or further down


Edit = Replace | Wrap | SetKeyword | SetUnpacked | InsertBefore | InsertAfter | Remove | Cut | Guard


class Shape(Enum):
    """How the text of a change sits in the lines around it."""

    INLINE = "inside a line"
    ABOVE = "whole lines above a statement"
    HEADER = "a guard's line above what it guards"
    BELOW = "whole lines below a statement"
    GONE = "a removal"


@dataclass(frozen=True, order=True)
class Change:
    """Replace `source[start:end]` by `text`.

    Attributes:
        order: of insertions at one place: what belongs to an inner statement comes before what follows an outer one.
        owner: the span of the statement or node that the change belongs to.
    """

    start: int
    end: int
    order: tuple[int, int]
    text: str
    owner: tuple[int, int]
    shape: Shape = field(default=Shape.INLINE, compare=False)


def resolve(tree: Tree, edits: Iterable[Edit], cells: Sequence[int] = ()) -> list[Change]:
    """Turn edits into changes of the source that do not overlap, in source order.

    An edit inside text that another edit replaces or removes is dropped.

    Args:
        tree: the untouched parse.
        edits: what rules ask for, in order.
        cells: the offsets at which cells begin; no guard reaches from one into the next.
    """
    edits = list(dict.fromkeys(edits))
    changes: list[Change] = []

    def change(
        start: int, end: int, text: str, owner: tuple[int, int], shape: Shape = Shape.INLINE, rank: int = 0
    ) -> None:
        changes.append(Change(start, end, (rank, len(changes)), text, owner, shape))

    for edit in edits:
        for made in _changes(tree, edit):
            change(*made)
    for made in (*_unpack(tree, edits), *_keywords(tree, edits)):
        change(*made)
    removals = [edit for edit in edits if isinstance(edit, Remove)]
    for start, end, text in _remove(tree, removals, [c.start for c in changes if c.shape is not Shape.INLINE]):
        change(start, end, text, (start, end), Shape.GONE)
    gone = {_whole(tree, removal.statement) for removal in removals}
    guards = [edit for edit in edits if isinstance(edit, Guard)]
    guards = [guard for guard in guards if guard.first not in gone or guard.first is not guard.last]
    return _guarded(tree, _outermost(changes), _merged(tree, guards, cells))


#: Start, end and text of a change, the span it belongs to, its shape and its rank.
_Made = tuple[int, int, str, tuple[int, int], Shape, int]


def _changes(tree: Tree, edit: Edit) -> Iterator[_Made]:
    """The changes of an edit that concerns nothing but its own place."""
    if isinstance(edit, Replace):
        yield *tree.span(edit.node), edit.text, tree.span(edit.node), Shape.INLINE, 0
    elif isinstance(edit, Wrap):
        start, end = tree.span(edit.node)
        yield start, start, edit.before, (start, end), Shape.INLINE, 0
        yield end, end, edit.after, (start, end), Shape.INLINE, 0
    elif isinstance(edit, InsertBefore):
        start, indent = _line_of(tree, edit.statement)
        yield start, start, _block(edit.text, indent), tree.span(edit.statement), Shape.ABOVE, 0
    elif isinstance(edit, InsertAfter):
        _, indent = _line_of(tree, edit.statement)
        end = tree.line_end(_code_end(tree, edit.statement))
        text = "\n" + _block(edit.text, indent)[:-1]
        yield end, end, text, tree.span(edit.statement), Shape.BELOW, _rank(tree, edit.statement)
    elif isinstance(edit, Cut) and edit.start < edit.end:
        yield edit.start, edit.end, "", (edit.start, edit.end), Shape.GONE, 0


def _unpack(tree: Tree, edits: list[Edit]) -> Iterator[_Made]:
    """The changes that add to what calls unpack."""
    unpacked: dict[cst.Arg, list[SetUnpacked]] = defaultdict(list)
    for edit in edits:
        if isinstance(edit, SetUnpacked):
            unpacked[edit.argument].append(edit)
    for argument, added in unpacked.items():
        items = "".join(f', "{item.name}": {item.value}' for item in added)
        start, end = tree.span(argument.value)
        if isinstance(argument.value, cst.Dict) and argument.value.elements:
            end = tree.span(argument.value.elements[-1])[1]
        else:
            yield start, start, "{**", tree.span(argument), Shape.INLINE, 0
            items += "}"
        yield end, end, items, tree.span(argument), Shape.INLINE, 0


def _keywords(tree: Tree, edits: list[Edit]) -> Iterator[_Made]:
    """The changes that pass keywords to calls, the first that is asked for under each name."""
    keywords: dict[cst.Call, dict[str, SetKeyword]] = defaultdict(dict)
    for edit in edits:
        if isinstance(edit, SetKeyword):
            keywords[edit.call].setdefault(edit.name, edit)
    for call, sets in keywords.items():
        for start, end, text in _set_keywords(tree, call, list(sets.values())):
            yield start, end, text, tree.span(call), Shape.INLINE, 0


def _rank(tree: Tree, statement: cst.CSTNode) -> int:
    """Where text below a statement goes among texts at the same place: below an inner statement first."""
    return 1000 - sum(1 for _ in tree.ancestors(statement))


def apply(source: str, changes: Sequence[Change], start: int = 0, end: int | None = None) -> str:
    """Carry out those changes, of all in their order, that lie in `source[start:end]` and return that part."""
    end = len(source) if end is None else end
    low, high = (bisect.bisect_left(changes, at, key=lambda change: change.start) for at in (start, end))
    parts, at = [], start
    for change in changes[low:high]:
        parts += [source[at : change.start], change.text]
        at = change.end
    return "".join([*parts, source[at:end]])


def _line_of(tree: Tree, statement: cst.CSTNode) -> tuple[int, str]:
    """The start of the line a statement begins on, and that line's indentation."""
    offset = tree.start(head(statement))
    start = tree.line_start(offset)
    line = tree.source[start:offset]
    return start, line[: len(line) - len(line.lstrip())]


def _code_end(tree: Tree, statement: cst.CSTNode) -> int:
    """The end of a statement's last piece of code, without comments that trail its block."""
    body = getattr(statement, "body", None)
    if isinstance(statement, cst.BaseCompoundStatement):
        for part in ("finalbody", "orelse"):
            if getattr(statement, part, None) is not None:
                return _code_end(tree, getattr(statement, part))
        handlers = getattr(statement, "handlers", ())
        if handlers:
            return _code_end(tree, handlers[-1])
        if isinstance(statement, cst.Match):
            return _code_end(tree, statement.cases[-1])
        return _code_end(tree, statement.body)
    if isinstance(statement, (cst.Else, cst.Finally, cst.ExceptHandler, cst.ExceptStarHandler, cst.MatchCase)):
        return _code_end(tree, statement.body)
    if isinstance(statement, cst.IndentedBlock) and body:
        return _code_end(tree, statement.body[-1])
    return tree.span(statement)[1]


def _block(text: str, indent: str) -> str:
    return "".join(f"{indent}{line}".rstrip() + "\n" for line in text.split("\n"))


def _set_keywords(tree: Tree, call: cst.Call, sets: list[SetKeyword]) -> Iterator[tuple[int, int, str]]:
    new = []
    for item in sets:
        passed = keyword(call, item.name)
        if passed is not None:
            yield *tree.span(passed.value), item.value
        else:
            new.append(item)
    if not new:
        return
    named = [a for a in call.args if a.keyword is not None]
    equal = " = " if named and tree.source[tree.span(named[-1].keyword)[1]] == " " else "="  # type: ignore[arg-type]
    width = _table_width(tree, named) if equal != "=" else 0
    written = [f"{item.name:<{width}}{equal}{item.value}" for item in new]
    if not call.args:
        at = tree.span(call)[1] - 1
        yield at, at, ", ".join(written)
        return
    last = call.args[-1]
    start, end = tree.span(last)
    comma = tree.span(last.comma)[1] if isinstance(last.comma, cst.Comma) else None
    lead = tree.source[tree.line_start(start) : start]
    after = end if comma is None else comma
    rest = tree.source[after : tree.line_end(after)].strip()
    if lead.strip():  # the last argument shares its line with others
        yield after, after, (" " if comma else ", ") + ", ".join(written) + ("," if comma else "")
        return
    below = "".join(f"\n{lead}{text}," for text in written)
    if rest and not rest.startswith("#"):  # the closing bracket follows on the same line
        yield after, after, ("" if comma else ",") + (below if comma else below[:-1])
        return
    if comma is None:
        yield end, end, ","
    at = tree.line_end(after)
    while at > after and tree.source[at - 1] in " \t":
        at -= 1
    yield at, at, below if comma else below[:-1]


def _table_width(tree: Tree, named: list[cst.Arg]) -> int:
    """How wide names are written in arguments whose equal signs stand below each other; 0 where they do not."""
    widths = set()
    for argument in named:
        start, end = tree.span(cst.ensure_type(argument.keyword, cst.Name))
        if tree.source[tree.line_start(start) : start].strip():
            return 0
        widths.add((tree.source.index("=", end) - start - 1, end - start))
    columns = {column for column, _ in widths}
    return columns.pop() if len(columns) == 1 and len(widths) > 1 else 0


def _remove(tree: Tree, removals: list[Remove], added: list[int]) -> Iterator[tuple[int, int, str]]:
    """Removals line by line; a suite that loses all its statements keeps a `pass`, but an `else` goes with them.

    It stays where other edits add text to it, at some offsets.
    """
    removals = list({removal.statement: removal for removal in removals}.values())  # rules may ask for the same
    gone = {_whole(tree, r.statement): r for r in removals}
    partly: dict[cst.CSTNode, list[Remove]] = defaultdict(list)
    for removal in removals:
        owner = tree.parents[removal.statement]
        if isinstance(removal.statement, cst.BaseSmallStatement):
            partly[owner].append(removal)
    for owner, group in partly.items():
        if len(group) == len(small_statements(owner)):
            gone[owner] = group[0]
        elif owner in gone:
            del gone[owner]
    for owner, group in partly.items():
        if owner not in gone:
            yield from _remove_small(tree, owner, group)
    branches = _empty_branches(tree, {node for node, each in gone.items() if not _comment(tree, node, each)}, added)
    for start, end in branches:
        yield start, end, ""
    for statement, removal in gone.items():
        suite = tree.parents.get(statement)
        if any(start <= tree.start(statement) < end for start, end in branches):
            continue
        if isinstance(statement, cst.SimpleStatementSuite):
            yield *tree.span(statement), "pass"
            continue
        emptied = isinstance(suite, cst.IndentedBlock) and all(s in gone for s in suite.body)
        start, indent = _line_of(tree, statement)
        end = tree.line_end(_code_end(tree, statement))
        comment = _comment(tree, statement, removal)
        kept = f"{indent}{comment}\n" if comment else ""
        if emptied and suite.body[0] is statement:  # type: ignore[union-attr]
            yield start, end, f"{kept}{indent}pass"
            continue
        if not kept:
            end = _blank_run(tree, start, end)
        yield start, min(end + 1, len(tree.source)), kept


def _comment(tree: Tree, statement: cst.CSTNode, removal: Remove) -> str:
    """The comment that stays where a statement goes; empty where there is none."""
    end = _code_end(tree, statement)
    comment = removal.comment or tree.source[end : tree.line_end(end)].strip().lstrip(";").strip()
    return comment if comment.startswith("#") and removal.keep_comment else ""


def _empty_branches(tree: Tree, gone: set[cst.CSTNode], added: list[int]) -> list[tuple[int, int]]:
    """The lines of each `else` all of whose statements are gone."""
    found = []
    for branch in tree.of(cst.Else):
        if isinstance(branch.body, cst.IndentedBlock) and all(statement in gone for statement in branch.body.body):
            start = tree.line_start(tree.start(branch))
            end = min(tree.line_end(_code_end(tree, branch)) + 1, len(tree.source))
            found += [(start, end)] if not any(start <= offset < end for offset in added) else []
    return found


def _whole(tree: Tree, statement: cst.CSTNode) -> cst.CSTNode:
    return tree.parents[statement] if isinstance(statement, cst.BaseSmallStatement) else statement


def _remove_small(tree: Tree, owner: cst.CSTNode, group: list[Remove]) -> Iterator[tuple[int, int, str]]:
    """Take some of the statements of `a; b; c` out."""
    statements = small_statements(owner)
    for removal in group:
        index = list(statements).index(removal.statement)  # type: ignore[arg-type]
        start, end = tree.span(statements[index])
        if index + 1 < len(statements):
            end = tree.start(statements[index + 1])
        else:
            kept = [s for s in statements if s not in [r.statement for r in group]]
            start = tree.span(kept[-1])[1]
        yield start, end, ""


def _blank_run(tree: Tree, start: int, end: int) -> int:
    """Extend a removed line over the blank line below it where one stands above it too."""
    source = tree.source
    above = source[:start].endswith("\n\n") or start == 0
    below = source.startswith("\n\n", end)
    return end + 1 if above and below else end


def _outermost(changes: list[Change]) -> list[Change]:
    """Drop changes that lie inside the text another one replaces."""
    kept: list[Change] = []
    widest: Change | None = None  # of those that replace text, the one that reaches furthest
    for change in sorted(changes, key=lambda c: (c.start, -c.end, c.order)):
        if widest is None or not _covers(widest, change):
            kept.append(change)
            if change.end > change.start and (widest is None or change.end > widest.end):
                widest = change
    return sorted(kept)


def _covers(outer: Change, inner: Change) -> bool:
    """True where `outer` replaces the text that `inner` changes; an insertion beside it is not covered."""
    if inner.start == inner.end:
        return outer.start < inner.start < outer.end
    return outer.start <= inner.start and inner.end <= outer.end


def _merged(tree: Tree, guards: list[Guard], cells: Sequence[int]) -> list[Guard]:
    """One guard for neighbouring statements of a cell under the same header."""
    merged: list[Guard] = []
    for guard in sorted(dict.fromkeys(guards), key=lambda g: tree.start(g.first)):
        last = merged[-1] if merged else None
        alike = last is not None and (last.header, last.after) == (guard.header, guard.after)
        if last is not None and alike and _follows(tree, last, guard, cells):
            merged[-1] = Guard(last.first, guard.last, guard.header, guard.after)
        else:
            merged.append(guard)
    return merged


def _follows(tree: Tree, before: Guard, after: Guard, cells: Sequence[int]) -> bool:
    if bisect.bisect_right(cells, tree.start(before.last)) != bisect.bisect_right(cells, tree.start(after.first)):
        return False
    suite = tree.parents[before.last]
    statements = list(getattr(suite, "body", ()))
    return after.first in statements and statements.index(after.first) == statements.index(before.last) + 1


def _guarded(tree: Tree, changes: list[Change], guards: list[Guard]) -> list[Change]:
    """Add the guards, inner ones first: a header above, deeper lines, a line below."""
    spans = (tree.span(node) for kind in (cst.SimpleString, cst.FormattedString) for node in tree.of(kind))
    strings = sorted((start, end) for start, end in spans if "\n" in tree.source[start:end])
    for number, guard in enumerate(sorted(guards, key=lambda g: tree.span(g.last)[1] - tree.start(g.first))):
        start, indent = _line_of(tree, guard.first)
        end = tree.line_end(_code_end(tree, guard.last))
        low, high = (bisect.bisect_left(changes, at, key=lambda c: c.start) for at in (start, end + 1))
        inside = [span for span in strings if start <= span[0] <= end]
        order = len(changes) + 3 * number  # the header stands below what is inserted above the first statement
        made = _deeper_lines(tree, guard, (start, end), changes[low:high], inside, order)
        made.append(Change(start, start, (0, order), f"{indent}{guard.header}:\n", (start, end), Shape.HEADER))
        if guard.after:
            text = "\n" + _block(guard.after, indent)[:-1]
            rank = (_rank(tree, guard.last), order + 2)
            made.append(Change(end, end, rank, text, tree.span(guard.last), Shape.BELOW))
        changes[low:high] = sorted(made)
    return changes


def _deeper_lines(
    tree: Tree, guard: Guard, place: tuple[int, int], changes: list[Change], strings: list[tuple[int, int]], order: int
) -> list[Change]:
    """The changes of a guard's lines, indented with them, and one more for each line that is the notebook's own."""
    start, end = place
    first, last = tree.start(head(guard.first)), tree.span(guard.last)[1]
    tabs = [at.start() for at in re.compile(r"(?m)^\t").finditer(tree.source, start, end)]
    step = "\t" if any(not any(a < at < b for a, b in strings) for at in tabs) else INDENT
    made = [
        _deeper(change, step)
        if first <= change.owner[0]
        and change.owner[1] <= max(last, end + 1)
        and not (change.shape is Shape.ABOVE and change.start == start)
        else change
        for change in changes
    ]
    gone = [(c.start, c.end) for c in changes if c.shape is Shape.GONE]
    replaced = [(c.start, c.end) for c in changes if c.end > c.start]
    line = start
    while line <= end:
        text = tree.source[line : tree.line_end(line)]
        hidden = any(a < line < b for a, b in [*strings, *replaced]) or any(a <= line < b for a, b in gone)
        if text.strip() and not hidden:
            at = line + len(text) - len(text.lstrip())
            made.append(Change(at, at, (0, order + 1), step, (line, line)))
        line = tree.line_end(line) + 1
    return made


def _deeper(change: Change, step: str) -> Change:
    """Indent the lines that a change adds, except inside long strings."""
    whole_lines = change.shape in (Shape.ABOVE, Shape.HEADER) or (change.shape is Shape.GONE and change.text)
    text, end = (change.text.removesuffix("\n"), change.text[-1:] == "\n") if whole_lines else (change.text, False)
    starts = re.compile(r"((?:\A|\n)[ \t]*)(?=\S)" if whole_lines else r"(\n[ \t]*)(?=\S)")
    parts, at = [], 0
    for string in _LONG_STRING.finditer(text):
        parts += [_indented(text[at : string.start()], starts, at, step), string[0]]
        at = string.end()
    parts += [_indented(text[at:], starts, at, step), "\n" if end else ""]
    return replace(change, text="".join(parts))


def _indented(text: str, starts: re.Pattern[str], at: int, step: str) -> str:
    """Put one more level behind the indentation of each line that begins in a piece of new code."""
    return starts.sub(lambda m: m[1] + step if m[1].startswith("\n") or not at else m[1], text)
