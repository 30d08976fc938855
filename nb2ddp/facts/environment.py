"""Environment variables that a notebook sets, and when it sets them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from nb2ddp.facts.effects import ENV_MAGICS
from nb2ddp.facts.flow import first_import
from nb2ddp.facts.values import texts_of
from nb2ddp.notebook.magics import Kind
from nb2ddp.syntax.cells import Source
from nb2ddp.syntax.environ import LAUNCHER_VARIABLES, environ_key
from nb2ddp.syntax.tree import Statement, Tree, dotted, grouped

_ASSIGNMENT = re.compile(r"(?P<name>\w+)(?:\s*=\s*|\s+)(?P<value>.*)")
_COMMENT = re.compile(r"(?:^|\s+)(#.*)$")
#: Variables that are read when needed, not by an import: settings of trackers, keys, tokens, and those that Unsloth
#: reads to load or run a model (2026.10.9: models/vision.py:4837, llama.py:2087, kernels/moe/autotune_cache.py:201).
_READ_LATER = re.compile(
    r"(WANDB|COMET|MLFLOW|NEPTUNE|CLEARML|TRACKIO|OPENAI)_\w+|\w+_(KEY|TOKEN)|HUGGING_FACE_HUB_TOKEN"
    r"|UNSLOTH_(RETURN_LOGITS|DISABLE_FAST_GENERATION|MOE_DISABLE_AUTOTUNE)"
)
#: Variables that only Unsloth and vLLM read when they are imported; and those that torch reads at its first call to a
#: GPU (c10/cuda/CUDAAllocatorConfig.h, `instance`), which the setup block makes.
_READ_BY_OURS = re.compile(r"\w*UNSLOTH\w*|VLLM_\w+|PYTORCH_(CUDA_|HIP_)?ALLOC_CONF")
#: Packages that read variables of the Hub or of torch when they are imported.
_READERS = frozenset(
    "accelerate bitsandbytes datasets diffusers evaluate huggingface_hub peft sentence_transformers timm tokenizers"
    " torchaudio torchvision transformers triton trl unsloth_zoo vllm xformers".split()
)
#: The call that sets a variable unless it is already set.
DEFAULT = "os.environ.setdefault"
#: The node that sets a variable, the variable, and its value.
_Plain = tuple[cst.CSTNode, str, str]


def assignment(text: str) -> tuple[str, str, str] | None:
    """Return name, value and comment of `%env NAME=value # comment`; None if the magic only shows a variable."""
    comment = _COMMENT.search(text)
    match = _ASSIGNMENT.fullmatch(_COMMENT.sub("", text).strip())
    return (match["name"], match["value"].strip(), comment[1] if comment else "") if match else None


@dataclass(frozen=True)
class Setting:
    """Code that sets a variable to a plain value before Unsloth is imported.

    Attributes:
        node: the statement, its call, or one of several entries that are set at once.
        is_default: it sets the variable only if it is not already set.
        name, value: the variable and its value.
        moves: the line moves to the setup block as a whole.
        test: the enclosing test, if the setup block can also evaluate it; empty for none.
        above: the offset of the comments on this setting only; the offset of its line if there are none.
        comments: the lines of these comments.
        beside: the comment on the same line; empty for none.
    """

    node: cst.CSTNode
    is_default: bool
    name: str
    value: str
    moves: bool
    test: str
    above: int
    comments: tuple[str, ...]
    beside: str


def early_settings(source: Source, every: Sequence[tuple[cst.CSTNode, object, object]]) -> list[Setting]:
    """Return the settings that the notebook makes before it imports Unsloth, and that imports read, in order.

    Args:
        source: the notebook's code.
        every: all variables that it sets, as returned by `settings`.
    """
    tree = source.tree
    first = first_import(tree)
    readers = (tree.start(line) for line, package in imported_packages(tree) if package in _READERS)
    others = min(readers, default=len(tree.source))
    early = [
        (node, name, value)
        for node, name, value in every
        if isinstance(name, str)
        and isinstance(value, str)
        and tree.start(node) < first
        and name not in LAUNCHER_VARIABLES
        and not _READ_LATER.fullmatch(name)
        and (_READ_BY_OURS.fullmatch(name) or tree.start(node) < others)
        and (tree.is_top_level(node) or _test(tree, node))
    ]
    early.sort(key=lambda item: tree.start(item[0]))
    values = grouped((name, value) for _, name, value in early)
    moves = [
        (node, name, value)
        for node, name, value in early
        if tree.is_top_level(node) and len({*values[name]}) == 1 and not _is_touched(source, node, name, early)
    ]
    lines = {statement_of(source, each[0]) for each in every if each not in moves}  # which stay as a whole
    staying = [node for node, *_ in every if statement_of(source, node) in lines]
    return [_setting(source, *plain, staying) for plain in early]


def _test(tree: Tree, node: cst.CSTNode) -> str:
    """Return the module-level test around a node if it uses only os and sys: `os.path.exists("/kaggle")`; else ""."""
    block = tree.parents[tree.statement(node)]
    branch = tree.parents[block] if block is not tree.module else block
    if not isinstance(branch, cst.If) or block is not branch.body or tree.parents[branch] is not tree.module:
        return ""
    test = tree.value(branch.test)
    names = [each for each in tree.within(test, cst.Name) if getattr(tree.parents[each], "attr", None) is not each]
    return tree.text(test) if all(each.value in ("os", "sys", "bool") for each in names) else ""


def imported_packages(tree: Tree) -> Iterator[tuple[cst.Import | cst.ImportFrom, str]]:
    """Yield the live imports, in order, with each package that they name; no relative imports."""
    lines: list[cst.Import | cst.ImportFrom] = [*tree.live(cst.Import), *tree.live(cst.ImportFrom)]
    for line in sorted(lines, key=tree.start):
        if isinstance(line, cst.Import):
            yield from ((line, dotted(alias.name).partition(".")[0]) for alias in line.names)
        elif line.module is not None and not line.relative:
            yield line, dotted(line.module).partition(".")[0]


def settings(source: Source) -> Iterator[tuple[cst.CSTNode, object, object]]:
    """Yield the node that sets a variable, the variable, and the value; `...` if not made only of constants.

    The node is a statement or its call or, if several variables are set at once, an entry or an argument.
    """
    tree = source.tree
    for statement in tree.of(cst.Assign):
        for name in (environ_key(tree, each.target) for each in statement.targets):
            if name is not None:
                yield statement, name, _constant(tree, statement.value)
    for call, form in source.forms_of(Kind.LINE_MAGIC):
        if form.name in ENV_MAGICS and (pair := assignment(form.text)) is not None:
            yield call, pair[0], ... if {"$", "{"} & set(pair[1]) else pair[1]
    for call in tree.of(cst.Call):
        name = tree.qualified(call.func)
        if name == DEFAULT and len(call.args) > 1:
            yield call, tree.literal(call.args[0].value), _constant(tree, call.args[1].value)
        elif name == "os.environ.update" and source.alone(call) is not None:
            for arg in call.args:
                if arg.keyword is not None:
                    yield arg, arg.keyword.value, _constant(tree, arg.value)
                else:
                    yield from _entries(tree, arg.value)
    for added in tree.of(cst.AugAssign):
        if isinstance(added.operator, cst.BitOrAssign) and tree.qualified(added.target) == "os.environ":
            yield from _entries(tree, added.value)


def _entries(tree: Tree, node: cst.BaseExpression) -> Iterator[tuple[cst.CSTNode, object, object]]:
    """Yield the entries of a dictionary display, with their keys and values."""
    for each in node.elements if isinstance(node, cst.Dict) else ():
        known = (
            (tree.literal(each.key), _constant(tree, each.value)) if isinstance(each, cst.DictElement) else (..., ...)
        )
        yield each, *known


def _constant(tree: Tree, node: cst.BaseExpression) -> object:
    """Return the constant, or the text made only of constants, to which an expression resolves; `...` for any other."""
    if (literal := tree.literal(node)) is not ...:
        return literal
    names = {name.value for part in tree.backward_slice(node) for name in tree.within(part, cst.Name)}
    bound = [[each for each in tree.bindings(name) if each.imported is None] for name in names]
    if not all(len(each) <= 1 and all(tree.is_top_level(one.node) for one in each) for each in bound):
        return ...
    (text, *others) = texts_of(tree, node)
    return ... if others or "*" in text else text


def statement_of(source: Source, node: cst.CSTNode) -> cst.BaseSmallStatement | None:
    """Return the statement of a node returned by `settings`; None if the statement also has another purpose."""
    if isinstance(node, cst.Call):
        return source.alone(node)
    return next(each for each in (node, *source.tree.ancestors(node)) if isinstance(each, cst.BaseSmallStatement))


def _setting(source: Source, node: cst.CSTNode, name: str, value: str, staying: list[cst.CSTNode]) -> Setting:
    tree, statement, form = source.tree, source.tree.statement(node), source.form(node)
    start, code_end = tree.line_start(tree.start(statement)), tree.span(statement)[1]
    beside = tree.source[code_end : tree.line_end(code_end)].strip(" ;")
    above = start if _is_above(source, statement, staying) else tree.comments_above(statement)
    return Setting(
        node,
        isinstance(node, cst.Call) and tree.qualified(node.func) == DEFAULT,
        name,
        value,
        moves=node not in staying,
        test=_test(tree, node),
        above=above,
        comments=tuple(tree.source[above:start].splitlines()),
        beside=(assignment(form.text) or ("", "", ""))[2] if form else beside,
    )


def _is_above(source: Source, statement: Statement, staying: list[cst.CSTNode]) -> bool:
    """Return whether the lines below a statement, up to a blank line, contain a setting that stays."""
    start = source.tree.start(statement)
    ends = [source.tree.source.find("\n\n", start), *source.cell_starts]
    end = min((end for end in ends if end > start), default=len(source.tree.source))
    return any(start < source.tree.start(node) < end for node in staying)


def _is_touched(source: Source, node: cst.CSTNode, name: str, early: list[_Plain]) -> bool:
    """Return whether other code above a setting names its variable, or the setting also binds a name."""
    tree, own = source.tree, [setting for setting, *_ in early]
    named: list[cst.CSTNode] = [place for place in tree.of(cst.SimpleString) if name in place.value]
    named += [call for call, form in source.forms_of(*Kind) if name in form.source]
    targets = [each.target for each in node.targets] if isinstance(node, cst.Assign) else []
    return any(environ_key(tree, each) is None for each in targets) or any(
        tree.start(place) < tree.start(node) and not {place, *tree.ancestors(place)} & set(own) for place in named
    )
