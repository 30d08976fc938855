"""Paths of the user's own machine that a notebook reads and does not make: absolute ones, and files beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.flow import must_run, reached, taker
from nb2ddp.facts.hosted import (
    GLOB,
    READERS,
    WRITTEN,
    is_missed,
    is_only_tried,
    is_read,
    path_taker,
    path_uses,
    read_by,
    theirs,
)
from nb2ddp.facts.texts import received, spelled
from nb2ddp.syntax.tree import Tree, argument, method

if TYPE_CHECKING:
    from nb2ddp.facts.execution import Execution
    from nb2ddp.facts.hosted import Made
    from nb2ddp.facts.makers import Maker

MustBeThere = Callable[["Execution", "list[Maker]", "list[cst.CSTNode]", str, cst.BaseExpression], bool]
#: A path of Windows.
_WINDOWS = re.compile(r"[A-Za-z]:[\\/].*")
#: An absolute path that is neither Colab's, Kaggle's nor the system's.
_ABSOLUTE = re.compile(
    r"/(?!(content|kaggle|bin|dev(?!/shm/)|etc|lib\w*|opt|proc|run|sbin|sys|tmp|usr|var)\b)\w.*|~/(?!\.).+|[A-Za-z]:[\\/].+"
)
#: The beginning of a path that is none of these, nor one of the home folder.
_RELATIVE = re.compile(r"[^/~]")
#: A file of rows, pictures or sound; a folder; a folder that can be no name of the Hub's.
_FILE = re.compile(
    r"(\.{1,2}/)*[^\W_][^\n:?\"<>|]*\.(csv|tsv|jsonl?|ndjson|parquet|arrow|feather|txt|xlsx?|pkl|pickle|np[yz]|h5|xml|pdf"
    r"|docx|pptx|zip|gz|png|jpe?g|webp|bmp|wav|mp3|flac|ogg|m4a|mp4|ya?ml)"
)
_FOLDER = re.compile(r"(\.{1,2}/)*[^\W_][^\n:?\"<>|]*")
_MODEL = re.compile(r"\.{1,2}/[^\W_].*|[^\n:]*\bcheckpoint-\d+/?")
#: A name without an owner, and those of this kind that the Hub has.
_NO_OWNER = re.compile(r"[\w.-]+")
_OF_THE_HUB = re.compile(
    r"(distil)?(gpt2|bert|roberta|albert|xlnet|t5|xlm|camembert|flaubert|bart|pegasus|openai-gpt|transfo-xl|ctrl)\b.*"
)
_MODEL_LIBRARIES: Final = ("unsloth.", "transformers.", "peft.")
#: What `load_dataset` reads files with.
_FORMATS: Final = frozenset("arrow audiofolder csv imagefolder json pandas parquet text webdataset xml".split())
#: The keywords for what is read.
_GIVEN = re.compile(r"(\w+_)?(path|files?|dir|folder|filename|buffer|model_name)|io|fp")
#: Methods of a path that read it.
_READING = re.compile(r"read_(text|bytes)|open|iterdir|r?glob")
_LISTING = re.compile(r"iterdir|r?glob")
#: What gives each of the paths that it is given, or that it is a method of.
_EACH = re.compile(r"enumerate|sorted|list|reversed|(tqdm\.)*tqdm|items|values")
#: Methods of a model that load an adapter.
_ADAPTER = re.compile(r"load_(adapter|lora)")


@dataclass(frozen=True)
class LocalPath:
    """A path that the notebook reads, and does not make itself.

    Attributes:
        text: the path as the notebook writes it.
        node: where it stands.
        required: the notebook stops where it is missing.
    """

    text: str
    node: cst.BaseExpression
    required: bool

    @property
    def is_beside(self) -> bool:
        """True for a path that begins at the script's folder."""
        return not _ABSOLUTE.fullmatch(self.text)

    @property
    def is_sure(self) -> bool:
        """True for what is a path wherever it stands: an absolute one, a file's, one in a folder."""
        return not self.is_beside or _FILE.fullmatch(self.text) is not None or self.text.endswith("/*")

    @property
    def is_of_windows(self) -> bool:
        """True for a path that no Linux has."""
        return _WINDOWS.fullmatch(self.text) is not None


