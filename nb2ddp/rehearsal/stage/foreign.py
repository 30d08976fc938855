"""Code from a model's repository, which is never run: what only that code has does nothing.

A collator of the script that needs it gives text in the place of what it would have made.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from . import events
from .hooks import after_import, wrap
from .packages import Nothing

if TYPE_CHECKING:
    from types import ModuleType

    from .log import Log


class Foreign:
    """What a script loads with `trust_remote_code`.

    Args:
        log: where it is said what was passed over.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self.is_loaded = False

    def opened(self, thing: Any) -> Any:
        """A model or processor that does nothing where the script asks for what its class does not have."""
        self.is_loaded = True
        base = type(thing)

        def missing(own: Any, name: str) -> Any:
            try:
                return base.__getattr__(own, name)
            except AttributeError:
                if name.startswith("_") or not self._script_asks():
                    raise
                self.log.write(events.Foreign(name))
                return Nothing()

        if hasattr(base, "__getattr__"):
            thing.__class__ = type(base.__name__, (base,), {"__getattr__": missing, "__module__": base.__module__})
        return thing

    def _script_asks(self) -> bool:
        frame: Any = sys._getframe(2)
        while frame is not None and frame.f_code.co_name == "__getattr__":  # of what is wrapped around it
            frame = frame.f_back
        return frame is not None and frame.f_code.co_filename == self.log.script

    def collator(self, own: Any, text: Any) -> Any:
        """The script's own collator, and `text` once that has failed."""

        def collate(rows: Any) -> Any:
            nonlocal own
            if own is not None:
                try:
                    return own(rows)
                except Exception:
                    self.log.write(events.Foreign(type(own).__name__))
                    own = None
            return text(rows)

        return collate

    def lay(self, module: ModuleType, text: Any) -> None:
        """Let trainers collate text where the script's own collator cannot."""

        @wrap(module, "Trainer.__init__")
        def init(original: Any, trainer: Any, *args: Any, **given: Any) -> None:
            own = given.get("data_collator")
            if self.is_loaded and self.log.is_own(type(own).__call__):
                processor = given.get("processing_class") or given.get("tokenizer")
                given["data_collator"] = self.collator(own, text(given.get("model"), processor))
            original(trainer, *args, **given)


def lay(log: Log, text: Any) -> Foreign:
    """Do so from now on; `text` makes a collator of a model and a processor."""
    foreign = Foreign(log)
    after_import("transformers.trainer", lambda module: foreign.lay(module, text))
    return foreign
