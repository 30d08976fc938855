"""Look up module names: those that a script must not have, as it would be imported instead, and their packages."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from nb2ddp.toml import tables

#: Modules that the setup block of every script imports.
IN_SETUP = frozenset({"logging", "os", "sys", "torch"})
_TABLES = tables(__file__)
#: Modules that training with Unsloth may import, whether a notebook names them or not.
_OF_TRAINING = frozenset(_TABLES["training"])
#: Modules that notebooks import without installing them, because Colab has them, with their packages.
ON_COLAB: dict[str, str] = _TABLES["colab"]
#: The same for modules that neither Colab nor Unsloth provides.
ON_INDEX: dict[str, str] = _TABLES["index"]


def requirement_of(line: str) -> Requirement | None:
    """Return a line of a requirements file as a `Requirement`; None for an option, a bare URL or a file."""
    try:
        return Requirement(line)
    except InvalidRequirement:
        return None


def on_index(module: str) -> str:
    """Return the name of a module's package on the index, if it is known to differ; else the module's."""
    known = (ON_COLAB | ON_INDEX).get(module)
    return module if known is None else Requirement(known).name


def hidden(name: str, sources: Iterable[str] = ()) -> str:
    """Return the module or package that a file of this name would hide; empty if none.

    Args:
        name: the file's name without `.py`.
        sources: the notebook's code cells.
    """
    if not name.isidentifier():
        return ""
    if name in sys.stdlib_module_names:
        return f"Python's own module {name}"
    if name in _OF_TRAINING or any(names_module(each, name) for each in sources if name in each.replace("-", "_")):
        return f"the package {name}"
    return ""


def names_module(source: str, name: str) -> bool:
    """Return whether code imports a module of that name, or installs a package of that name."""
    imports = rf"^[ \t]*(?:from[ \t]+{name}[ \t.][\w. \t]*import\b|import[ \t]+(?:[^#\n]*,[ \t]*)?{name}\b)"
    return bool(re.search(imports, source, re.MULTILINE)) or is_published(name, [source])


def is_published(name: str, sources: Iterable[str]) -> bool:
    """Return whether a module is Python's, one that training may import, or a package that code installs by name."""
    installs = re.compile(
        rf"^[^#\n]*\binstall\b(?:(?![ \t]#)[^\n])*(?<![\w./-]){re.escape(name).replace('_', '[-_]')}(?![\w./-])",
        re.MULTILINE,
    )
    return name in sys.stdlib_module_names or name in _OF_TRAINING or any(map(installs.search, sources))


def other_name(name: str) -> str:
    """Return another name for a script whose name hides a module."""
    return f"{name}_ddp.py"


def hiding(folder: Path) -> list[Path]:
    """Return the modules of a folder that hide a standard module, or a package that training needs."""
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return []
    files = [path for path in paths if path.suffix == ".py" and hidden(path.stem)]
    return files + [path / "__init__.py" for path in paths if hidden(path.name) and (path / "__init__.py").exists()]