def local_paths(
    execution: Execution, making: list[Maker], made: Made, uploaded: set[str], must_be_there: MustBeThere
) -> Iterator[LocalPath]:
    """The paths that the notebook reads by literal names, each where it stands; none that something in it may make.

    Relative ones that an f-string spells with names of texts are among them: `f"{DATA}/train.csv"`.

    Args:
        execution: the steps of the notebook.
        making: its calls that may make files.
        made: what they surely make.
        uploaded: the files that a person uploaded, by their names.
        must_be_there: whether the notebook stops without a file beside it (`facts/beside.py`).
    """
    tree = execution.tree
    patterns = (_ABSOLUTE, _FOLDER, _FILE, _MODEL)
    strings: list[tuple[cst.BaseExpression, str]] = [(each, tree.content(each)) for each in tree.live(cst.SimpleString)]
    formatted = ((each, _formatted(tree, each)) for each in tree.live(cst.FormattedString))
    strings += (pair for pair in formatted if _RELATIVE.match(pair[1]))
    paths = [
        (each, text)
        for each, text in strings
        if any(pattern.fullmatch(text) for pattern in patterns) and not execution.is_install(each)
    ]
    for node, text, uses in ((each, *named) for each, written in paths for named in _named(tree, each, written)):
        if theirs(tree, text) != text:
            continue
        path = LocalPath(text, node, required=False)
        reading = [use for use in uses if _is_used(execution, use, path)]
        reading += _longer(execution, uses) if path.is_beside else []
        if not reading or _may_do_without(execution, node, uses, reading):
            continue
        takers = {path_taker(tree, use) for use in reading}
        others = [maker for maker in making if maker.call not in takers]
        is_certain = any(is_read(execution, use) for use in uses)
        if not path.is_beside:
            if not _is_made(execution, others, made, text, reading):
                yield LocalPath(text, node, is_certain and _is_sure(others, made, text))
            wholes = [whole for use in reading if (whole := _whole(tree, use)) is not None]
            for whole, name in [(each, names[0]) for each in wholes if len(names := spelled(tree, each)) == 1]:
                own = path_uses(tree, whole)
                is_there = _is_made(execution, others, made, name, own) or "*" in name
                if not is_there and any(is_read(execution, use) for use in own) and _is_sure(others, made, name):
                    yield LocalPath(name, whole, required=True)
        elif not _is_made_before(execution, others, reading, text):
            name = text.removeprefix("./") if _FILE.fullmatch(text) else text  # `./m` is no name of the Hub's
            is_uploaded = is_certain and name in uploaded
            yield LocalPath(name, node, is_uploaded or must_be_there(execution, others, uses, text, node))


def _formatted(tree: Tree, node: cst.FormattedString) -> str:
    """The text of an f-string, where each name in it is surely bound to one text; else an empty one."""
    parts = list[str]()
    for each in node.parts:
        if isinstance(each, cst.FormattedStringText):
            is_plain = "\\" not in each.value
            parts.append(each.value.replace("{{", "{").replace("}}", "}") if is_plain else "\0")
        elif isinstance(each, cst.FormattedStringExpression):
            name, bound = each.expression, tree.definition(each.expression)
            value = tree.fixed(name) if bound is not None and tree.is_certain(bound) else ...
            parts.append(value if isinstance(value, str) and not (each.conversion or each.format_spec) else "\0")
    text = "".join(parts)
    return "" if "\0" in text else text


def _named(tree: Tree, node: cst.BaseExpression, text: str) -> Iterator[tuple[str, list[cst.CSTNode]]]:
    """The path that a text is, with its uses; those that `.format("train")` of it names, where it is a pattern."""
    uses = [*path_uses(tree, node), *_listed(tree, node)]
    parts = text.split("{}")
    members = [tree.parents[use] for use in uses] if parts[1:] and not re.search("[{}]", "".join(parts)) else []
    made = dict[str, list[cst.CSTNode]]()
    for member in members:
        call = tree.call_of(member) if isinstance(member, cst.Attribute) and member.attr.value == "format" else None
        given = [... if each.keyword or each.star else tree.literal(each.value) for each in call.args] if call else []
        if call is not None and ... not in given and len(given) == len(parts) - 1:
            made.setdefault(text.format(*given), []).extend(path_uses(tree, call))
    yield from made.items() if made else [(text, uses)]


def _is_made(execution: Execution, making: list[Maker], made: Made, text: str, reading: list[cst.CSTNode]) -> bool:
    """Whether the notebook makes what has a whole path, or acts on what it is given this name of."""
    acting = [maker for maker in making if execution.does(maker.call) & Does.ACT]
    is_named = any(maker.is_named(text, not text.startswith("/")) for maker in acting)
    return is_named or made.has(text, read_by(execution.tree, reading))


