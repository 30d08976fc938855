"""Who calls whom: the functions of a notebook, and where live code names them."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.syntax.tree import Tree

#: What has a body that runs when it is called.
Function = cst.FunctionDef | cst.Lambda


class CallGraph:
    """The functions of a notebook with their uses. It is worked out by name, as Python would find them."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._uses: dict[cst.FunctionDef, list[cst.CSTNode]] = {}

    def named(self, function: cst.FunctionDef) -> list[cst.CSTNode]:
        """Where live code names a function; a method by its own name, `__init__` and the like by their class."""
        tree, owner, name = self._tree, self._tree.scope(function), function.name.value
        if not isinstance(owner, cst.ClassDef):
            nodes: list[cst.CSTNode] = list(tree.loads(name))
        elif name.startswith("__"):
            nodes = list(tree.loads(owner.name.value))
        else:
            nodes = list(tree.attributes(name))
        return [node for node in nodes if tree.is_live(node)]

    def uses(self, function: cst.FunctionDef) -> list[cst.CSTNode]:
        """Where a function may come to be called from: where it is named, and of a method where its class is."""
        if function not in self._uses:
            owner = self._tree.scope(function)
            found = self.named(function)
            if isinstance(owner, cst.ClassDef) and not function.name.value.startswith("__"):
                found = [*found, *(node for node in self._tree.loads(owner.name.value) if self._tree.is_live(node))]
            self._uses[function] = found
        return self._uses[function]

    def calls(self, function: cst.FunctionDef) -> list[cst.Call]:
        """The live calls of a function by its name; none for a method, which its object's owner may call."""
        if isinstance(self._tree.scope(function), cst.ClassDef):
            return []
        return [call for use in self.uses(function) if (call := self.call_of(use)) is not None]

    def call_of(self, node: cst.CSTNode) -> cst.Call | None:
        """The call that a name or an attribute is the function of."""
        parent = self._tree.parents[node]
        return parent if isinstance(parent, cst.Call) and parent.func is node else None

    def callers(self, function: cst.FunctionDef) -> Iterator[cst.Call]:
        """The live calls of a function, of a method by its name alone, and of a class for its `__init__`."""
        for use in self.named(function):
            if (call := self.call_of(use)) is not None:
                yield call
