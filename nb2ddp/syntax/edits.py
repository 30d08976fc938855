"""Edits that rules ask for, and their application to the source in one step.

A rule names nodes of the untouched tree; here they become replacements of text. What no edit names stays byte
for byte, edits inside one another compose, and nothing is parsed again.
"""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import libcst as cst

from nb2ddp.syntax.tree import Statement, Tree, head, keyword, small_statements

INDENT = "    "
#: The indentation of a line that is not blank; and comments and strings, whose lines are none.
_INDENTATION = re.compile(
    r"""^[ \t]*(?=\S)|\#.*|(?s:(\"{3}|'{3})(?:\\.|.)*?\1|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.MULTILINE
)

#: Comments that speak of no line below them: a licence, code that is switched off, marks of an editor.
_NO_WORDS = re.compile(
    r"(?i)copyright|licen[cs]e|^\s*#\s*(?!!)[\w.\[\]\"']+\s*(=|\(|import\b)|^\s*#\s*(@|%%|noqa|type:)", re.M
)


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
class InsertAbove:
    """Put lines above a statement and the comments that belong to it, at its indentation, within its cell."""

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

    With `comments_above` those above it go too, where nothing stands right below it that they may speak of.

    `comment` is one that IPython syntax holds, which stands for the statement.
    """

    statement: cst.BaseSmallStatement | Statement
    keep_comment: bool = True
    comment: str = ""
    comments_above: bool = False


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


@dataclass(frozen=True)
class AddToSetup:
    """Put lines into the script's setup block: at its end, or above all imports of packages."""

    text: str
    before_imports: bool = False


Edit = (
    Replace
    | Wrap
    | SetKeyword
    | SetUnpacked
    | InsertBefore
    | InsertAbove
    | InsertAfter
    | Remove
    | Cut
    | Guard
    | AddToSetup
)


def written(edit: Edit) -> list[str]:
    """The texts that an edit brings into a script."""
    return [text for text in vars(edit).values() if isinstance(text, str)]


@dataclass(frozen=True)
class Change:
    """Replace `source[start:end]` by `text`.

    Attributes:
        owner: the span of the statement or node that the change belongs to.
        rank: of insertions at one place: below 0 are lines above a statement, above 0 lines below one, where those that
            belong to an inner statement come before what follows an outer one.
    """

    start: int
    end: int
    text: str
    owner: tuple[int, int]
    rank: int = 0

    @property
    def place(self) -> tuple[int, int, int]:
        """What sorts changes; those of one place stay in the order in which they are made."""
        return self.start, self.end, self.rank


def resolve(tree: Tree, edits: Iterable[Edit], cells: Sequence[int] = ()) -> list[Change]:
    """Turn edits into changes of the source that do not overlap, in source order.

    An edit inside text that another edit replaces or removes is dropped.

    Args:
        tree: the untouched parse.
        edits: what rules ask for, in order.
        cells: the offsets at which cells begin; no guard reaches from one into the next.
    """
    edits = list(dict.fromkeys(edits))
    left_out = {edit.statement for edit in edits if isinstance(edit, Remove)}
    edits = [edit for edit in edits if not (isinstance(edit, Wrap) and edit.node in left_out)]
    changes = [change for edit in edits for change in _changes(tree, edit, cells)]
    changes += [*_unpack(tree, edits), *_keywords(tree, edits)]
    removals = {edit.statement: edit for edit in edits if isinstance(edit, Remove)}
    added = [change.start for change in changes if change.rank]
    gone = _gone(tree, removals.values(), added)
    changes += _remove(tree, removals.values(), gone, added, cells)
    guards = [edit for edit in edits if isinstance(edit, Guard)]
    guards = [guard for guard in guards if guard.first not in gone or guard.first is not guard.last]
    return _guarded(tree, _without_loose_blanks(tree.source, _outermost(changes), cells), _merged(tree, guards, cells))


def _changes(tree: Tree, edit: Edit, cells: Sequence[int]) -> Iterator[Change]:
    """The changes of an edit that concerns nothing but its own place."""
    if isinstance(edit, Replace):
        yield Change(*tree.span(edit.node), edit.text, tree.span(edit.node))
    elif isinstance(edit, Wrap):
        start, end = tree.span(edit.node)
        yield Change(start, start, edit.before, (start, end))
        yield Change(end, end, edit.after, (start, end))
    elif isinstance(edit, InsertBefore):
        start, indent = _line_of(tree, edit.statement)
        yield Change(start, start, _block(edit.text, indent), tree.span(edit.statement), rank=-1)
    elif isinstance(edit, InsertAbove):
        start, indent = _line_of(tree, edit.statement)
        cell = max((each for each in cells if each <= start), default=0)
        start = max(tree.comments_above(edit.statement), cell)
        yield Change(start, start, _block(edit.text, indent), tree.span(edit.statement), rank=-1)
    elif isinstance(edit, InsertAfter):
        yield _below(tree, edit.statement, edit.text)
    elif isinstance(edit, Cut) and edit.start < edit.end:
        yield _removal(edit.start, edit.end)


def _below(tree: Tree, statement: Statement, text: str) -> Change:
    """Lines below a statement, at its indentation; at one place those below an inner statement come first."""
    end, depth = tree.line_end(_code_end(tree, statement)), sum(1 for _ in tree.ancestors(statement))
    lines = "\n" + _block(text, _line_of(tree, statement)[1])[:-1]
    return Change(end, end, lines, tree.span(statement), rank=1000 - depth)


def _removal(start: int, end: int, kept: str = "") -> Change:
    """Take text out; what is kept of it belongs to nothing else."""
    return Change(start, end, kept, (start, end))


def _unpack(tree: Tree, edits: list[Edit]) -> Iterator[Change]:
    """The changes that add to what calls unpack."""
    added: dict[cst.Arg, str] = defaultdict(str)
    for edit in edits:
        if isinstance(edit, SetUnpacked):
            added[edit.argument] += f', "{edit.name}": {edit.value}'
    for argument, items in added.items():
        whole = argument.value
        if isinstance(whole, cst.Dict) and whole.elements:
            yield from _changes(tree, Wrap(whole.elements[-1], "", items), ())
        else:
            yield from _changes(tree, Wrap(whole, "{**", f"{items}}}"), ())


def _keywords(tree: Tree, edits: list[Edit]) -> Iterator[Change]:
    """The changes that pass keywords to calls, the first that is asked for under each name."""
    keywords: dict[cst.Call, dict[str, SetKeyword]] = defaultdict(dict)
    for edit in edits:
        if isinstance(edit, SetKeyword):
            keywords[edit.call].setdefault(edit.name, edit)
    for call, sets in keywords.items():
        new = []
        for item in sets.values():
            if (passed := keyword(call, item.name)) is not None:
                yield Change(*tree.span(passed.value), item.value, tree.span(call))
            else:
                new.append(item)
        for at, text in _added(tree, call, new) if new else ():
            yield Change(at, at, text, tree.span(call))


def apply(source: str, changes: Sequence[Change], start: int = 0, end: int | None = None) -> str:
    """Carry out those changes, of all in their order, that lie in `source[start:end]` and return that part."""
    end = len(source) if end is None else end
    low, high = (bisect.bisect_left(changes, at, key=lambda change: change.start) for at in (start, end))
    return _carried_out(source, changes[low:high], start, end)


def _carried_out(source: str, changes: Sequence[Change], start: int, end: int) -> str:
    parts, at = [], start
    for change in changes:
        parts += [source[at : change.start], change.text]
        at = change.end
    return "".join([*parts, source[at:end]])


def _line_of(tree: Tree, statement: cst.CSTNode) -> tuple[int, str]:
    """The start of the line a statement begins on, and that line's indentation."""
    offset = tree.start(head(statement))
    start = tree.line_start(offset)
    line = tree.source[start:offset]
    return start, line[: len(line) - len(line.lstrip())]


def _code_end(tree: Tree, node: cst.CSTNode) -> int:
    """The end of a statement's last piece of code, without comments that trail its block."""
    if not isinstance(node, (cst.SimpleStatementLine, cst.SimpleStatementSuite)):
        for name in ("finalbody", "orelse", "handlers", "cases", "body"):
            if last := getattr(node, name, None):
                return _code_end(tree, last if isinstance(last, cst.CSTNode) else last[-1])
    return tree.span(node)[1]


def _block(text: str, indent: str) -> str:
    return "".join(f"{indent}{line}".rstrip() + "\n" for line in text.split("\n"))


def _added(tree: Tree, call: cst.Call, new: list[SetKeyword]) -> Iterator[tuple[int, str]]:
    """Where what text passes new keywords, in the style of the arguments that are there."""
    named = [a for a in call.args if a.keyword is not None]
    equal = " = " if named and tree.source[tree.span(named[-1].keyword)[1]] == " " else "="  # type: ignore[arg-type]
    width = _table_width(tree, named) if equal != "=" else 0
    written = [f"{item.name:<{width}}{equal}{item.value}" for item in new]
    if not call.args:
        yield tree.span(call)[1] - 1, ", ".join(written)
        return
    last = call.args[-1]
    end = tree.span(last)[1]
    after = tree.span(last.comma)[1] if isinstance(last.comma, cst.Comma) else end
    has_comma = after > end
    lead = tree.indentation(last)
    if lead.strip():  # the last argument shares its line with others
        yield after, (" " if has_comma else ", ") + ", ".join(written) + ("," if has_comma else "")
        return
    rest = tree.source[after : tree.line_end(after)]
    below = "".join(f"\n{lead}{text}," for text in written)
    if not has_comma:
        yield end, ","
    # below the line, with its comment; above a closing bracket that follows on the same line
    is_whole = rest.lstrip()[:1] in ("", "#")
    yield after + (len(rest) if is_whole else 0), below if has_comma else below[:-1]


def _table_width(tree: Tree, named: list[cst.Arg]) -> int:
    """How wide names are written in arguments whose equal signs stand below each other; 0 where they do not."""
    widths = set()
    for argument in named:
        start, end = tree.span(cst.ensure_type(argument.keyword, cst.Name))
        if tree.indentation(argument).strip():
            return 0
        widths.add((tree.source.index("=", end) - start - 1, end - start))
    columns = {column for column, _ in widths}
    return columns.pop() if len(columns) == 1 and len(widths) > 1 else 0


def _gone(tree: Tree, removals: Iterable[Remove], added: list[int]) -> dict[cst.CSTNode, Remove]:
    """The whole lines and blocks that go, each with a removal of it or of its last part.

    A `try` whose body goes, goes with it, unless other edits add text to it, at some offsets. So does a test of names.
    """
    gone: dict[cst.CSTNode, Remove] = {}
    parts: dict[cst.CSTNode, list[Remove]] = defaultdict(list)
    for removal in removals:
        if isinstance(removal.statement, cst.BaseSmallStatement):
            parts[tree.parents[removal.statement]].append(removal)
        else:
            gone[removal.statement] = removal
    gone |= {line: found[0] for line, found in parts.items() if len(found) == len(small_statements(line))}
    blocks: list[cst.Try | cst.If] = [*tree.of(cst.Try), *tree.of(cst.If)] if gone else []
    for block in reversed(tree.in_order(blocks)):
        body, goes_on = block.body.body, block.orelse or getattr(block, "finalbody", None)
        decides = isinstance(block, cst.If) and (_asks(tree, block.test) or isinstance(tree.parents[block], cst.If))
        if goes_on or decides or not all(each in gone for each in body):
            continue
        start, end = tree.span(block)
        kept = any(_comment(tree, each, gone[each]) for each in body)
        if not kept and not any(start <= offset < end for offset in added):
            gone[block] = Remove(block, keep_comment=False, comments_above=True)
    return gone


def _asks(tree: Tree, test: cst.BaseExpression) -> bool:
    """True for a test that does more than read names."""
    return any(tree.within(test, kind) for kind in (cst.Call, cst.NamedExpr, cst.Subscript, cst.Await))


def _remove(
    tree: Tree,
    removals: Iterable[Remove],
    gone: dict[cst.CSTNode, Remove],
    added: list[int],
    cells: Sequence[int],
) -> Iterator[Change]:
    """Removals line by line; a suite that loses all its statements keeps a `pass`, but an `else` goes with them.

    It stays where other edits add text to it, at some offsets.
    """
    parts = [r.statement for r in removals if tree.parents[r.statement] not in gone]
    for part in parts:
        if isinstance(part, cst.BaseSmallStatement):
            yield _removal(*_part(tree, part, parts))
    branches = _empty_branches(tree, {node for node, each in gone.items() if not _comment(tree, node, each)}, added)
    for start, end in branches:
        yield _removal(start, end)
    for statement, removal in gone.items():
        suite = tree.parents.get(statement)
        if any(start <= tree.start(statement) < end for start, end in branches):
            continue
        if isinstance(statement, cst.SimpleStatementSuite):
            yield _removal(*tree.span(statement), "pass")
            continue
        start, indent = _line_of(tree, statement)
        end = tree.line_end(_code_end(tree, statement))
        comment = _comment(tree, statement, removal)
        kept = f"{indent}{comment}\n" if comment else ""
        if removal.comments_above and not comment:
            start = _with_comments(tree, statement, start, end, cells)
        if isinstance(suite, cst.IndentedBlock) and suite.body[0] is statement and all(s in gone for s in suite.body):
            yield _removal(start, end, f"{kept}{indent}pass")
            continue
        yield _removal(start, min(end + 1, len(tree.source)), kept)


def _with_comments(tree: Tree, statement: cst.CSTNode, start: int, end: int, cells: Sequence[int]) -> int:
    """Where the comments begin that speak of a line which goes, and of nothing below: else where the line begins."""
    lines: Sequence[cst.CSTNode] = getattr(tree.parents.get(statement), "body", ())
    is_last = statement in lines[-1:] or isinstance(statement, cst.Try)  # which a comment right above speaks of
    after = end + 1
    if not (is_last or after in cells or tree.source[after : tree.line_end(after)].strip() == ""):
        return start
    cell = max((each for each in cells if each <= start), default=0)
    above = max(tree.comments_above(statement), cell)
    return start if _NO_WORDS.search(tree.source[above:start]) else above


def _part(tree: Tree, part: cst.BaseSmallStatement, parts: Sequence[cst.CSTNode]) -> tuple[int, int]:
    """Where one of the statements of `a; b; c` stands with the semicolon that goes with it, when some of them go."""
    line = small_statements(tree.parents[part])
    start, end = tree.span(part)
    if part is not line[-1]:
        return start, tree.start(line[line.index(part) + 1])
    return max(tree.span(each)[1] for each in line if each not in parts), end


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


def _without_loose_blanks(source: str, changes: list[Change], cells: Sequence[int]) -> list[Change]:
    """Extend lines that go over the blank line below them where one, or nothing of their cell, stands above them."""
    kept: list[Change] = []
    begins = end = -1  # of the lines that go, as far as they follow upon one another
    for change, after in zip(changes, [*(each.start for each in changes[1:]), len(source)], strict=False):
        goes = change.end > change.start and not change.text and source[change.end - 1] == "\n"
        begins = begins if goes and change.start == end else change.start
        end = change.end if goes else -1
        if goes and (begins in (0, *cells) or source[:begins].endswith("\n\n")) and after > end:
            end += source.startswith("\n", end)
        kept.append(replace(change, end=end) if goes else change)
    return kept


def _outermost(changes: list[Change]) -> list[Change]:
    """Drop changes that lie inside the text another one replaces."""
    kept: list[Change] = []
    widest: Change | None = None  # of those that replace text, the one that reaches furthest
    for change in sorted(changes, key=lambda c: (c.start, -c.end, c.rank)):
        if widest is None or not _covers(widest, change):
            kept.append(change)
            if change.end > change.start and (widest is None or change.end > widest.end):
                widest = change
    return sorted(kept, key=lambda change: change.place)


def _covers(outer: Change, inner: Change) -> bool:
    """True where `outer` replaces the text that `inner` changes; an insertion beside it is not covered."""
    if inner.start == inner.end:
        return outer.start < inner.start < outer.end
    return outer.start <= inner.start and inner.end <= outer.end


def _merged(tree: Tree, guards: list[Guard], cells: Sequence[int]) -> list[Guard]:
    """One guard for neighbouring statements of a cell under the same header."""
    merged: list[Guard] = []
    for guard in sorted(dict.fromkeys(guards), key=lambda g: tree.start(g.first)):
        if merged and _follows(tree, merged[-1], guard, cells):
            merged[-1] = replace(merged[-1], last=guard.last)
        else:
            merged.append(guard)
    return merged


def _follows(tree: Tree, before: Guard, after: Guard, cells: Sequence[int]) -> bool:
    ends, starts = (bisect.bisect_right(cells, tree.start(each)) for each in (before.last, after.first))
    if ends != starts or (before.header, before.after) != (after.header, after.after):
        return False
    statements = list(getattr(tree.parents[before.last], "body", ()))
    return after.first in statements and statements.index(after.first) == statements.index(before.last) + 1


def _guarded(tree: Tree, changes: list[Change], guards: list[Guard]) -> list[Change]:
    """Put each guard, inner ones first, in the place of its statements: a header, and deeper what they have become."""
    for guard in sorted(guards, key=lambda g: tree.span(g.last)[1] - tree.start(g.first)):
        start, indent = _line_of(tree, guard.first)
        end = tree.line_end(_code_end(tree, guard.last))
        first, last = tree.start(head(guard.first)), max(tree.span(guard.last)[1], end + 1)
        low, high = (bisect.bisect_left(changes, at, key=lambda c: c.start) for at in (start, end + 1))
        inside = [
            change
            for change in changes[low:high]
            if first <= change.owner[0] and change.owner[1] <= last and (change.rank >= 0 or change.start > start)
        ]
        text = f"{indent}{guard.header}:\n{_deeper(_carried_out(tree.source, inside, start, end))}"
        changed = [Change(start, max([end, *(change.end for change in inside)]), text, (first, end))]
        if guard.after:
            changed.append(_below(tree, guard.last, guard.after))
        changed += [change for change in changes[low:high] if change not in inside]
        changes[low:high] = sorted(changed, key=lambda change: change.place)
    return changes


def _deeper(text: str) -> str:
    """Indent lines, except inside long strings."""
    step = "\t" if any(found[0].startswith("\t") for found in _INDENTATION.finditer(text)) else INDENT
    return _INDENTATION.sub(lambda found: found[0] if found[0].strip() else found[0] + step, text)