def _is_sure(making: list[Maker], made: Made, text: str) -> bool:
    """Whether nothing in the notebook may make what has a whole path that it is sure to read."""
    is_open = made.unknown or GLOB.search(text) or text.startswith("~")
    return not (is_open or any(maker.is_named(text) for maker in making))


def _whole(tree: Tree, use: cst.CSTNode) -> cst.BinaryOperation | None:
    """The longer path that a folder is the beginning of: `folder + "rows.csv"`."""
    whole = use
    while isinstance(above := tree.parents[whole], cst.BinaryOperation) and above.left is whole:
        whole = above
    return whole if isinstance(whole, cst.BinaryOperation) and whole is not use else None


def _is_made_before(execution: Execution, making: list[Maker], reading: list[cst.CSTNode], text: str) -> bool:
    """Whether some call may make a file before it is read; in a function that may be after any call."""
    tree = execution.tree
    end = max(tree.start(use) if tree.function(use) is None else len(tree.source) for use in reading)
    return any(maker.may_make(text) and _begins_before(tree, maker.call, end) for maker in making)


def _begins_before(tree: Tree, call: cst.Call, end: int) -> bool:
    """Whether a call runs above an offset; in a function, whether what uses it does."""
    return any(tree.start(run) < end for run in tree.run_from(call, tree.uses))


def _may_do_without(
    execution: Execution, node: cst.CSTNode, uses: list[cst.CSTNode], reading: list[cst.CSTNode]
) -> bool:
    """Whether the notebook goes on without a path: it only tries it, or reads it where some test says so."""
    tried = any(is_only_tried(execution, place) for place in (node, *reading))
    tested = all(_is_below_test(execution.tree, use) for use in reading)
    return tried or not is_missed(execution, uses) or tested


def _is_below_test(tree: Tree, use: cst.CSTNode) -> bool:
    """Whether a test says if a use comes to pass."""
    above = [use, *tree.ancestors(use)]
    steps = [(each, inner) for inner, each in pairwise(above) if isinstance(each, cst.If)]
    return any(tree.literal(each.test) is not True and not must_run(tree, each, inner) for each, inner in steps)


