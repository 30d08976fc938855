"""The rooms of the package: imports go one way, and every room has a docstring."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

from nb2ddp.rehearsal.environments import LIBRARIES

PACKAGE = Path(__file__).parent.parent / "nb2ddp"
#: From the top down. A module imports from rooms below its own. `convert` and each module beside it are rooms of one.
ROOMS = (
    *("__main__", "exporter", "cli", "rehearsal", "api", "project", "convert", "estimate", "rules", "script", "facts"),
    *("syntax", "notebook", "runtime"),
)
#: Modules that every room may import.
GROUND = ("__init__", "results", "options", "settings", "codes", "versions", "toml")
#: The longest chain of imports from a module to one that imports nothing of the package.
FLOORS = 11
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


@cache
def imported(module: str) -> frozenset[str]:
    """Return the package's modules that a module imports, also in functions, but not for the type checker alone."""
    found: set[str] = set()
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    typing = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    skipped = {child for node in typing for child in ast.walk(node)}
    for node in ast.walk(tree):
        if node in skipped:
            continue
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names] + [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name for name in names if name in MODULES}
    if module == "nb2ddp.rules.index":  # it finds the rules by itself
        found |= {name for name, path in MODULES.items() if "\n@rule(" in path.read_text(encoding="utf-8")}
    return frozenset(found - {module, "nb2ddp"})


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_down(module: str) -> None:
    order = (*ROOMS, *GROUND)
    assert room(module) in order
    if room(module) in GROUND:
        assert {room(other) for other in imported(module)} <= set(GROUND)
        return
    for other in imported(module):
        assert order.index(room(other)) >= order.index(room(module)), f"{module} imports {other} above it"


def floor(module: str, above: tuple[str, ...] = ()) -> int:
    assert module not in above, f"a cycle: {' -> '.join([*above, module])}"
    return 1 + max((floor(other, (*above, module)) for other in imported(module)), default=0)


def test_no_circle_and_few_floors() -> None:
    assert max(map(floor, MODULES)) <= FLOORS


def test_every_room_says_what_it_is() -> None:
    for folder in (path for path in PACKAGE.iterdir() if (path / "__init__.py").exists()):
        text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
        assert text, folder.name


def test_the_stage_imports_what_trains_and_nothing_of_the_package() -> None:
    """The stage runs in environments in which this package is not installed."""
    brought = {"PIL", "huggingface_hub", "numpy", "pandas", "pyarrow", "requests", "soundfile", "tokenizers", "tomli"}
    for path in (PACKAGE / "rehearsal" / "stage").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level <= 1
                names = [] if node.level else [node.module or ""]
            assert {name.split(".")[0] for name in names} <= {*sys.stdlib_module_names, *LIBRARIES, *brought}, path
