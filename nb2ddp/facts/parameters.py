"""Parameters of the notebook's own functions, methods and classes, and what its calls give them."""

from __future__ import annotations

import libcst as cst

from nb2ddp.facts.effects import own_class
from nb2ddp.syntax.tree import Tree, argument, method


def called(tree: Tree, call: cst.Call) -> cst.FunctionDef | None:
    """The function of the notebook that a call runs: its own, a method, the `__init__` of a class."""
    definition = tree.definition(call.func)
    if isinstance(definition, cst.FunctionDef):
        return definition
    owner, name = own_class(tree, call.func), method(call)
    if isinstance(definition, cst.ClassDef):
        owner, name = definition, "__init__"
    functions = [] if owner is None else tree.within(owner, cst.FunctionDef)
    return next((each for each in functions if tree.scope(each) is owner and each.name.value == name), None)


def received(tree: Tree, call: cst.Call, given: cst.Arg) -> cst.Param | None:
    """The parameter of a function of the notebook's that an argument is for."""
    if (function := called(tree, call)) is None:
        return None
    params = [*function.params.params, *function.params.kwonly_params]
    return next((each for each in params if argument(call, each.name.value, _position(tree, each)) is given), None)


def passed(tree: Tree, param: cst.Param) -> list[cst.BaseExpression]:
    """What calls give a parameter, or its default; nothing for a method where not all of its calls are known."""
    function = tree.function(param)
    if function is None:
        return []
    calls = [tree.call_of(use) for use in tree.named(function)]
    own = [call for call in calls if call is not None and called(tree, call) is function]
    is_known = all(call is not None and called(tree, call) is not None for call in calls)
    if isinstance(tree.scope(function), cst.ClassDef) and not is_known:
        return []
    arguments = [argument(call, param.name.value, _position(tree, param)) for call in own]
    given = [param.default if each is None else each.value for each in arguments]
    return [each for each in given if each is not None]


def held_by(tree: Tree, node: cst.Attribute) -> cst.BaseExpression | None:
    """What an object of a class of the notebook's keeps as an attribute, where one assignment says so: `self.path`."""
    owner = own_class(tree, node)
    targets = [] if owner is None else tree.setting(node.attr.value)
    of_it = [each for each in targets if own_class(tree, each.targets[0].target) in (owner, None)]
    return of_it[0].value if len(of_it) == 1 else None


def _position(tree: Tree, param: cst.Param) -> int | None:
    """Where a call gives a parameter without its name; an object stands before what a method is given."""
    function = tree.function(param)
    if function is None or param not in function.params.params:
        return None
    is_static = any(tree.text(each.decorator) == "staticmethod" for each in function.decorators)
    of_object = isinstance(tree.scope(function), cst.ClassDef) and not is_static
    position = list(function.params.params).index(param) - of_object
    return position if position >= 0 else None
