"""Read settings from `[tool.nb2ddp]` of the nearest pyproject.toml, and turn them into options."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pathspec import GitIgnoreSpec

from nb2ddp.options import SETTINGS, LaunchError, OptionsError, Settings
from nb2ddp.settings import Setting, make
from nb2ddp.toml import tomllib


class ConfigError(ValueError):
    """Invalid settings; the message names the file and the key."""


#: A table of settings, by the names that the file and the command line use.
Values = Mapping[str, Any]


#: For each kind of setting: the type of its value in the file, the type of a list's items, and the type in words.
_KINDS: Mapping[Any, tuple[type, type | None, str]] = {
    int: (int, None, "a whole number"),
    bool: (bool, None, "true or false"),
    frozenset: (list, str, "a list of strings"),
    tuple: (list, str, "a list of strings"),
    list: (list, dict, "an array of tables"),
}
#: The keys of the file.
KEYS = {**{each.key: each for each in SETTINGS}, "overrides": Setting((), "", kind=list)}
_FOR_ALL = frozenset({"output-dir", "exclude", "overrides"})
_OVERRIDE_KEYS = {
    **{key: each for key, each in KEYS.items() if key not in _FOR_ALL},
    "files": Setting((), "", kind=tuple),
}


@dataclass(frozen=True)
class Config:
    """One file's settings."""

    path: Path
    values: Values

    def excludes(self, notebook: Path) -> bool:
        """True if a pattern of `exclude`, relative to the file's folder, matches a notebook."""
        return self._matches(self.values.get("exclude", []), notebook)

    def values_for(self, notebook: Path) -> dict[str, Any]:
        """Return a notebook's settings: the file's, then those of each override that names it; the last wins."""
        values = {key: value for key, value in self.values.items() if key != "overrides"}
        if "output-dir" in values:
            values["output-dir"] = self.path.parent / values["output-dir"]
        for override in self.values.get("overrides", []):
            if self._matches(override["files"], notebook):
                values |= {key: value for key, value in override.items() if key != "files"}
        return values

    def _matches(self, patterns: Sequence[str], notebook: Path) -> bool:
        """True if a pattern (as in .gitignore, relative to the file's folder) matches a notebook."""
        place = notebook.parent.resolve() / notebook.name
        folder = self.path.parent.resolve()
        is_below = place.is_relative_to(folder)
        return is_below and GitIgnoreSpec.from_lines(patterns).match_file(place.relative_to(folder).as_posix())


def find(folder: Path) -> Config | None:
    """Return the settings of the nearest pyproject.toml with `[tool.nb2ddp]`, in a folder or above.

    Raises:
        ConfigError: the file cannot be read, or its settings are invalid.
    """
    return _find(folder.resolve())


def clear() -> None:
    """Empty the cache of files, which may have changed."""
    _find.cache_clear()


@cache
def _find(folder: Path) -> Config | None:
    return _load(folder / "pyproject.toml") or (_find(folder.parent) if folder.parent != folder else None)


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
    _check(f"{path}: tool.nb2ddp", values, KEYS)
    for number, override in enumerate(values.get("overrides", []), start=1):
        where = f"{path}: tool.nb2ddp.overrides, number {number}"
        if "files" not in override:
            raise ConfigError(f"{where}: the key 'files' is missing: the notebooks that it applies to")
        _check(where, override, _OVERRIDE_KEYS)
    try:  # invalid values are reported even if they apply to no notebook
        settings({key: value for key, value in values.items() if key != "overrides"})
    except (ConfigError, LaunchError, OptionsError) as error:
        raise ConfigError(f"{path}: tool.nb2ddp: {error}") from None
    return Config(path, values)


def _check(where: str, values: Values, keys: Mapping[str, Setting]) -> None:
    for key, value in values.items():
        if key not in keys:
            raise ConfigError(f"{where}: unknown key {key!r}{_nearest(key, keys)}")
        kind, inner, name = _KINDS.get(keys[key].kind, (str, None, "a string"))
        listed = value if isinstance(value, list) else ()
        fits = type(value) is kind and all(type(each) is inner for each in listed)
        if not fits and value not in keys[key].words:
            form = " or ".join([name, *map(repr, keys[key].words)])
            raise ConfigError(f"{where}: {key} must be {form}, not {value!r}")


def _nearest(key: str, keys: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(key.replace("_", "-"), keys, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(keys)}"


def settings(values: Values) -> Settings:
    """Make `Settings` from a table.

    Args:
        values: keys of `SETTINGS`; missing keys keep their defaults.

    Raises:
        ConfigError, LaunchError, OptionsError: a value is out of range, or values contradict each other.
    """
    kinds = {each.key: each.kind for each in SETTINGS if each.kind in (frozenset, tuple, Path)}
    return make(Settings, {key: kinds.get(key, lambda value: value)(value) for key, value in values.items()})
