"""Settings from `[tool.nb2ddp]` of the nearest pyproject.toml, and how they become options."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Final

from pathspec import GitIgnoreSpec

from nb2ddp.options import Launch, LaunchError, Options, OptionsError, Slurm
from nb2ddp.results import Severity

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class ConfigError(ValueError):
    """Settings that cannot be followed; the message names the file and the key."""


#: A table of settings, by the names that the file and the command line use.
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Settings:
    """All that is set for one notebook."""

    options: Options = field(default_factory=Options)
    fail_on: Severity = Severity.ERROR
    output_dir: Path | None = None
    root: Path | None = None


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: object) -> bool:
    return isinstance(value, str)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _table(value: object) -> bool:
    return isinstance(value, dict)


_Kind = tuple[Callable[[object], bool], str]
_NUMBER: Final[_Kind] = (_whole, "a whole number")
_STRING: Final[_Kind] = (_text, "a string")
_STRINGS: Final[_Kind] = (_texts, "a list of strings")

#: The settings that one notebook may have of its own.
OWN_KEYS: Final[dict[str, _Kind]] = {
    "num-processes": _NUMBER,
    "num-machines": _NUMBER,
    "main-process-ip": _STRING,
    "main-process-port": _NUMBER,
    "mixed-precision": _STRING,
    "launcher": _STRING,
    "slurm": (_table, "a table"),
    "per-device-batch-size": _NUMBER,
    "requirements": (lambda v: isinstance(v, bool), "true or false"),
    "select": _STRINGS,
    "ignore": _STRINGS,
    "fail-on": _STRING,
}
#: The settings of the whole file.
KEYS: Final[dict[str, _Kind]] = {
    **OWN_KEYS,
    "output-dir": _STRING,
    "root": _STRING,
    "exclude": _STRINGS,
    "overrides": (lambda v: isinstance(v, list) and all(map(_table, v)), "an array of tables"),
}
_OVERRIDE_KEYS: Final = {**OWN_KEYS, "files": _STRINGS}
_SLURM_KEYS: Final = {each.name.replace("_", "-"): each.name for each in fields(Slurm)}
_LAUNCH_KEYS: Final = {
    "num-processes": "processes",
    "num-machines": "machines",
    "main-process-ip": "main_process_ip",
    "main-process-port": "main_process_port",
    "mixed-precision": "mixed_precision",
    "launcher": "launcher",
}


@dataclass(frozen=True)
class Config:
    """One file's settings."""

    path: Path
    values: Values

    @property
    def exclude(self) -> list[str]:
        """Patterns, relative to the file's folder, of notebooks to leave out."""
        return list(self.values.get("exclude", []))

    def values_for(self, notebook: Path) -> dict[str, Any]:
        """The settings for a notebook: the file's own, then each override that names it, the last one strongest."""
        values = {key: value for key, value in self.values.items() if key != "overrides"}
        for key in ("output-dir", "root"):
            if key in values:
                values[key] = self.path.parent / values[key]
        for override in self.values.get("overrides", []):
            if _matches(override["files"], notebook, self.path.parent):
                values |= {key: value for key, value in override.items() if key != "files"}
        if "output-dir" in values:
            values.setdefault("root", self.path.parent)
        return values


def find(folder: Path) -> Config | None:
    """The settings of the nearest pyproject.toml, in a folder or above it, that has `[tool.nb2ddp]`.

    Raises:
        ConfigError: the file cannot be read, or its settings cannot be followed.
    """
    return _find(folder.resolve())


def clear() -> None:
    """Forget the files that were read: they may have changed."""
    _find.cache_clear()


@cache
def _find(folder: Path) -> Config | None:
    found = _load(folder / "pyproject.toml")
    if found is None and folder.parent != folder:
        return _find(folder.parent)
    return found


