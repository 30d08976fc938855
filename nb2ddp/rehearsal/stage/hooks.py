"""Act on a module once it has been imported, never earlier."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class AfterImport(MetaPathFinder):
    """Calls functions with a module as soon as it has been imported."""

    def __init__(self) -> None:
        self.actions: dict[str, list[Callable[[ModuleType], None]]] = {}

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find the module as usual; its loader then also calls the actions for it."""
        actions = self.actions.pop(name, None)
        spec = importlib.util.find_spec(name) if actions else None
        if not actions or not spec or not spec.loader:
            return None
        original = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            original(module)
            for action in actions:
                action(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_FINDER = AfterImport()


def after_import(name: str, action: Callable[[ModuleType], None]) -> None:
    """Call `action` with the module `name`, now or as soon as it has been imported."""
    if name in sys.modules:
        action(sys.modules[name])
        return
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    _FINDER.actions.setdefault(name, []).append(action)


class UnknownError(Exception):
    """A library lacks what the rehearsal changes in it."""


def attribute(module: ModuleType, name: str) -> Any:
    """Return the attribute of a library under a dotted name, which is about to be changed.

    Raises:
        UnknownError: there is no such attribute: the rehearsal does not know this version.
    """
    found: Any = module
    for part in name.split("."):
        if part not in dir(found):
            raise UnknownError(f"the rehearsal does not know {_version(module)}: {module.__name__}.{name}")
        found = getattr(found, part)
    return found


def wrap(owner: Any, name: str, own: Callable[..., Any], *given: Any) -> None:
    """Replace an attribute of a module or class by a function that gets the original before its arguments.

    Args:
        owner: the module or class, or the name of a module, which is changed once it has been imported.
        name: the dotted name of the attribute.
        own: the new function.
        given: further arguments for it, before the original.

    Raises:
        UnknownError: see `attribute`.
    """
    if isinstance(owner, str):
        after_import(owner, lambda module: wrap(module, name, own, *given))
        return
    attribute(owner, name)
    above, _, last = name.rpartition(".")
    parent = attribute(owner, above) if above else owner
    held = inspect.getattr_static(parent, last)
    original = getattr(held, "__func__", held)  # the function of a classmethod or staticmethod

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return own(*given, original, *args, **kwargs)

    setattr(parent, last, wrapped if held is original else type(held)(wrapped))


def _version(module: ModuleType) -> str:
    package = module.__name__.split(".")[0]
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return package
