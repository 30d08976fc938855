"""DDP216: A call that Unsloth's saving methods no longer take gets its new form, or a `TODO`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.facts.saving import Save, has_save_method, release, saves, tokenizer_of, unknown_save_method
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import is_closed, passed
from nb2ddp.syntax.edits import Edit, Replace, SetKeyword
from nb2ddp.syntax.tree import argument, method

#: Arguments that have a plain successor.
_SUCCESSORS = {"quantization_type": "quantization_method"}
#: How Unsloth is told to save in 4 bits, which merges the adapter in place (unsloth/save.py and unsloth_zoo's
#: saving_utils.py, 2026.10.9: `merge_and_unload`).
_MERGING = ("merged_4bit_forced", "forced_merged_4bit")
#: Kinds of GGUF files.
_GGUF = re.compile(r"i?q\d|.*gguf", re.I)


@rule("DDP216", Severity.WARNING, also_alone=True)
def refused_save(program: Program) -> Iterator[Finding]:
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
