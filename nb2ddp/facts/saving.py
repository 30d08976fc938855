"""Calls of the methods that save Unsloth's models, and what its newest release takes.

`fields.json` has these methods' parameters (`python -m tests.fields` reads them from the wheel).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from nb2ddp.facts.execution import Execution
from nb2ddp.facts.releases import table, uses_unsloth
from nb2ddp.syntax.tree import Tree, argument, method

#: Classes whose models have saving methods of their own (unsloth/models/sentence_transformer.py, decision.py).
_WITH_OWN = frozenset({"FastSentenceTransformer", "FastDecisionModel"})


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
