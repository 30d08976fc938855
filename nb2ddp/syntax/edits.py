"""Define the edits that rules return, and apply them to the source in one step.

A rule names nodes of the unchanged tree; this module turns its edits into text replacements. Text that no edit names
stays the same byte for byte, nested edits compose, and nothing is parsed again.
"""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import libcst as cst

from nb2ddp.syntax.arguments import entries_of, passed
from nb2ddp.syntax.tree import Statement, Tree, head, keyword, small_statements

INDENT = "    "
#: The indentation of a line that is not blank. Comments and strings match too, so that text in them is not indented.
_INDENTATION = re.compile(
    r"""^[ \t]*(?=\S)|\#.*|(?s:(\"{3}|'{3})(?:\\.|.)*?\1|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.MULTILINE
)

#: Comments that stay even without code below them: a licence, or code that is commented out.
LICENCE = re.compile(r"(?i)copyright|licen[cs]e")
OF_NO_CODE = re.compile(rf"{LICENCE.pattern}|^\s*#\s*(?!!)[\w.\[\]\"']+\s*(=|\(|import\b)", re.M)
#: Comments that are about no line below them: those above, and marks of an editor.
_NO_WORDS = re.compile(rf"{OF_NO_CODE.pattern}|^\s*#\s*(@|%%|noqa|type:)", re.M)


@dataclass(frozen=True)
class Edit:
    """An edit of the source that a rule asks for."""


@dataclass(frozen=True)
class Replace(Edit):
    """Replace a node by other text."""

    node: cst.CSTNode
    text: str


@dataclass(frozen=True)
class Wrap(Edit):
    """Put text on both sides of a node."""

    node: cst.CSTNode
    before: str
    after: str


@dataclass(frozen=True)
class SetKeyword(Edit):
    """Pass `name = value` to a call, in the style of its other arguments; it replaces a value of that name."""

    call: cst.Call
    name: str
    value: str


@dataclass(frozen=True)
class SetUnpacked(Edit):
    """Add `name: value` to a dictionary that a call unpacks: `**settings` becomes `**{**settings, "name": value}`."""

    argument: cst.Arg
    name: str
    value: str


@dataclass(frozen=True)
class InsertBefore(Edit):
    """Put lines right above a statement, at its indentation, below any comments above it."""

    statement: Statement
    text: str


@dataclass(frozen=True)
class InsertAbove(Edit):
    """Put lines above a statement and the comments that belong to it, at its indentation, within its cell."""

    statement: Statement
    text: str


@dataclass(frozen=True)
class InsertAfter(Edit):
    """Put lines below a statement, at its indentation."""

    statement: Statement
    text: str


@dataclass(frozen=True)
class Remove(Edit):
    """Remove a statement. A comment on its line stays, on a separate line, if `keep_comment` is true.

    With `comments_above`, the comments above it are removed too, unless they may be about code right below it.

    `comment` is the comment inside the IPython syntax that the statement replaces.
    """

    statement: cst.BaseSmallStatement | Statement
    keep_comment: bool = True
    comment: str = ""
    comments_above: bool = False


@dataclass(frozen=True)
class Cut(Edit):
    """Remove whole lines by their offsets: comments of a removed statement, or a whole cell."""

    start: int
    end: int


@dataclass(frozen=True)
class Guard(Edit):
    """Put neighbouring statements under a header, then optionally a line below them.

    `Guard(a, b, "if local_rank == 0", "wait()")` writes `if local_rank == 0:` above `a`, indents `a` to `b`, and
    writes `wait()` below.
    """

    first: Statement
    last: Statement
    header: str
    after: str = ""


@dataclass(frozen=True)
class AddToSetup(Edit):
    """Put lines into the script's setup block: at its end, or above all imports of packages."""

    text: str
    before_imports: bool = False


def set_argument(tree: Tree, call: cst.Call, name: str, value: str, at_call: bool = False) -> Edit:
    """Return the edit that passes `name = value`, where the notebook passes it or in the call itself."""
    argument = passed(tree, call, name)
    is_near = not at_call or (argument is not None and argument.holder in [a.value for a in call.args])
    if argument is not None and argument.holder is not call and is_near:
        return Replace(argument.value, value)
    stars = [(a, *entries_of(tree, a.value, name)) for a in call.args if a.star == "**"]
    unpacked = next((a for a, entries, is_whole in stars if name in entries or not (is_whole or argument)), None)
    if unpacked is None or keyword(call, name) is not None:
        return SetKeyword(call, name, value)
    return SetUnpacked(unpacked, name, value)  # it contains the name, or may contain it


def written(edit: Edit) -> list[str]:
    """Return the texts that an edit inserts into a script."""
    return [text for text in vars(edit).values() if isinstance(text, str)]


@dataclass
class Part:
    """A part of the source and its replacement.

    Attributes:
        text: the new text; None if the text stays, except for the parts inside it.
        before: text before it.
        after: text after it.
        is_deeper: whether its lines are indented.
        inner: the parts inside it, in order.
    """

    start: int
    end: int
    text: str | None = None
    before: str = ""
    after: str = ""
    is_deeper: bool = False
    inner: list[Part] = field(default_factory=list)

    def holds(self, part: Part) -> bool:
        """Return whether another part is inside it; if it has a new text, any part that begins in it counts."""
        return part.start < self.end and (part.end <= self.end or self.text is not None)

    def rendered(self, source: str) -> str:
        """Return the text that replaces it."""
        text, at = self.text, self.start
        if text is None:
            pieces = []
            for part in self.inner:
                pieces += [source[at : part.start], part.rendered(source)]
                at = part.end
            text = "".join([*pieces, source[at : self.end]])
        return self.before + (_deeper(text) if self.is_deeper else text) + self.after


def resolve(tree: Tree, edits: Iterable[Edit], cells: Sequence[int] = ()) -> list[Part]:
    """Turn edits into parts of the source that do not overlap, in source order.

    An edit inside text that another edit replaces or removes is dropped.

    Args:
        tree: the unchanged parse.
        edits: the edits of rules, in order.
        cells: the offsets at which cells begin; no guard extends from one into the next.
    """
    edits = list(dict.fromkeys(edits))
    above = [_above(tree, edit, cells) for edit in edits if isinstance(edit, (InsertBefore, InsertAbove))]
    below = [_below(tree, edit) for edit in edits if isinstance(edit, InsertAfter)]
    added = [part.start for part in above] + [part.end - 1 for part in below]
    removals = {edit.statement: edit for edit in edits if isinstance(edit, Remove)}
    removed = _removed(tree, removals.values(), added)
    cut = [Part(edit.start, edit.end, "") for edit in edits if isinstance(edit, Cut) and edit.start < edit.end]
    cut += _remove(tree, removals.values(), removed, added, cells)
    guards = [edit for edit in edits if isinstance(edit, Guard) and not {edit.first, edit.last} <= removed.keys()]
    guarded = [_guarded(tree, guard) for guard in _merged(tree, guards, cells)]
    parts = [*_changes(tree, edits), *_unpack(tree, edits), *_keywords(tree, edits)]
    # of parts with the same span the first contains the others; of guards and lines below, the last edit is outermost
    return _nested([*guarded[::-1], *below[::-1], *above, *parts, *cut])


def _nested(parts: Iterable[Part]) -> list[Part]:
    """Return the outermost parts, with the others inside them."""
    outermost: list[Part] = []
    around: list[Part] = []
    for part in sorted(parts, key=lambda part: (part.start, part.end > part.start, -part.end, part.text is not None)):
        while around and not around[-1].holds(part):
            around.pop()
        (around[-1].inner if around else outermost).append(part)
        around.append(part)
    return outermost


def apply(source: str, parts: Sequence[Part], start: int = 0, end: int | None = None) -> str:
    """Return `source[start:end]` with the parts applied that begin in it; `parts` are all parts, in order."""
    end = len(source) if end is None else end
    low, high = (bisect.bisect_left(parts, at, key=lambda part: part.start) for at in (start, end))
    return Part(start, end, inner=list(parts[low:high])).rendered(source)


def _changes(tree: Tree, edits: list[Edit]) -> Iterator[Part]:
    """Yield the parts that change single nodes."""
    for edit in edits:
        if isinstance(edit, Replace):
            yield Part(*tree.span(edit.node), edit.text)
        elif isinstance(edit, Wrap):
            yield Part(*tree.span(edit.node), None, edit.before, edit.after)


def _unpack(tree: Tree, edits: list[Edit]) -> Iterator[Part]:
    """Yield the parts that add items to dictionaries that calls unpack."""
    added: dict[cst.Arg, str] = defaultdict(str)
    for edit in edits:
        if isinstance(edit, SetUnpacked):
            added[edit.argument] += f', "{edit.name}": {edit.value}'
    for argument, items in added.items():
        mapping = argument.value
        if isinstance(mapping, cst.Dict) and mapping.elements:
            yield Part(*tree.span(mapping.elements[-1]), after=items)
        else:
            yield Part(*tree.span(mapping), None, "{**", f"{items}}}")


def _keywords(tree: Tree, edits: list[Edit]) -> Iterator[Part]:
    """Yield the parts that pass keywords to calls; of several edits for a name, the first applies."""
    keywords: dict[cst.Call, dict[str, SetKeyword]] = defaultdict(dict)
    for edit in edits:
        if isinstance(edit, SetKeyword):
            keywords[edit.call].setdefault(edit.name, edit)
    for call, sets in keywords.items():
        new = []
        for item in sets.values():
            if (passed := keyword(call, item.name)) is not None:
                yield Part(*tree.span(passed.value), item.value)
            else:
                new.append(item)
        yield from (Part(at, at, text) for at, text in _added(tree, call, new)) if new else ()


def _lines(tree: Tree, first: cst.CSTNode, last: cst.CSTNode | None = None) -> tuple[int, int, str]:
    """Return where the lines of neighbouring statements begin and end, and the indentation of the first."""
    offset = tree.start(head(first))
    start = tree.line_start(offset)
    line = tree.source[start:offset]
    end = tree.line_end(tree.span(last or first)[1]) + 1
    return start, min(end, len(tree.source)), line[: len(line) - len(line.lstrip())]


def _guarded(tree: Tree, guard: Guard) -> Part:
    start, end, indent = _lines(tree, guard.first, guard.last)
    after = _block(guard.after, indent) if guard.after else ""
    return Part(start, end, None, f"{indent}{guard.header}:\n", after, is_deeper=True)


def _above(tree: Tree, edit: InsertBefore | InsertAbove, cells: Sequence[int]) -> Part:
    start, _, indent = _lines(tree, edit.statement)
    start = start if isinstance(edit, InsertBefore) else _comments_above(tree, edit.statement, cells)
    return Part(start, start, _block(edit.text, indent))


def _below(tree: Tree, edit: InsertAfter) -> Part:
    start, end, indent = _lines(tree, edit.statement)
    return Part(start, end, after=_block(edit.text, indent))


def _comments_above(tree: Tree, statement: cst.CSTNode, cells: Sequence[int]) -> int:
    """Return where the comments right above a statement begin, within its cell."""
    start = tree.start(statement)
    return max(tree.comments_above(statement), *(cell for cell in cells if cell <= start), 0)


def _block(text: str, indent: str) -> str:
    return "".join(f"{indent}{line}".rstrip() + "\n" for line in text.split("\n"))


def _added(tree: Tree, call: cst.Call, new: list[SetKeyword]) -> Iterator[tuple[int, str]]:
    """Yield the offsets and texts that pass new keywords, in the style of the existing arguments."""
    named = [a for a in call.args if a.keyword is not None]
    equal = " = " if named and tree.source[tree.span(named[-1].keyword)[1]] == " " else "="  # type: ignore[arg-type]
    written = [f"{item.name}{equal}{item.value}" for item in new]
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
    # below the line and its comment, but before a closing bracket on the same line
    if rest.lstrip()[:1] in ("", "#"):
        after += len(rest)
        goes_on = re.compile(rf"(?:\n{lead}[ \t]+#.*)*" if "#" in rest else "")
        after = goes_on.match(tree.source, after).end()  # type: ignore[union-attr]
    yield after, below if has_comma else below[:-1]


def _removed(tree: Tree, removals: Iterable[Remove], added: list[int]) -> dict[cst.CSTNode, Remove]:
    """Return the lines and blocks that are removed completely, each with a removal of it or of a part of it.

    If the body of a `try` is removed, the `try` and its handlers are too, unless other edits add text to it (`added`
    has the offsets). The same holds for an `if` whose test only reads names.
    """
    removed: dict[cst.CSTNode, Remove] = {}
    parts: dict[cst.CSTNode, list[Remove]] = defaultdict(list)
    for removal in removals:
        if isinstance(removal.statement, cst.BaseSmallStatement):
            parts[tree.parents[removal.statement]].append(removal)
        else:
            removed[removal.statement] = removal
    removed |= {line: own[0] for line, own in parts.items() if len(own) == len(small_statements(line))}
    blocks: list[cst.Try | cst.If] = [*tree.of(cst.Try), *tree.of(cst.If)] if removed else []
    for block in reversed(tree.in_order(blocks)):
        body: Sequence[cst.CSTNode] = block.body.body
        goes_on = getattr(block, "finalbody", None) or block.orelse
        decides = isinstance(block, cst.If) and (_asks(tree, block.test) or isinstance(tree.parents[block], cst.If))
        if goes_on or decides or not removed.keys() >= set(body):
            continue
        start, end = tree.span(block)
        kept = any(_comment(tree, statement, removed[statement]) for statement in body)
        if not kept and not any(start <= offset < end for offset in added):
            removed[block] = Remove(block, keep_comment=False, comments_above=True)
    return removed


def _asks(tree: Tree, test: cst.BaseExpression) -> bool:
    """Return whether a test does more than read names."""
    return any(tree.within(test, kind) for kind in (cst.Call, cst.NamedExpr, cst.Subscript, cst.Await))


def _remove(
    tree: Tree,
    removals: Iterable[Remove],
    removed: dict[cst.CSTNode, Remove],
    added: list[int],
    cells: Sequence[int],
) -> Iterator[Part]:
    """Yield removals line by line. A suite that loses all its statements gets a `pass`, but an `else` is removed.

    An `else` stays if other edits add text to it (`added` has the offsets).
    """
    parts = [r.statement for r in removals if tree.parents[r.statement] not in removed]
    for part in parts:
        if isinstance(part, cst.BaseSmallStatement):
            yield Part(*_part(tree, part, parts), "")
    bare = {statement for statement, removal in removed.items() if not _comment(tree, statement, removal)}
    for branch in tree.of(cst.Else):
        start, end, _ = _lines(tree, branch)
        if bare.issuperset(branch.body.body) and not any(start <= offset < end for offset in added):
            yield Part(start, end, "")
    for statement, removal in removed.items():
        suite = tree.parents[statement]
        if isinstance(statement, cst.SimpleStatementSuite):
            yield Part(*tree.span(statement), "pass")
            continue
        start, end, indent = _lines(tree, statement)
        comment = _comment(tree, statement, removal)
        kept = f"{indent}{comment}\n" if comment else ""
        if removal.comments_above and not comment:
            start = _with_comments(tree, statement, start, end, cells)
        if isinstance(suite, cst.IndentedBlock) and suite.body[0] is statement and removed.keys() >= set(suite.body):
            kept += f"{indent}pass\n"
        yield Part(start, end, kept)


def _with_comments(tree: Tree, statement: cst.CSTNode, start: int, end: int, cells: Sequence[int]) -> int:
    """Return where the comments above a removed line begin if they are about nothing below it; else its start."""
    is_last = statement in getattr(tree.parents[statement], "body", ())[-1:] or isinstance(statement, cst.Try)
    above = _comments_above(tree, statement, cells)
    ends = is_last or end in cells or not tree.source[end : tree.line_end(end)].strip()
    return above if ends and not _NO_WORDS.search(tree.source[above:start]) else start


def _part(tree: Tree, part: cst.BaseSmallStatement, parts: Sequence[cst.CSTNode]) -> tuple[int, int]:
    """Return the span of a removed statement of `a; b; c`, with its semicolon, if others on the line stay."""
    line = small_statements(tree.parents[part])
    start, end = tree.span(part)
    if part is not line[-1]:
        return start, tree.start(line[line.index(part) + 1])
    return max(tree.span(statement)[1] for statement in line if statement not in parts), end


def _comment(tree: Tree, statement: cst.CSTNode, removal: Remove) -> str:
    """Return the comment that stays when a statement is removed; empty if there is none."""
    end = tree.span(statement)[1]
    comment = removal.comment or tree.source[end : tree.line_end(end)].strip().lstrip(";").strip()
    return comment if comment.startswith("#") and removal.keep_comment else ""


def _merged(tree: Tree, guards: list[Guard], cells: Sequence[int]) -> list[Guard]:
    """Return one guard for neighbouring statements of a cell under the same header."""
    merged: list[Guard] = []
    for guard in sorted(guards, key=lambda g: tree.start(g.first)):
        if merged and _follows(tree, merged[-1], guard, cells):
            merged[-1] = replace(merged[-1], last=guard.last)
        else:
            merged.append(guard)
    return merged


def _follows(tree: Tree, before: Guard, after: Guard, cells: Sequence[int]) -> bool:
    ends, starts = (bisect.bisect_right(cells, tree.start(statement)) for statement in (before.last, after.first))
    if ends != starts or (before.header, before.after) != (after.header, after.after):
        return False
    statements = list(getattr(tree.parents[before.last], "body", ()))
    return after.first in statements and statements.index(after.first) == statements.index(before.last) + 1


def _deeper(text: str) -> str:
    """Indent lines, except inside long strings."""
    step = "\t" if any(match[0].startswith("\t") for match in _INDENTATION.finditer(text)) else INDENT
    return _INDENTATION.sub(lambda match: match[0] if match[0].strip() else match[0] + step, text)
