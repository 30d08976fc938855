"""Functions of a notebook that a value passes on, for others to call."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from nb2ddp.facts.flow import reached, returned
from nb2ddp.syntax.tree import ADDING, Function, Tree, method

#: What an object stands in before a dot, on a line of its own, bound to a name, deleted.
_KEPT = (cst.Attribute, cst.Expr, cst.Assign, cst.AssignTarget, cst.Annotation, cst.Del)


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


def kept_objects(tree: Tree, owner: cst.ClassDef) -> frozenset[cst.CSTNode] | None:
    """Where the notebook has an object of its class, or the class; None where other code may get one, or inherits."""

    def onward(node: cst.CSTNode) -> list[cst.CSTNode]:
        bound = tree.parents[node]
        return _holding(tree, bound) if isinstance(bound, cst.Assign) else []

    start, end = tree.span(owner)
    selves = [use for use in tree.loads("self") if start <= tree.start(use) < end]
    named = [use for use in tree.loads(owner.name.value) if tree.is_live(use)]
    made: list[cst.CSTNode] = [tree.call_of(use) or use for use in named]
    objects = frozenset(reached([*selves, *made], onward))
    is_kept = not (owner.bases or owner.decorators) and all(_is_kept(tree.parents[node]) for node in objects)
    return objects if is_kept else None


def _is_kept(above: cst.CSTNode) -> bool:
    """True for what an object stands in where nobody else gets it; a list or dictionary may be passed on."""
    targets = [each.target for each in above.targets] if isinstance(above, cst.Assign) else []
    return isinstance(above, _KEPT) and all(isinstance(target, (cst.Name, cst.Attribute)) for target in targets)


def _holding(tree: Tree, bound: cst.Assign) -> list[cst.CSTNode]:
    """Where an assignment's names and attributes stand; those of a `global` and of any object by their names alone."""
    uses: list[cst.CSTNode] = [*tree.bound_uses(bound)]
    for target in (each.target for each in bound.targets):
        if isinstance(target, cst.Attribute):
            uses += tree.attributes(target.attr.value)
        elif isinstance(target, cst.Name) and target.value not in tree.binds(bound):
            uses += tree.loads(target.value)
    return uses
