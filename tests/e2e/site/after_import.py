"""The rehearsal's own hook, taken from its file: a script that is observed finds nothing of nb2ddp to import."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nb2ddp.rehearsal.stage.hooks import after_import

_SPEC = spec_from_file_location("hooks", Path(__file__).resolve().parents[3] / "nb2ddp/rehearsal/stage/hooks.py")
assert _SPEC is not None
assert _SPEC.loader is not None
_HOOKS = module_from_spec(_SPEC)
_SPEC.loader.exec_module(_HOOKS)
after_import = _HOOKS.after_import
