"""Parts of the stage of a rehearsal, from their files: a script that is observed finds nothing of nb2ddp to import."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from nb2ddp.rehearsal.stage import gloo, hooks

_STAGE = Path(__file__).resolve().parents[3] / "nb2ddp/rehearsal/stage"


def _part(name: str) -> ModuleType:
    spec = spec_from_file_location(name, _STAGE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if not TYPE_CHECKING:
    gloo, hooks = _part("gloo"), _part("hooks")
