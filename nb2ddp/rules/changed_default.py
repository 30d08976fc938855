"""DDP213: What transformers 5 and datasets 4 changed is written out, where the notebook relies on the old way."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from nb2ddp.facts.flow import reached, returned
from nb2ddp.facts.loading import ModelKind, has_own_class, trained_loads
from nb2ddp.facts.program import Program
from nb2ddp.facts.releases import asked_for, taken, uses_unsloth
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import constant, is_closed, passed
from nb2ddp.syntax.edits import SetKeyword, Wrap
from nb2ddp.syntax.tree import Tree, argument
from nb2ddp.versions import tables

_CHANGED = Version("5")
_TRACKERS = ("wandb", "mlflow", "comet_ml", "neptune", "clearml", "swanlab", "trackio")
#: What tokens and a dictionary of them both have.
_OF_BOTH = frozenset({"to", "cuda"})
_OF_DICTIONARY = frozenset({"input_ids", "attention_mask", "items", "keys", "values", "get", "data", "pop"})
#: What makes a data set of the notebook's own rows, or of others.
_MAKERS = re.compile(r"datasets\.(Dataset\.from_\w+|concatenate_datasets|interleave_datasets)")
_TAKES_TOKENS = frozenset({"len", "generate", "decode", "batch_decode"})


@rule("DDP213", also_alone=True)
def changed_default(program: Program) -> Iterator[Finding]:
    tree = program.tree
    loads = trained_loads(tree, program.training.trainers, program.loads) or program.loads
    takes_both = bool(loads) and all(has_own_class(tree, load) for load in loads)
    templated = [call for call in tree.live(cst.Call) if tree.text(call.func).endswith(".apply_chat_template")]
    if SpecifierSet(asked_for(program.text, "datasets")).contains(tables()["newest"]["datasets"]):
        for call in templated:
            given = argument(call, "conversation", 0)
            if given is not None and _is_column(tree, given.value):
                said = "a column is no list since datasets 4, and would be taken for one conversation"
                yield Finding(call, f"{said}; the script makes a list of it", (Wrap(given.value, "list(", ")"),))
    releases = taken("transformers", asked_for(program.text, "transformers"), uses_unsloth(tree))
    if not releases or not Version(releases[0]) < _CHANGED <= Version(releases[-1]):
        return
    trackers = sorted({tree.qualified(call.func).split(".")[0] for call in tree.live(cst.Call)} & {*_TRACKERS})
    for call in tree.live(cst.Call):
        if call in templated and _is_of_tokens(tree, call, takes_both, program.model_kind is ModelKind.VISION):
            said = "apply_chat_template returns a dictionary since transformers 5; the script asks it for the tokens"
            yield Finding(call, said, (SetKeyword(call, "return_dict", "False"),))
        if trackers and _leaves_trackers_to_the_default(tree, call):
            names = ", ".join(f'"{name}"' for name in trackers)
            names = names if len(trackers) == 1 else f"[{names}]"
            said = f"transformers 5 reports to no tracker by default; the script says report_to = {names}"
            yield Finding(call, said, (SetKeyword(call, "report_to", names),))


def _is_column(tree: Tree, node: cst.BaseExpression) -> bool:
    """Whether an expression is a column of a data set, loaded or made, and perhaps mapped: `rows["messages"]`."""
    key = node.slice[0].slice if isinstance(node, cst.Subscript) else None
    if not isinstance(key, cst.Index) or not isinstance(tree.literal(key.value), str):
        return False
    rows = tree.value(cst.ensure_type(node, cst.Subscript).value)
    sources = reached([rows], lambda made: _made_from(tree, made))
    return any(isinstance(source, cst.Call) and _makes_rows(tree, source) for source in sources)


def _makes_rows(tree: Tree, call: cst.Call) -> bool:
    """Whether a call gives one data set, not a dictionary of them."""
    is_split = tree.text(call.func).endswith("load_dataset") and passed(tree, call, "split") is not None
    return is_split or _MAKERS.fullmatch(tree.qualified(call.func)) is not None


def _made_from(tree: Tree, made: cst.BaseExpression) -> list[cst.BaseExpression]:
    """What a method or a function makes a data set from: its owner, or its first argument, and what it returns."""
    if not isinstance(made, cst.Call):
        return []
    owner = [made.func.value] if isinstance(made.func, cst.Attribute) else []
    first = [each.value for each in made.args[:1]]
    return list(map(tree.value, [*(owner or first), *returned(tree, tree.definition(made.func))]))


def _leaves_trackers_to_the_default(tree: Tree, call: cst.Call) -> bool:
    is_one = tree.family(call.func).endswith(("transformers.TrainingArguments", "unsloth.UnslothTrainingArguments"))
    return is_one and is_closed(tree, call) and passed(tree, call, "report_to") is None


def _is_of_tokens(tree: Tree, call: cst.Call, takes_both: bool, is_processor: bool) -> bool:
    """Whether what a template gives is used as tokens, and nowhere as a dictionary of them.

    Args:
        tree: the notebook.
        call: of the template.
        takes_both: `generate` takes either as its `input_ids`: `unsloth_fast_generate` (models/llama.py, 2026.10.9) of
            models that have a class of their own does; `unsloth_base_fast_generate` (models/vision.py) takes tokens.
        is_processor: the template is a processor's, which gives text by default (`ProcessorMixin`, 4.56.2 and 5.17.0).
    """
    if constant(tree, call, "tokenize") is False or passed(tree, call, "return_dict") is not None:
        return False
    kinds = {_kind(tree, use, takes_both, is_processor) for use in _uses(tree, call)}
    return "tokens" in kinds and "dictionary" not in kinds


def _uses(tree: Tree, node: cst.CSTNode) -> list[cst.CSTNode]:
    """The value where it stands, or the uses of the name that it alone is bound to."""
    node = _moved(tree, node)
    assign = tree.parents[node]
    return [_moved(tree, use) for use in tree.bound_uses(assign)] if isinstance(assign, cst.Assign) else [node]


def _moved(tree: Tree, node: cst.CSTNode) -> cst.CSTNode:
    """What `.to(...)` and the like make of a value, or the value."""
    while isinstance(above := tree.parents[node], cst.Attribute) and above.attr.value in _OF_BOTH:
        node = tree.parents[above]
    return node


def _kind(tree: Tree, use: cst.CSTNode, takes_both: bool, is_processor: bool) -> str:
    above = tree.parents[use]
    if isinstance(above, cst.Attribute):
        return "dictionary" if above.attr.value in _OF_DICTIONARY else "tokens"
    if isinstance(above, cst.Subscript):
        return "dictionary" if any(tree.within(part, cst.SimpleString) for part in above.slice) else "tokens"
    if isinstance(above, cst.DictElement):
        return "" if is_processor else "tokens"
    if not isinstance(above, cst.Arg):
        return ""
    called = tree.parents[above]
    name = tree.text(called.func).rsplit(".", 1)[-1] if isinstance(called, cst.Call) else ""
    if above.star == "**":
        return "dictionary"
    if takes_both and above.keyword is not None and above.keyword.value == "input_ids":
        return ""
    return "tokens" if name in _TAKES_TOKENS else ""
