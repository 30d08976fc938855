"""Environment variables that a notebook sets, and when."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from nb2ddp.facts.effects import ENV_MAGICS
from nb2ddp.facts.flow import first_import, grouped
from nb2ddp.facts.values import texts_of
from nb2ddp.notebook.magics import Kind
from nb2ddp.syntax.cells import Source
from nb2ddp.syntax.environ import LAUNCHER_VARIABLES, environ_key
from nb2ddp.syntax.tree import Statement, Tree, dotted

_ASSIGNMENT = re.compile(r"(?P<name>\w+)(?:\s*=\s*|\s+)(?P<value>.*)")
_COMMENT = re.compile(r"(?:^|\s+)(#.*)$")
#: What is read when it is needed, not by an import: settings of trackers, keys and tokens, and what Unsloth 2026.10.9
#: asks for when it loads a model or runs it (models/vision.py:4837, llama.py:2087, kernels/moe/autotune_cache.py:201).
_READ_LATER = re.compile(
    r"(WANDB|COMET|MLFLOW|NEPTUNE|CLEARML|TRACKIO|OPENAI)_\w+|\w+_(KEY|TOKEN)|HUGGING_FACE_HUB_TOKEN"
    r"|UNSLOTH_(RETURN_LOGITS|DISABLE_FAST_GENERATION|MOE_DISABLE_AUTOTUNE)"
)
#: What no package reads when it is imported but Unsloth and vLLM; and torch, at its first call to a GPU
#: (c10/cuda/CUDAAllocatorConfig.h, `instance`), which the setup block makes.
_READ_BY_OURS = re.compile(r"\w*UNSLOTH\w*|VLLM_\w+|PYTORCH_(CUDA_|HIP_)?ALLOC_CONF")
#: Packages that read variables of the Hub or of torch as they are imported.
_READERS = frozenset(
    "accelerate bitsandbytes datasets diffusers evaluate huggingface_hub peft sentence_transformers timm tokenizers"
    " torchaudio torchvision transformers triton trl unsloth_zoo vllm xformers".split()
)
#: What sets a variable unless it is set.
DEFAULT = "os.environ.setdefault"
#: What sets a variable, the variable, and its value.
_Plain = tuple[cst.CSTNode, str, str]


def assignment(text: str) -> tuple[str, str, str] | None:
    """Name, value and comment of `%env NAME=value # comment`; None where the magic only shows."""
    comment = _COMMENT.search(text)
    match = _ASSIGNMENT.fullmatch(_COMMENT.sub("", text).strip())
    return (match["name"], match["value"].strip(), comment[1] if comment else "") if match else None


@dataclass(frozen=True)
class Setting:
    """What sets a variable to a plain value before Unsloth is imported.

    Attributes:
        node: the statement, or its call, or an entry of several that are set at once.
        is_default: it sets the variable only where it is not set.
        name, value: the variable and its value.
        moves: the setup block's line does all that this one does.
        test: the test below which it stands, as the setup block can ask it too; empty for none.
        above: where the comments begin that speak of it alone; where its line does if there are none.
        comments: these comments, line by line.
        beside: the comment on its own line; empty for none.
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
    """What the notebook sets before its own import of Unsloth, for imports to read, in order.

    Args:
        source: its code.
        every: all that it sets, as `settings` gives it.
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
    lines = {holder(source, each[0]) for each in every if each not in moves}  # which stay, with all that they set
    staying = [node for node, *_ in every if holder(source, node) in lines]
    return [_setting(source, *plain, staying) for plain in early]


def _test(tree: Tree, node: cst.CSTNode) -> str:
    """The test below which a node stands outside functions, if it asks os and sys: `os.path.exists("/kaggle")`."""
    block = tree.parents[tree.statement(node)]
    branch = tree.parents[block] if block is not tree.module else block
    if not isinstance(branch, cst.If) or block is not branch.body or tree.parents[branch] is not tree.module:
        return ""
    test = tree.value(branch.test)
    names = [each for each in tree.within(test, cst.Name) if getattr(tree.parents[each], "attr", None) is not each]
    return tree.text(test) if all(each.value in ("os", "sys", "bool") for each in names) else ""


def imported_packages(tree: Tree) -> Iterator[tuple[cst.Import | cst.ImportFrom, str]]:
    """The live imports, in order, each with every package that it names; none from the notebook's own folder."""
    lines: list[cst.Import | cst.ImportFrom] = [*tree.live(cst.Import), *tree.live(cst.ImportFrom)]
    for line in tree.in_order(lines):
        if isinstance(line, cst.Import):
            yield from ((line, dotted(alias.name).partition(".")[0]) for alias in line.names)
        elif line.module is not None and not line.relative:
            yield line, dotted(line.module).partition(".")[0]


def settings(source: Source) -> Iterator[tuple[cst.CSTNode, object, object]]:
    """What sets a variable, the variable, and the value; `...` for what is not made of constants alone.

    That is a statement or its call; of several variables that are set at once, an entry or an argument.
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
    """The entries of a dictionary that is written in place, with their keys and values."""
    for each in node.elements if isinstance(node, cst.Dict) else ():
        known = (
            (tree.literal(each.key), _constant(tree, each.value)) if isinstance(each, cst.DictElement) else (..., ...)
        )
        yield each, *known


def _constant(tree: Tree, node: cst.BaseExpression) -> object:
    """The constant, or the text made of such alone, that an expression stands for; `...` for any other."""
    if (literal := tree.literal(node)) is not ...:
        return literal
    names = {name.value for part in tree.backward_slice(node) for name in tree.within(part, cst.Name)}
    bound = [[each for each in tree.bindings(name) if each.imported is None] for name in names]
    if not all(len(each) <= 1 and all(tree.is_top_level(one.node) for one in each) for each in bound):
        return ...
    (text, *others) = texts_of(tree, node)
    return ... if others or "*" in text else text


def holder(source: Source, node: cst.CSTNode) -> cst.BaseSmallStatement | None:
    """The statement of what sets a variable, as `settings` gives it; None where it has another purpose too."""
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
    """True where the lines below a statement, up to a blank one, hold a setting that stays."""
    start = source.tree.start(statement)
    ends = [source.tree.source.find("\n\n", start), *source.cell_starts]
    end = min((end for end in ends if end > start), default=len(source.tree.source))
    return any(start < source.tree.start(node) < end for node in staying)


def _is_touched(source: Source, node: cst.CSTNode, name: str, early: list[_Plain]) -> bool:
    """True where code above a statement names its variable, other than such statements; or it binds a name too."""
    tree, own = source.tree, [setting for setting, *_ in early]
    named: list[cst.CSTNode] = [place for place in tree.of(cst.SimpleString) if name in place.value]
    named += [call for call, form in source.forms_of(*Kind) if name in form.source]
    targets = [each.target for each in node.targets] if isinstance(node, cst.Assign) else []
    return any(environ_key(tree, each) is None for each in targets) or any(
        tree.start(place) < tree.start(node) and not {place, *tree.ancestors(place)} & set(own) for place in named
    )