def _listed(tree: Tree, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Where a path in a list or dictionary is used: where a loop goes through them to its end, and in `data_files`."""
    item = tree.parents[node]
    whole, bound = tree.parents[item], tree.parents[tree.parents[item]]
    is_plain = not isinstance(bound, cst.Assign) or isinstance(bound.targets[0].target, cst.Name)
    is_in = isinstance(item, (cst.Element, cst.DictElement)) and item.value is node
    if not (isinstance(whole, (cst.List, cst.Tuple, cst.Dict)) and is_in and is_plain):
        return
    for use in path_uses(tree, whole):
        calls = tree.followed(use, lambda each: _gone_through(tree, each))
        loop, place = tree.parents[calls[-1]], tree.parents[use]
        if isinstance(place, cst.Arg) and place.keyword is not None and place.keyword.value == "data_files":
            yield use
        elif isinstance(loop, (cst.For, cst.CompFor)) and loop.iter is calls[-1] and not _leaves_out(tree, loop):
            target = loop.target.elements[-1].value if isinstance(loop.target, cst.Tuple) else loop.target
            is_path = target is loop.target or method(calls[-1]) == "items" or tree.text(calls[-1]).startswith("enum")
            name = target.value if isinstance(target, cst.Name) and is_path else ""
            yield from (each for each in tree.loads(name) if tree.definition(each) is loop)


def _leaves_out(tree: Tree, loop: cst.For | cst.CompFor) -> bool:
    """Whether a loop may not come to all that it goes through."""
    return bool(loop.ifs) if isinstance(loop, cst.CompFor) else bool(tree.within(loop, cst.Break))


def _gone_through(tree: Tree, node: cst.CSTNode) -> cst.Call | None:
    """The call that gives each of what it is given: `enumerate(files)`, `files.items()`."""
    call = tree.call_of(tree.parents[node]) if isinstance(tree.parents[node], cst.Attribute) else taker(tree, node)
    return call if call is not None and _EACH.fullmatch(method(call) or tree.qualified(call.func)) else None


def _longer(execution: Execution, uses: list[cst.CSTNode]) -> list[cst.CSTNode]:
    """Where a longer path is read that begins with a path: `folder / "rows.csv"`."""
    tree, found = execution.tree, list[cst.CSTNode]()
    for use in reached(uses, lambda use: _joined(execution.tree, use)):
        if isinstance(use, cst.BaseExpression) and use not in uses:
            path = LocalPath(spelled(tree, use)[0], use, required=False)
            found += [use] if _is_used(execution, use, path) else []
    return found


def _joined(tree: Tree, use: cst.CSTNode) -> list[cst.CSTNode]:
    """The uses of the longer path that a use of a path is the beginning of."""
    above = tree.parents[use]
    is_longer = isinstance(above, cst.BinaryOperation) and isinstance(above.operator, cst.Divide) and above.left is use
    return path_uses(tree, cst.ensure_type(above, cst.BinaryOperation)) if is_longer else []


def _is_used(execution: Execution, use: cst.CSTNode, path: LocalPath, is_outside: bool = True) -> bool:
    """Whether a path is read, also by a function of the notebook's, or an absolute one is part of a longer path."""
    tree, above = execution.tree, execution.tree.parents[use]
    if isinstance(above, cst.DictElement) and above.key is use:
        return False
    if isinstance(above, cst.Attribute):  # `Path("rows.txt").read_text()`
        call = tree.call_of(above)
        is_read_itself = (
            call is not None and _READING.fullmatch(above.attr.value) and not execution.does(call) & Does.ACT
        )
        return bool(is_read_itself) and (path.is_sure or _LISTING.fullmatch(above.attr.value) is not None)
    if not path.is_beside:
        call = taker(tree, use)
        is_joined = call is not None and tree.qualified(call.func) == "os.path.join" and call.args[0].value is use
        is_part = isinstance(above, (cst.FormattedStringExpression, cst.BinaryOperation)) and path.text.count("/") > 1
        if is_joined or is_part:
            return True
    call = path_taker(tree, use)
    if call is None or execution.does(call) & Does.ACT:
        return False
    return _reads(execution, call, use, path) or (is_outside and _is_read_inside(execution, call, use, path))


def _is_read_inside(execution: Execution, call: cst.Call, use: cst.CSTNode, path: LocalPath) -> bool:
    """Whether a function of the notebook's reads a path that it is given, and does not go on without it."""
    tree, place = execution.tree, execution.tree.parents[use]
    param = received(tree, call, place) if isinstance(place, cst.Arg) else None
    if param is None:
        return False
    uses: list[cst.CSTNode] = [each for each in tree.loads(param.name.value) if tree.definition(each) is param]
    reading = [each for each in uses if _is_used(execution, each, path, is_outside=False)]
    return bool(reading) and not _may_do_without(execution, param, uses, reading)


def _reads(execution: Execution, call: cst.Call, use: cst.CSTNode, path: LocalPath) -> bool:
    """Whether a call reads a path that it is given, from the disk and not from the Hub."""
    tree, name = execution.tree, execution.tree.qualified(call.func)
    last = method(call) or name.rsplit(".", 1)[-1]
    place = next(each for each in call.args if use is each.value or use in tree.within(each.value, type(use)))
    own = tree.definition(call.func)
    if isinstance(own, cst.FunctionDef) and execution.has(own, Does.ACT | Does.TEST):
        return False
    given = "" if place.keyword is None else place.keyword.value
    if given and (not _GIVEN.fullmatch(given) or WRITTEN.fullmatch(given)):
        return False
    if last == "load_dataset":
        builder = argument(call, "path", 0)
        is_file_format = builder is not None and tree.literal(builder.value) in _FORMATS
        is_read = given.startswith("data_") and is_file_format
        return is_read or (not given.startswith("data_") and _is_on_disk(path))
    if last == "from_pretrained" and name.startswith(_MODEL_LIBRARIES) and _NO_OWNER.fullmatch(path.text):
        return not _OF_THE_HUB.match(path.text)
    if _ADAPTER.fullmatch(last) and call.args[0] is place and _NO_OWNER.fullmatch(path.text):
        return True
    if last.startswith("from_") or _ADAPTER.fullmatch(last):
        return _is_on_disk(path) or _FILE.fullmatch(path.text) is not None
    if last in ("load_from_disk", "listdir", "scandir", "glob", "iglob"):
        return bool(re.search(r"\w", path.text))
    return bool(READERS.fullmatch(last)) and path.is_sure


def _is_on_disk(path: LocalPath) -> bool:
    """True for a name that none of the Hub's can be."""
    return not path.is_beside or _MODEL.fullmatch(path.text) is not None
