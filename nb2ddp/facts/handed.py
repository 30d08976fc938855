"""Functions of a notebook that a value passes on, for others to call."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from nb2ddp.facts.flow import returned
from nb2ddp.syntax.tree import ADDING, Function, Tree, method


def handed_on(tree: Tree, values: Iterable[cst.CSTNode]) -> tuple[list[Function], set[cst.CSTNode]]:
    """The functions that values hold, and the names through which they do.

    They hold them by name, in lists, by `partial`, made by other functions, and as methods of objects.
    """
    functions, names, pending = dict[Function, None](), set[cst.CSTNode](), list(values)
    for value in pending:  # which grows on the way
        functions.update(dict.fromkeys(tree.within(value, cst.Lambda)))
        for name in tree.within(value, cst.Name):
            definition = tree.definition(name)
            if name in names or definition is None:
                continue
            names.add(name)
            if isinstance(definition, cst.ClassDef):
                functions.update(dict.fromkeys(tree.methods(definition)))
            elif isinstance(definition, cst.FunctionDef) and tree.call_of(name) is None:
                functions[definition] = None
            elif isinstance(definition, cst.FunctionDef):
                pending += returned(tree, definition)
            elif isinstance(definition, (cst.Assign, cst.AnnAssign)) and definition.value is not None:
                pending += [definition.value, *added(tree, name.value)]
    return list(functions), names


def added(tree: Tree, name: str) -> list[cst.BaseExpression]:
    """What `name.append(...)` and the like put into a list."""
    calls = [tree.call_of(tree.parents[use]) for use in tree.loads(name)]
    return [given.value for call in calls if call is not None and method(call) in ADDING for given in call.args]
