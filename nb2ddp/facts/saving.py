"""Calls of the methods that save Unsloth's models, and what its newest release takes.

`fields.json` has these methods' parameters (`python -m tests.fields` reads them from the wheel).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from nb2ddp.facts.execution import Execution
from nb2ddp.facts.releases import parameters, table, uses_unsloth
from nb2ddp.syntax.tree import Tree, argument, method

#: Classes whose models have saving methods of their own (unsloth/models/sentence_transformer.py, decision.py).
_WITH_OWN = frozenset({"FastSentenceTransformer", "FastDecisionModel"})

#: What makes models and tokenizers with transformers' `push_to_hub`.
_MAKERS = re.compile(r"(transformers|peft|unsloth)\.|.*\.merge_and_unload$")


@dataclass(frozen=True)
class Save:
    """A call of a saving method.

    Attributes:
        call: the call.
        takes: the parameters of the method, in order.
        needs: those that it fails without.
    """

    call: cst.Call
    takes: tuple[str, ...]
    needs: tuple[str, ...]

    @property
    def given(self) -> list[tuple[str, cst.Arg]]:
        """The arguments that are written out, by name; "" for one more than the method takes."""
        plain = [each for each in self.call.args if each.keyword is None and each.star != "**"]
        if any(each.star for each in plain):
            plain = []
        names = [*self.takes, *[""] * len(plain)]
        named = [(each.keyword.value, each) for each in self.call.args if each.keyword is not None]
        return [*zip(names, plain, strict=False), *named]


def release() -> str:
    """The Unsloth whose methods these are."""
    return str(table()["unsloth"]["release"])


def saves(execution: Execution) -> Iterator[Save]:
    """The calls of Unsloth's saving methods."""
    tree = execution.tree
    own = {function.name.value for function in tree.of(cst.FunctionDef)}
    if uses_unsloth(tree) and _WITH_OWN.isdisjoint(tree.names_read):
        for call in execution.calls():
            form = table()["unsloth"]["saves"].get(method(call))
            if form is not None and method(call) not in own:
                yield Save(call, tuple(form["takes"]), tuple(form["needs"]))


def gguf_folders(execution: Execution) -> Iterator[tuple[cst.Call, str]]:
    """The saves as GGUF into a folder that the notebook writes out: their files come into `X_gguf`, beside it."""
    made = (save.call for save in saves(execution) if method(save.call) == "save_pretrained_gguf")
    for call in made:
        given = argument(call, "save_directory", 0)
        folder = None if given is None else execution.tree.literal(given.value)
        if isinstance(folder, str):
            yield call, folder


def with_modelfiles(execution: Execution, node: cst.CSTNode, text: str) -> str:
    """A text in which the paths of Modelfiles that saves above a node write have the folder in which they are."""
    for call, folder in gguf_folders(execution):
        if execution.tree.span(call)[1] < execution.tree.start(node):
            path = re.compile(f"({path_in(folder)})/Modelfile\\b")
            text = path.sub(lambda found: f"{found[1]}_gguf/Modelfile", text)
    return text


def path_in(folder: str) -> str:
    """A pattern for a folder of the current one, with what stands before it, where a text names it as such."""
    return rf"(?:^|[\s='\"]|(?<!\.)\./|/content/|/working/){re.escape(folder)}"


def refused_pushes(execution: Execution, loads: Sequence[cst.Call], release: str) -> Iterator[tuple[cst.Call, bool]]:
    """The calls of a model's `push_to_hub` with more by position than a release of transformers takes there.

    With whether that is the model's tokenizer, which older releases took for `use_temp_dir`.
    """
    tree, most = execution.tree, len(parameters("transformers", "push_to_hub", release))
    for call in execution.calls():
        plain = [each for each in call.args if each.keyword is None]
        tokenizer = tokenizer_of(tree, loads, call) if method(call) == "push_to_hub" else ""
        if tokenizer and len(plain) > most and not any(each.star for each in plain):
            yield call, [tree.text(each.value) for each in plain[most:]] == [tokenizer]


def refused_keywords(execution: Execution, release: str) -> Iterator[tuple[cst.Call, list[cst.Arg]]]:
    """The calls of a `push_to_hub` with keywords that a release of transformers does not take, and these.

    Releases that take more than the repo_id by position take any keyword. `use_temp_dir` belongs to transformers alone.
    """
    tree, known = execution.tree, parameters("transformers", "push_to_hub by keyword", release)
    for call in execution.calls() if len(parameters("transformers", "push_to_hub", release)) == 1 else ():
        if method(call) == "push_to_hub":
            named = [(each.keyword.value, each) for each in call.args if each.keyword is not None]
            taken = known if _is_of_transformers(tree, call) else [name for name, _ in named if name != "use_temp_dir"]
            if refused := [each for name, each in named if name not in taken]:
                yield call, refused


def _is_of_transformers(tree: Tree, call: cst.Call) -> bool:
    """True for a method of a model or a tokenizer that transformers, PEFT or Unsloth made."""
    made = tree.definition(call.func.value) if isinstance(call.func, cst.Attribute) else None
    name = tree.qualified(made.value.func) if isinstance(made, cst.Assign) and isinstance(made.value, cst.Call) else ""
    return bool(_MAKERS.match(name)) and _WITH_OWN.isdisjoint(name.split("."))


def unknown_save_method(tree: Tree, save: Save) -> str:
    """The `save_method` of a merging save, if Unsloth knows none of this name; else empty."""
    given = argument(save.call, "save_method", 2) if method(save.call).endswith("_merged") else None
    name = tree.literal(given.value) if given is not None else None
    known = table()["unsloth"]["save_methods"]
    return name if isinstance(name, str) and _spelled(name) not in known else ""


def has_save_method(name: str) -> bool:
    """Whether Unsloth knows a `save_method`."""
    return name in table()["unsloth"]["save_methods"]


def _spelled(name: str) -> str:
    """A method as Unsloth spells it, which takes it in other ways too."""
    return name.lower().strip().replace("-", "_").replace(" ", "_")


def tokenizer_of(tree: Tree, loads: Sequence[cst.Call], call: cst.Call) -> str:
    """The name of the tokenizer that is loaded with the model whose method is called; "" where nothing shows it."""
    model = tree.text(call.func.value) if isinstance(call.func, cst.Attribute) else ""
    assigned = [tree.parents[load] for load in loads]
    targets = [each.targets[0].target for each in assigned if isinstance(each, cst.Assign)]
    pairs = [[tree.text(part.value) for part in each.elements] for each in targets if isinstance(each, cst.Tuple)]
    names = {pair[1] for pair in pairs if len(pair) == 2 and pair[0] == model} - {"_"}
    return next((name for name in names if len(names) == 1 and tree.bound_at(call)(name)), "")
