"""Act on a module once somebody has imported it: for what Python loads at the start of every process of a run."""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class AfterImport(MetaPathFinder):
    """Calls a function with a module as soon as it has been imported."""

    def __init__(self, actions: dict[str, Callable[[ModuleType], None]]) -> None:
        self.actions = actions

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        action = self.actions.pop(name, None)
        spec = importlib.util.find_spec(name) if action else None
        if not action or not spec or not spec.loader:
            return None
        original = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            original(module)
            action(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def call_after_import(actions: dict[str, Callable[[ModuleType], None]]) -> None:
    """Call each function with the module of its name, as soon as that has been imported by somebody else."""
    sys.meta_path.insert(0, AfterImport(dict(actions)))