def _load(path: Path) -> Config | None:
    try:
        document = tomllib.loads(path.read_bytes().decode())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML ({error})") from None
    tool = document.get("tool", {})
    if not isinstance(tool, dict) or "nb2ddp" not in tool:
        return None
    values = tool["nb2ddp"]
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: tool.nb2ddp must be a table")
    _check(path, "tool.nb2ddp", values, KEYS)
    for number, override in enumerate(values.get("overrides", []), start=1):
        where = f"tool.nb2ddp.overrides, number {number}"
        if "files" not in override:
            raise ConfigError(f"{path}: {where}: no key 'files' says which notebooks it is for")
        _check(path, where, override, _OVERRIDE_KEYS)
    config = Config(path, values)
    try:  # what is wrong in itself is said even where it applies to no notebook
        settings({key: value for key, value in values.items() if key != "overrides"})
    except (ConfigError, LaunchError, OptionsError) as error:
        raise ConfigError(f"{path}: tool.nb2ddp: {error}") from None
    return config


def _check(path: Path, where: str, values: Values, keys: Mapping[str, _Kind]) -> None:
    for key, value in values.items():
        if key not in keys:
            raise ConfigError(f"{path}: {where}: unknown key {key!r}{_nearest(key, keys)}")
        is_right, form = keys[key]
        if not is_right(value):
            raise ConfigError(f"{path}: {where}: {key} must be {form}, not {value!r}")


def _nearest(key: str, keys: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(key.replace("_", "-"), keys, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(keys)}"


def settings(values: Values) -> Settings:
    """Make settings of a table.

    Args:
        values: keys of `KEYS`, except `overrides`; what is missing keeps its default.

    Raises:
        ConfigError, LaunchError, OptionsError: a value is out of its range, or values do not fit together.
    """
    launch = {name: values[key] for key, name in _LAUNCH_KEYS.items() if key in values}
    if "slurm" in values:
        launch["slurm"] = _slurm(values["slurm"])
    options: dict[str, Any] = {"launch": Launch(**launch)}
    if "per-device-batch-size" in values:
        options["per_device_batch_size"] = values["per-device-batch-size"]
    if "requirements" in values:
        options["requirements"] = values["requirements"]
    for key in ("select", "ignore"):
        if key in values:
            options[key] = frozenset(values[key])
    try:
        fail_on = Severity(values.get("fail-on", Severity.ERROR))
    except ValueError:
        raise ConfigError(f"fail-on must be error, warning or note, not {values['fail-on']!r}") from None
    folders = {key: Path(values[key]) if key in values else None for key in ("output-dir", "root")}
    return Settings(Options(**options), fail_on, folders["output-dir"], folders["root"])


def _slurm(values: Mapping[str, Any]) -> Slurm:
    arguments: dict[str, Any] = {}
    for key, value in values.items():
        if key not in _SLURM_KEYS:
            raise ConfigError(f"slurm: unknown key {key!r}{_nearest(key, _SLURM_KEYS)}")
        name = _SLURM_KEYS[key]
        if name == "environment":
            if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
                raise ConfigError("slurm: environment must be a table of strings")
            arguments[name] = tuple(value.items())
        elif name in ("options", "modules"):
            if not _texts(value):
                raise ConfigError(f"slurm: {key} must be a list of strings, not {value!r}")
            arguments[name] = tuple(value)
        else:
            is_right, form = _NUMBER if name == "cpus_per_gpu" else _STRING
            if not is_right(value):
                raise ConfigError(f"slurm: {key} must be {form}, not {value!r}")
            arguments[name] = value
    return Slurm(**arguments)


def is_excluded(notebook: Path, patterns: list[str], folder: Path) -> bool:
    """True for a notebook that a pattern (as in .gitignore, relative to a folder) leaves out."""
    return bool(patterns) and _matches(patterns, notebook, folder)


def _matches(patterns: list[str], notebook: Path, folder: Path) -> bool:
    place = notebook.parent.resolve() / notebook.name
    try:
        name = place.relative_to(folder.resolve())
    except ValueError:
        return False
    return GitIgnoreSpec.from_lines(patterns).match_file(name.as_posix())
