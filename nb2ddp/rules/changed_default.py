"""DDP213: What transformers 5 changed is written out, where the notebook relies on the old way."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from packaging.version import Version

from nb2ddp.facts.loading import ModelKind, has_own_class, trained_loads
from nb2ddp.facts.program import Program
from nb2ddp.facts.releases import asked_for, taken, uses_unsloth
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import constant, is_closed, passed
from nb2ddp.syntax.edits import SetKeyword
from nb2ddp.syntax.tree import Tree

_CHANGED = Version("5")
_TRACKERS = ("wandb", "mlflow", "comet_ml", "neptune", "clearml", "swanlab", "trackio")
#: What tokens and a dictionary of them both have.
_OF_BOTH = frozenset({"to", "cuda"})
_OF_DICTIONARY = frozenset({"input_ids", "attention_mask", "items", "keys", "values", "get", "data", "pop"})
_TAKES_TOKENS = frozenset({"len", "generate", "decode", "batch_decode"})


@rule("DDP213", also_alone=True)
def changed_default(program: Program) -> Iterator[Finding]:
    tree = program.tree
    loads = trained_loads(tree, program.training.trainers, program.loads) or program.loads
    takes_both = bool(loads) and all(has_own_class(tree, load) for load in loads)
    templated = [call for call in tree.live(cst.Call) if tree.text(call.func).endswith(".apply_chat_template")]
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
