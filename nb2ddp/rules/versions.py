"""What the releases at hand lack or do otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst
from packaging.version import Version

from nb2ddp.facts.loading import ModelKind, has_own_class, trained_loads
from nb2ddp.facts.program import Program
from nb2ddp.facts.releases import SUCCESSORS, Use, asked_for, fitting, taken, uses_unsloth
from nb2ddp.facts.saving import Save, has_save_method, release, saves, tokenizer_of, unknown_save_method
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import constant, is_closed, passed
from nb2ddp.syntax.edits import Edit, Replace, SetKeyword
from nb2ddp.syntax.tree import Tree, argument, method

_TITLES = {"trl": "TRL", "transformers": "transformers"}
#: What to write instead.
_INSTEAD = {
    "DataCollatorForCompletionOnlyLM": "unsloth.chat_templates.train_on_responses_only masks the prompts",
    "setup_chat_format": "unsloth.chat_templates.get_chat_template sets the template",
}


@rule("DDP212", Severity.WARNING, also_alone=True)
def gone_from_the_library(program: Program) -> Iterator[Finding]:
    """Names and arguments that the versions at hand lack become the new ones, or get a `TODO`."""
    for use, releases, asked in program.lacked:
        having = tuple(filter(use.is_in, fitting(program.tree, use.library, releases)))
        yield _finding(use, having, releases[-1], asked)


def _finding(use: Use, having: tuple[str, ...], newest: str, asked: str) -> Finding:
    title, new = _TITLES[use.library], SUCCESSORS.get(use.name)
    last = use.last_before(newest)
    told = f"{use.name} {f'is gone after {title} {last}' if last else f'came with {title} {use.spans[0][0]}'}"
    if new and isinstance(use.node, cst.Arg) and use.node.keyword is not None:
        return Finding(use.node, f"{told}; the script calls it {new}", (Replace(use.node.keyword, new),), Severity.NOTE)
    if having:
        return Finding(use.node, f"{told}; the requirements ask for a version that has it", severity=Severity.NOTE)
    lacks = f"the {title} that the notebook asks for ({asked}) lacks it" if asked else f"no {title} for Unsloth has it"
    otherwise = "take it out" if last else "ask for a newer one, or take it out"
    instead = f"import it from {use.home}" if use.home else _INSTEAD.get(use.name, otherwise)
    return Finding(use.node, f"{told}, and {lacks}: {instead}", todo=True)


_CHANGED = Version("5")
_TRACKERS = ("wandb", "mlflow", "comet_ml", "neptune", "clearml", "swanlab", "trackio")
#: What tokens and a dictionary of them both have.
_OF_BOTH = frozenset({"to", "cuda"})
_OF_DICTIONARY = frozenset({"input_ids", "attention_mask", "items", "keys", "values", "get", "data", "pop"})
_TAKES_TOKENS = frozenset({"len", "generate", "decode", "batch_decode"})


@rule("DDP213", also_alone=True)
def changed_default(program: Program) -> Iterator[Finding]:
    """Defaults that transformers 5 changed are written out, if the notebook relies on the old ones."""
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


#: Arguments that have a plain successor.
_SUCCESSORS = {"quantization_type": "quantization_method"}
#: How Unsloth is told to save in 4 bits, which merges the adapter in place (unsloth/save.py and unsloth_zoo's
#: saving_utils.py, 2026.10.9: `merge_and_unload`).
_MERGING = ("merged_4bit_forced", "forced_merged_4bit")
#: Kinds of GGUF files.
_GGUF = re.compile(r"i?q\d|.*gguf", re.I)


@rule("DDP216", Severity.WARNING, also_alone=True)
def refused_save(program: Program) -> Iterator[Finding]:
    """A call that Unsloth's saving methods no longer take gets its new form, or a `TODO`."""
    for save in saves(program.execution):
        called = f"{method(save.call)} of Unsloth {release()}"
        unknown = unknown_save_method(program.tree, save)
        if unknown:
            message = f'{called} takes no save_method "{unknown}": {_instead(program, save.call, unknown)}'
            yield Finding(save.call, message, todo=True)
        if _GGUF.match(unknown):
            continue
        unfit = list(_unfit(program, save))
        told = f"{called} {_listed([each for each, _ in unfit])}"
        if unfit and all(edits for _, edits in unfit):
            edits = tuple(edit for _, edits in unfit for edit in edits)
            yield Finding(save.call, f"{told}; the script writes it so", edits, Severity.NOTE)
        elif unfit:
            form = ", ".join(save.takes[:3])
            yield Finding(save.call, f"{told}; write {method(save.call)}({form}, ...)", todo=True)
    yield from _without_adapter(program)


def _without_adapter(program: Program) -> Iterator[Finding]:
    """The first save behind one in 4 bits, which merges the adapter into the model: it would save the base model."""
    tree, every = program.tree, [*saves(program.execution)]
    given = {save.call: argument(save.call, "save_method", 2) for save in every}
    methods = {call: tree.literal(each.value) for call, each in given.items() if each is not None}
    ends = [tree.span(call)[1] for call, name in methods.items() if name in _MERGING]
    for save in every:
        if any(end < tree.start(save.call) for end in ends) and methods.get(save.call) not in (*_MERGING, "lora"):
            told = "the save in 4 bits above has merged the adapter into its model, so this one saves the base model"
            yield Finding(save.call, f"{told}: move it above that save", todo=True)
            return


def _unfit(program: Program, save: Save) -> Iterator[tuple[str, tuple[Edit, ...]]]:
    """What does not fit the method, in words, and its new form where that is certain."""
    names = [name for name, _ in save.given]
    for name, given in save.given:
        new = _SUCCESSORS.get(name, "")
        if name in save.takes:
            continue
        if given.keyword is not None and new in save.takes and new not in names:
            yield f"has {new} for {name}", (Replace(given.keyword, new),)
        else:
            yield f"has no {name}" if name else "takes fewer arguments", ()
    yield from ((f"takes {name} once", ()) for name in dict.fromkeys(names) if name and names.count(name) > 1)
    if any(each.star == "*" for each in save.call.args) or not is_closed(program.tree, save.call):
        return
    for name in save.needs:
        if name not in names and passed(program.tree, save.call, name) is None:
            value = tokenizer_of(program.tree, program.loads, save.call) if name == "tokenizer" else ""
            yield f"needs the {name}", (SetKeyword(save.call, name, value),) if value else ()


def _listed(parts: list[str]) -> str:
    """Parts of a sentence: `a, b and c`."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def _instead(program: Program, call: cst.Call, save_method: str) -> str:
    """What to write in the place of an unknown `save_method`."""
    if has_save_method(forced := f"{save_method}_forced"):
        return f'write "{forced}" if that is what you want'
    if _GGUF.match(save_method):
        given = argument(call, "quantization_method")
        kind = f'"{save_method}"' if given is None else program.tree.text(given.value)
        kind = "..." if given is None and "gguf" in save_method.lower() else kind
        writing = method(call).replace("_merged", "_gguf")
        return f"{writing}(..., quantization_method = {kind}) writes a GGUF file of this kind"
    return 'write "merged_16bit" or "lora"'
