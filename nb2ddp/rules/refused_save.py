"""DDP216: A call that Unsloth's saving methods no longer take gets its new form, or a `TODO`.

Unsloth refuses it only when the training is over: `save_pretrained_gguf` without a tokenizer or with
`quantization_type`, a `push_to_hub_gguf(save_directory = ...)`, `save_method = "merged_4bit"`. What these methods take
is read from Unsloth's wheel (2026.10.9). The models of `FastSentenceTransformer` and `FastDecisionModel` have methods
of their own. GGUF files and their Modelfile come into `X_gguf`, beside the folder X that is given (unsloth/save.py, in
the wheel 2026.7.1 too): paths of a Modelfile in X become its own, other code that looks there gets a `TODO`. Of
`push_to_hub`, transformers 5 takes only the repo_id by position (utils/hub.py; 4.57 took `use_temp_dir` second),
neither `use_temp_dir` nor `safe_serialization`.
"""

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
from nb2ddp.rules.rule import Example, Finding, Rule
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


def find(program: Program) -> Iterator[Finding]:
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


_LOAD = 'from unsloth import FastModel\nmodel, tokenizer = FastModel.from_pretrained("m")\n'
_TODO = "# TODO[nb2ddp] DDP216: {} of Unsloth 2026.10.9 {}\n"
_UPLOAD = 'model.push_to_hub_gguf("gguf", repo_id = "me/gguf", tokenizer = tokenizer)\n'
_OTHER = 'other.save_pretrained_gguf("gguf", quantization_method = "q8_0")\n'
_FOUR_BITS = 'model.save_pretrained_merged("merged", tokenizer, save_method = "merged_4bit")\n'
_QUANTIZED = 'model.save_pretrained_merged("merged", tokenizer, save_method = "q4_k_m")\n'
_GGUF_FILE = 'model.push_to_hub_merged("me/x", tokenizer, save_method = "quantized_gguf", quantization_method = KIND)\n'

_EXPORT = 'model.save_pretrained_gguf("gguf", tokenizer)\n'
_LOOKS = "Unsloth 2026.10.9 writes GGUF files, named after the model, to gguf_gguf, not to gguf: look there"
_FORCED = 'model.save_pretrained_merged("four", tokenizer, save_method = "merged_4bit_forced")\n'
_BASE = "the save in 4 bits above has merged the adapter into its model, so this one saves the base model"
_LIST = 'files = [file for file in os.listdir("gguf") if file.endswith(".gguf")]\n'

