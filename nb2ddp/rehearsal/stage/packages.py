"""Replace packages that are not installed: if the script imports one, it gets objects that do nothing.

This is enough for a plot, a page or a tracker. Training with objects from such a package is refused, with the command
to type.
"""

from __future__ import annotations

import copyreg
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any

from .events import StandIn, Tracked
from .hooks import after_import, wrap
from .log import Log

#: Without these packages there is no training, so they have no stand-in.
_NEEDED = frozenset(
    "torch torchvision transformers trl peft accelerate datasets unsloth unsloth_zoo sentence_transformers tokenizers "
    "numpy pandas sklearn scipy PIL".split()
)
#: Services, and packages for a GPU, which a user would not install for a rehearsal.
SERVICES = frozenset(
    "wandb trackio comet_ml mlflow neptune swanlab clearml google kaggle_secrets kaggle ollama openai vllm "
    "bitsandbytes gradio streamlit dotenv torchaudio snac xcodec2".split()
)
#: Attributes that only a data set has: an object that is asked for one becomes a data set with made rows.
_OF_DATA_SETS = frozenset(
    "add_column cast_column column_names remove_columns rename_column rename_columns train_test_split".split()
)
#: Functions that begin a run of a tracker.
_RUNS = frozenset(
    "wandb.init mlflow.start_run trackio.init swanlab.init comet_ml.start comet_ml.Experiment neptune.init_run".split()
)


def _is_decorated(given: tuple[Any, ...]) -> bool:
    return len(given) == 1 and isinstance(given[0], FunctionType)


class _Kind(type):
    """Lets a class that does nothing return itself for every attribute, and a function that is its only argument."""

    def __call__(cls, *given: Any, **named: Any) -> Any:
        return given[0] if _is_decorated(given) else super().__call__(*given, **named)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class Nothing(metaclass=_Kind):
    """An object that does nothing; its attributes and calls return the object itself."""

    package = ""
    rows: Callable[[str], Any] | None = None  #: returns the data set of a missing source

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _OF_DATA_SETS and self.package and Nothing.rows is not None:
            return getattr(Nothing.rows(self.package), name)
        return self

    def __call__(self, *given: Any, **_: Any) -> Any:
        return given[0] if _is_decorated(given) else self

    def __setitem__(self, *_: Any) -> None: ...

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...


def _count(kind: type) -> None:
    """Let objects that do nothing be computed with, compared, subscripted, shown, and converted to 0."""
    for name in "add sub mul matmul truediv floordiv mod pow or and".split():
        for side in ("", "r"):
            setattr(kind, f"__{side}{name}__", lambda self, *_: self)
    for name in "neg abs round getitem".split():
        setattr(kind, f"__{name}__", lambda self, *_: self)
    for name in "str fspath format".split():
        setattr(kind, f"__{name}__", lambda *_: "rehearsal")
    for name in "lt le gt ge".split():
        setattr(kind, f"__{name}__", lambda *_: True)
    for name, number in (("float", 0.0), ("int", 0), ("index", 0)):
        setattr(kind, f"__{name}__", lambda _, number=number: number)


_count(_Kind)
_count(Nothing)


def _of(package: str, name: str = "Nothing") -> type[Nothing]:
    """Return a class of a missing package."""
    return type(name, (Nothing,), {"package": package})


copyreg.pickle(_Kind, lambda kind: (_of, (kind.package,)))  # one process may send it to the others


class Missing(MetaPathFinder, Loader):
    """Provides packages that are not installed, if the script itself imports them.

    Args:
        log: the log that records which.
    """

    def __init__(self, log: Log) -> None:
        self.log = log

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return a module that does nothing for a missing package; None for any other."""
        package = name.split(".")[0]
        is_made = isinstance(sys.modules.get(package), Empty)
        is_own = self.log.is_asked(os.path.dirname(importlib.__file__))
        if package in _NEEDED or not (is_made or is_own) or self._is_part(name):
            return None
        self.log.write(StandIn(name, package not in SERVICES))
        return ModuleSpec(name, self, is_package=True)

    def _is_part(self, name: str) -> bool:
        """Return whether a module belongs to an installed package that is not a namespace such as `google`."""
        parent = sys.modules.get(name.split(".")[0])
        return "." in name and parent is not None and getattr(parent, "__file__", None) is not None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """See `Loader`."""
        return Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """See `Loader`."""
        _note_runs(module, self.log)


class Empty(ModuleType):
    """A module in which every name is a class that does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _of(self.__name__.split(".")[0], name)


def _note_runs(tracker: ModuleType, log: Log) -> None:
    """Record each run of a tracker that the script begins, unless it has disabled the tracker."""
    for name in (each.rpartition(".")[2] for each in _RUNS if each.startswith(f"{tracker.__name__}.")):
        begin = getattr(tracker, name, None)

        def noted(*given: Any, begin: Any = begin, **named: Any) -> Any:
            modes = os.environ.get("WANDB_MODE"), named.get("mode")
            if log.place() and not (tracker.__name__ == "wandb" and "disabled" in modes):
                log.write(Tracked(f"a run of {tracker.__name__}"))
            return begin(*given, **named | ({"mode": "disabled"} if tracker.__name__ == "wandb" else {}))

        setattr(tracker, name, noted)


def _refuse(original: Any, self: Any, *args: Any, **given: Any) -> None:
    """Refuse to train with anything from a missing package; metrics may come from one."""
    for value in (*args, *given.values()):
        for each in value if isinstance(value, (list, tuple)) else [value]:
            package = getattr(each if isinstance(each, type) else type(each), "package", None)
            if isinstance(package, str) and _is_nothing(each):
                raise ModuleNotFoundError(f"No module named {package!r}, which training needs")
    original(self, *args, **given)
    if measure := getattr(self, "compute_metrics", None):
        self.compute_metrics = lambda *made, **named: _numbers(measure(*made, **named))


def _numbers(metrics: Any) -> Any:
    """Return metrics that the trainer can keep in JSON: values from a missing package are 0."""
    if not isinstance(metrics, dict):
        return metrics
    return {name: float(value) if _is_nothing(value) else value for name, value in metrics.items()}


def _is_nothing(value: Any) -> bool:
    return isinstance(value, Nothing) or (isinstance(value, type) and issubclass(value, Nothing))


def lay(log: Log, rows: Callable[[str], Any]) -> None:
    """Replace missing packages from now on; `rows` returns the data set of a package."""

    def made(package: str) -> Any:
        log.write(StandIn(f"the data set that {package} gives"))
        return rows(package)

    Nothing.rows = staticmethod(made)
    sys.meta_path.append(Missing(log))
    wrap("transformers.trainer", "Trainer.__init__", _refuse)
    for name in {each.split(".")[0] for each in _RUNS}:
        after_import(name, lambda module: _note_runs(module, log))
