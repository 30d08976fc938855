"""Rules for names and arguments that the available releases lack, and for behaviour that they changed."""

from __future__ import annotations

import re

import libcst as cst
from packaging.version import Version

from nb2ddp.facts.loading import has_own_class, trained_loads
from nb2ddp.facts.program import Program
from nb2ddp.facts.releases import Use, available, changes, fitting, uses_unsloth
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, Findings, rule, todo
from nb2ddp.syntax.arguments import constant, is_closed, passed
from nb2ddp.syntax.edits import Replace, SetKeyword
from nb2ddp.syntax.tree import Tree, keyword, method

_TITLES = {"trl": "TRL", "transformers": "transformers"}
#: Methods that both tokens and a dictionary of them have.
_OF_BOTH = frozenset({"to", "cuda"})
_OF_DICTIONARY = frozenset("input_ids attention_mask items keys values get data pop".split())
_TAKES_TOKENS = frozenset({"len", "generate", "decode", "batch_decode"})
_DICTIONARY = "apply_chat_template returns a dictionary since transformers 5; the script asks it for the tokens"


@rule("DDP212", Severity.WARNING, also_alone=True)
def gone_from_the_library(program: Program) -> Findings:
    """Names and arguments that the versions at hand lack become the new ones, or get a `TODO`."""
    tree = program.tree
    for use, releases, asked in program.lacked:
        yield _finding(use, any(map(use.is_in, fitting(tree, use.library, releases))), releases[-1], asked)
    if uses_unsloth(tree) and _WITH_OWN.isdisjoint(tree.names_read):
        for call in program.execution.calls():
            yield from _refused(tree, call)
    releases = available(tree, program.text, "transformers")
    if releases and Version(releases[0]) < Version("5") <= Version(releases[-1]):
        loads = trained_loads(tree, program.training.trainers, program.loads)
        takes_both = bool(loads) and all(has_own_class(tree, load) for load in loads)
        for call in tree.live(cst.Call):
            if method(call) == "apply_chat_template" and _is_of_tokens(tree, call, takes_both):
                yield Finding(call, _DICTIONARY, SetKeyword(call, "return_dict", "False"), severity=Severity.NOTE)


def _finding(use: Use, is_asked_for: bool, newest: str, asked: str) -> Finding:
    """Return the finding on a name that is missing in the newest release that a job may have.

    Args:
        use: the use of the name.
        is_asked_for: the requirements ask for a release that has it.
        newest: that release.
        asked: the versions that the notebook asks for; "" for any.
    """
    title, new, last = _TITLES[use.library], use.successor, use.last_before(newest)
    lacked = f"{use.name} {f'was removed after {title} {last}' if last else f'was added in {title} {use.spans[0][0]}'}"
    if new and isinstance(use.node, cst.Arg) and use.node.keyword is not None:
        edit = Replace(use.node.keyword, new)
        return Finding(use.node, f"{lacked}; the script uses {new}", edit, severity=Severity.NOTE)
    if is_asked_for:
        message = "the requirements ask for a version that has it"
        return Finding(use.node, f"{lacked}; {message}", severity=Severity.NOTE)
    row = changes(use.library).get(use.name)
    advice = f"import it from {use.home}" if use.home else row.advice if row else "remove it"
    lacks = f"the {title} that the notebook asks for ({asked}) lacks it" if asked else f"no {title} for Unsloth has it"
    return todo(use.node, f"{lacked}, and {lacks}: {advice}")


#: Classes whose models define their own saving methods (unsloth/models/sentence_transformer.py, decision.py).
_WITH_OWN = frozenset({"FastSentenceTransformer", "FastDecisionModel"})


def _refused(tree: Tree, call: cst.Call) -> Findings:
    """Yield findings on arguments that Unsloth's saving methods no longer take, or that they need."""
    plain = [each for each in call.args if each.keyword is None]
    for name, row in changes("unsloth").items() if method(call) else ():
        given = keyword(call, name)
        if not re.fullmatch(row.owner, method(call)):
            continue
        if row.position:
            is_open = any(each.star == "*" for each in plain) or not is_closed(tree, call)
            if not is_open and len(plain) <= row.position and passed(tree, call, name) is None:
                yield todo(call, f"{method(call)} needs the {name}: {row.advice}")
        elif given is not None and row.value in ("", tree.literal(given.value)):
            message = f"{method(call)} no longer takes {name} = {tree.text(given.value)}"
            if row.instead:
                edit = Replace(cst.ensure_type(given.keyword, cst.Name), row.instead)
                yield Finding(call, f"{message}; the script uses {row.instead}", edit, severity=Severity.NOTE)
            else:
                yield todo(call, f"{message}: {row.advice}")


def _is_of_tokens(tree: Tree, call: cst.Call, takes_both: bool) -> bool:
    """Return whether the result of a template is used as tokens, and nowhere as a dictionary of them.

    Args:
        tree: the notebook.
        call: the call that applies the template.
        takes_both: `generate` takes either as its `input_ids`. `unsloth_fast_generate` (models/llama.py, 2026.10.9),
            of models with their own class, does; `unsloth_base_fast_generate` (models/vision.py) takes only tokens.
    """
    if constant(tree, call, "tokenize") is False or passed(tree, call, "return_dict") is not None:
        return False
    value = _moved(tree, call)
    assign = tree.parents[value]
    uses = [_moved(tree, use) for use in tree.bound_uses(assign)] if isinstance(assign, cst.Assign) else [value]
    kinds = {_kind(tree, use, takes_both) for use in uses}
    return "tokens" in kinds and "dictionary" not in kinds


def _moved(tree: Tree, node: cst.CSTNode) -> cst.CSTNode:
    """Return the last call of `.to(...)` or `.cuda(...)` on a value, or the value itself."""
    while isinstance(above := tree.parents[node], cst.Attribute) and above.attr.value in _OF_BOTH:
        node = tree.parents[above]
    return node


def _kind(tree: Tree, use: cst.CSTNode, takes_both: bool) -> str:
    """Return how a value is used: as "tokens", or as a "dictionary" of them; "" if it may be either."""
    above = tree.parents[use]
    match above:
        case cst.Attribute():
            return "dictionary" if above.attr.value in _OF_DICTIONARY else "tokens"
        case cst.Subscript():
            return "dictionary" if any(tree.within(part, cst.SimpleString) for part in above.slice) else "tokens"
        case cst.Arg(star="**"):
            return "dictionary"
        case cst.Arg(keyword=cst.Name(value="input_ids")) if takes_both:
            return ""
        case cst.Arg():
            called = tree.parents[above]
            name = tree.text(called.func).rsplit(".", 1)[-1] if isinstance(called, cst.Call) else ""
            return "tokens" if name in _TAKES_TOKENS else ""
    return "tokens" if isinstance(above, cst.DictElement) else ""