RULE = Rule(
    name="refused-save",
    find=find,
    severity=Severity.WARNING,
    also_alone=True,
    examples=(
        Example(
            _LOAD + "import os\n" + _EXPORT + _LIST + 'tokenizer.save_pretrained("gguf")\n',
            _LOAD
            + "import os\n"
            + _EXPORT
            + f"# TODO[nb2ddp] DDP216: {_LOOKS}\n"
            + _LIST
            + 'tokenizer.save_pretrained("gguf")\n',
        ),
        Example(_LOAD + _EXPORT + "!ollama create mine -f ./gguf/Modelfile\n", reported=True),
        Example(
            _LOAD + _EXPORT + 'print(open("gguf/Modelfile").read())\nmodel = Llama("gguf/unsloth.Q8_0.gguf")\n',
            _LOAD
            + _EXPORT
            + 'print(open("gguf_gguf/Modelfile").read())\n'
            + f"# TODO[nb2ddp] DDP216: {_LOOKS}\n"
            + 'model = Llama("gguf/unsloth.Q8_0.gguf")\n',
        ),
        Example(
            _LOAD + _FORCED + _EXPORT,
            _LOAD + _FORCED + f"# TODO[nb2ddp] DDP216: {_BASE}: move it above that save\n" + _EXPORT,
        ),
        Example(_LOAD + _EXPORT + _FORCED),
        Example(_LOAD + _EXPORT + 'print("See other/gguf/Modelfile")\n!cat other/gguf/Modelfile\n'),
        Example(
            _LOAD + 'model.save_pretrained_gguf("gguf", quantization_type = "Q8_0")\n',
            _LOAD + 'model.save_pretrained_gguf("gguf", quantization_method = "Q8_0", tokenizer = tokenizer)\n',
        ),
        Example(
            _LOAD + _OTHER,
            _LOAD
            + _TODO.format(
                "save_pretrained_gguf",
                "needs the tokenizer; write save_pretrained_gguf(save_directory, tokenizer, quantization_method, ...)",
            )
            + _OTHER,
        ),
        Example(
            _LOAD + _UPLOAD,
            _LOAD
            + _TODO.format(
                "push_to_hub_gguf",
                "takes repo_id once; write push_to_hub_gguf(repo_id, tokenizer, quantization_method, ...)",
            )
            + _UPLOAD,
        ),
        Example(
            _LOAD + _FOUR_BITS,
            _LOAD
            + _TODO.format(
                "save_pretrained_merged",
                'takes no save_method "merged_4bit": write "merged_4bit_forced" if that is what you want',
            )
            + _FOUR_BITS,
        ),
        Example(
            _LOAD + _QUANTIZED,
            _LOAD
            + _TODO.format(
                "save_pretrained_merged",
                'takes no save_method "q4_k_m": save_pretrained_gguf(..., quantization_method = "q4_k_m") writes a'
                " GGUF file of this kind",
            )
            + _QUANTIZED,
        ),
        Example(
            _LOAD + _GGUF_FILE,
            _LOAD
            + _TODO.format(
                "push_to_hub_merged",
                'takes no save_method "quantized_gguf": push_to_hub_gguf(..., quantization_method = KIND) writes a GGUF'
                " file of this kind",
            )
            + _GGUF_FILE,
        ),
        Example(
            _LOAD + 'model.push_to_hub("me/lora", tokenizer, token = t)\nmodel.push_to_hub("me/lora", tokenizer)\n',
            _LOAD + 'model.push_to_hub("me/lora", token = t)\nmodel.push_to_hub("me/lora")\n',
        ),
        Example(
            _LOAD + 'model.push_to_hub("me/lora", False, "epoch 3")\n',
            _LOAD
            + "# TODO[nb2ddp] DDP216: push_to_hub of transformers 5.17.0 takes only the repo_id by position; name the"
            ' others (token = ...)\nmodel.push_to_hub("me/lora", False, "epoch 3")\n',
        ),
        Example(
            _LOAD + 'model.push_to_hub("me/lora", use_auth_token = t)\n',
            _LOAD + 'model.push_to_hub("me/lora", token = t)\n',
        ),
        Example(
            _LOAD
            + 'model.push_to_hub("me/lora", use_temp_dir = False, token = t, safe_serialization = True)\n'
            + 'tokenizer.push_to_hub("me/lora", token = t, use_temp_dir = False)\n',
            _LOAD + 'model.push_to_hub("me/lora", token = t)\n' + 'tokenizer.push_to_hub("me/lora", token = t)\n',
        ),
        Example(
            _LOAD + 'model.push_to_hub("me/lora", tokenizer = tokenizer, save_method = "lora", token = t)\n',
            _LOAD + 'model.push_to_hub("me/lora", token = t)\n',
        ),
        Example(
            _LOAD + 'model.push_to_hub("me/all", save_method = "merged_16bit")\n',
            _LOAD
            + "# TODO[nb2ddp] DDP216: push_to_hub of transformers 5.17.0 has no save_method: leave it out\n"
            + 'model.push_to_hub("me/all", save_method = "merged_16bit")\n',
        ),
        Example(
            _LOAD + 'model.push_to_hub("lora", organization = "me", commit_message = "epoch 3")\n',
            _LOAD
            + "# TODO[nb2ddp] DDP216: push_to_hub of transformers 5.17.0 has no organization: leave it out\n"
            + 'model.push_to_hub("lora", organization = "me", commit_message = "epoch 3")\n',
        ),
        Example("!pip install transformers==4.56.2\n" + _LOAD + 'model.push_to_hub("me/lora", tokenizer)\n'),
        Example("!pip install transformers==4.56.2\n" + _LOAD + 'model.push_to_hub("me/a", use_temp_dir = False)\n'),
        Example(_LOAD + 'rows.push_to_hub("me/rows", split = "train")\nmodel.push_to_hub("me/a", private = True)\n'),
        Example(_LOAD + 'data.push_to_hub("me/rows", tokenizer)\nmodel.push_to_hub_merged("me/all", tokenizer)\n'),
        Example(_LOAD + 'model.save_pretrained_gguf("gguf", tokenizer, "q8_0")\n'),
        Example(_LOAD + "model.save_pretrained_gguf(*where, **how)\n"),
        Example(_LOAD + 'model.save_pretrained_merged("merged", save_method = "FP8")\n'),
        Example(
            "from unsloth import FastSentenceTransformer\n"
            'model = FastSentenceTransformer.from_pretrained("m")\nmodel.save_pretrained_gguf("gguf")\n'
        ),
    ),
)
