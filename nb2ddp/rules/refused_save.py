"""DDP216: A call that Unsloth's saving methods no longer take gets its new form, or a `TODO`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.facts.releases import newest
from nb2ddp.facts.saving import (
    Save,
    gguf_folders,
    has_save_method,
    path_in,
    refused_keywords,
    refused_pushes,
    release,
    saves,
    tokenizer_of,
    unknown_save_method,
    with_modelfiles,
)
from nb2ddp.notebook.magics import Kind
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import is_closed, passed
from nb2ddp.syntax.edits import Cut, Edit, Replace, SetKeyword
from nb2ddp.syntax.tree import Tree, argument, keyword, method

#: Arguments that have a plain successor.
_SUCCESSORS = {"quantization_type": "quantization_method"}
#: How Unsloth is told to save in 4 bits, which merges the adapter in place (unsloth/save.py and unsloth_zoo's
#: saving_utils.py, 2026.10.9: `merge_and_unload`).
_MERGING = ("merged_4bit_forced", "forced_merged_4bit")
#: What lists the files of a folder.
_LISTS = re.compile(r"\b(listdir|scandir|walk|i?glob|iterdir)\(")
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
    yield from _pushes(program)
    yield from _looks_for_gguf(program)
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


def _looks_for_gguf(program: Program) -> Iterator[Finding]:
    """Where the notebook looks for GGUF files or their Modelfile in the folder that it names for them."""
    tree = program.tree
    texts: list[tuple[cst.BaseExpression, str]] = [(text, tree.content(text)) for text in tree.live(cst.SimpleString)]
    texts += [(call, str(form)) for call, form in program.forms_of(Kind.SHELL) if tree.is_live(call)]
    told = set[cst.CSTNode]()
    for call, folder in gguf_folders(program.execution):
        file = re.compile(rf"{path_in(folder)}/(Modelfile\b|[^/\s]*\.gguf\b)")
        for node, text in texts:
            line = tree.statement(node)
            lists = text == folder and ".gguf" in tree.text(line) and _LISTS.search(tree.text(line))
            is_later = tree.start(node) > tree.span(call)[1]
            if is_later and line not in told and (file.search(text) or lists):
                told.add(line)
                files = "GGUF files, named after the model," if lists or ".gguf" in text else "the Modelfile"
                writes = f"Unsloth {release()} writes {files} to {folder}_gguf, not to {folder}"
                moved = with_modelfiles(program.execution, node, tree.text(node))
                if lists or ".gguf" in text or not (moved != tree.text(node) or program.form(node)):
                    yield Finding(node, f"{writes}: look there", todo=True)
                else:  # a shell command gets it as it is written (DDP305)
                    edits = (Replace(node, moved),) if moved != tree.text(node) else ()
                    yield Finding(node, f"{writes}; the script looks there", edits, Severity.NOTE, fixed=True)


def _pushes(program: Program) -> Iterator[Finding]:
    """What `push_to_hub` of transformers no longer takes by position; a tokenizer there did not go up."""
    tree, library = program.tree, newest(program.tree, program.text, "transformers")
    for call, is_tokenizer in refused_pushes(program.execution, program.loads, library) if library else ():
        told = f"push_to_hub of transformers {library} takes only the repo_id by position"
        if is_tokenizer:
            ends = [tree.span(each.value)[1] for each in call.args[:2]]
            yield Finding(call, f"{told}; the script leaves the tokenizer out", (Cut(*ends),), Severity.NOTE)
        else:
            yield Finding(call, f"{told}; name the others (token = ...)", todo=True)
    for call in program.execution.calls():
        old = keyword(call, "use_auth_token") if method(call) == "push_to_hub" else None
        if old is not None and old.keyword is not None and keyword(call, "token") is None:
            told = "push_to_hub of transformers 5 has token for use_auth_token; the script writes it so"
            yield Finding(call, told, (Replace(old.keyword, "token"),), Severity.NOTE)
    yield from _keywords(program, library)


def _keywords(program: Program, library: str) -> Iterator[Finding]:
    """What `push_to_hub` of transformers no longer takes by keyword."""
    tree = program.tree
    for call, refused in refused_keywords(program.execution, library) if library else ():
        for given in refused:
            name = given.keyword.value if given.keyword is not None else ""
            told, at = f"push_to_hub of transformers {library} has no {name}", list(call.args).index(given)
            if name == "use_auth_token" and keyword(call, "token") is None:
                continue  # `token` is its name now
            if at and _says_nothing(tree, given, name):
                cut = Cut(tree.span(call.args[at - 1].value)[1], tree.span(given.value)[1])
                yield Finding(call, f"{told}; the script leaves it out", (cut,), Severity.NOTE)
            else:
                yield Finding(call, f"{told}: leave it out", todo=True)


def _says_nothing(tree: Tree, given: cst.Arg, name: str) -> bool:
    """True for an argument of `push_to_hub` without which the same goes up: `safe_serialization = True`."""
    value = tree.literal(given.value)
    if name == "safe_serialization":
        return value in (True, None)
    return name in ("use_temp_dir", "tokenizer") or (name == "save_method" and value == "lora")


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
