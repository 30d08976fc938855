"""The random numbers of a notebook."""

from __future__ import annotations

import re
from collections.abc import Container

import libcst as cst

from nb2ddp.facts.effects import DRAWING, SEEDING
from nb2ddp.facts.placement import Placement
from nb2ddp.syntax.tree import Tree, argument

#: What takes a seed from the operating system where it is given none, whatever has been seeded before.
_GENERATORS = re.compile(r"numpy\.random\.(default_rng|RandomState|seed)|random\.(Random|seed)")
_SEED_KEYWORDS = ("random_state", "seed")


def seed(tree: Tree) -> str:
    """The seed the notebook itself names, or transformers' default."""
    given = [tree.literal(value) for name in _SEED_KEYWORDS for value in tree.given(name)]
    return str(next((value for value in given if isinstance(value, int)), 42))


def generator(tree: Tree, call: cst.Call) -> str | None:
    """The library from whose common generator a call draws: `random`, `numpy` or `torch`; None where it draws not."""
    name = tree.qualified(call.func)
    return next((library for library, functions in DRAWING.items() if re.fullmatch(functions, name)), None)


def seeds_itself(tree: Tree, call: cst.Call) -> bool:
    """True for a call that seeds a generator with what the operating system gives: `random.Random()`."""
    return bool(_GENERATORS.fullmatch(tree.qualified(call.func))) and not call.args


def may_lack_seed(tree: Tree, call: cst.Call, made: Container[cst.Call]) -> bool:
    """True for `random.Random(seed)` of a parameter that is None by default, and that one of the calls made leaves out.

    What a method keeps of such a parameter, `self.seed`, may stand in its place; no test of it is around the call.
    """
    if not _GENERATORS.fullmatch(tree.qualified(call.func)) or len(call.args) != 1:
        return False
    given, own = tree.text(call.args[0].value), tree.around(call, cst.ClassDef)
    tests = [above.test for above in tree.ancestors(call) if isinstance(above, (cst.If, cst.IfExp))]
    if any(re.search(rf"\b{re.escape(given)}\b", tree.text(test)) for test in tests):
        return False
    kept = [each for each in tree.of(cst.Assign) if own is not None and tree.around(each, cst.ClassDef) is own]
    values = [each.value for each in kept if tree.text(each.targets[0].target) == given]
    return any(_is_left_out(tree, value, made) for value in values or [call.args[0].value])


def _is_left_out(tree: Tree, node: cst.BaseExpression, made: Container[cst.Call]) -> bool:
    """True for a parameter that is None by default, where one of the calls made does not say otherwise."""
    param, function = tree.definition(node), tree.function(node)
    if not isinstance(param, cst.Param) or function is None or param.default is None:
        return False
    names = [each.name.value for each in function.params.params]
    position = names.index(param.name.value) - names.count("self") if param.name.value in names else None
    calls = [call for call in tree.callers(function) if call in made and not any(each.star for each in call.args)]
    given = [argument(call, param.name.value, position) for call in calls]
    default = tree.literal(param.default) is None
    return default and any(each is None or tree.literal(each.value) is None for each in given)


def makes_generator(tree: Tree, node: cst.BaseExpression) -> bool:
    """True for a generator of its own: `random.Random(1)`, or a name for one."""
    return bool(_GENERATORS.fullmatch(tree.maker(node)))


class Seeding:
    """What a notebook seeds itself, unconditionally, before it draws.

    Args:
        placement: where its code is to run.
    """

    def __init__(self, placement: Placement) -> None:
        self._runs_alone = placement.runs_alone
        self._tree = placement.tree
        found = [(call, _seeded_by(self._tree, call)) for call in placement.execution.calls()]
        self._seeds = [(call, generators) for call, generators in found if generators]

    def covers(self, draw: cst.Call, generator: str) -> bool:
        """True where a generator (`random`, `numpy` or `torch`) is seeded above a draw, wherever that is called from.

        Above in the block of the draw itself, or in one around it, counts too.
        """
        runs = map(self._tree.start, self._tree.run_from(draw, self._tree.uses))
        offset, function = min(runs, default=-1), self._tree.function(draw)
        for call, generators in self._seeds:
            if generator not in generators or self._runs_alone(call):
                continue
            start, suite = self._tree.start(call), self._tree.parents[self._tree.statement(call)]
            inside = self._tree.function(call) is function and suite in self._tree.ancestors(draw)
            if (inside and start < self._tree.start(draw)) or (suite is self._tree.module and start < offset):
                return True
        return False

    def again(self, draw: cst.Call, generator: str, start: int, end: int) -> bool:
        """True where a generator is seeded between two places of the notebook, or above a draw in its function."""
        own, tree = self._tree.function(draw), self._tree
        found = [call for call, generators in self._seeds if generator in generators and not self._runs_alone(call)]
        beside = [each for each in found if own is not None and tree.function(each) is own]
        return any(start < tree.start(each) < end for each in found) or bool(beside)


def _seeded_by(tree: Tree, call: cst.Call) -> frozenset[str]:
    """The generators that a call seeds with a given number; of a function of the notebook, those that it seeds."""
    function = tree.definition(call.func)
    calls = tree.within(function.body, cst.Call) if isinstance(function, cst.FunctionDef) else [call]
    return frozenset[str]().union(*(_seeds(tree, each) for each in calls))


def _seeds(tree: Tree, call: cst.Call) -> frozenset[str]:
    if not call.args or tree.literal(call.args[0].value) is None:
        return frozenset()
    name = tree.qualified(call.func)
    return frozenset(next((made for pattern, made in SEEDING.items() if re.fullmatch(pattern, name)), ()))
