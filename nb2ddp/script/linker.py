"""Copy functions and classes of `nb2ddp.runtime` into a script: those that it uses, their callees and imports.

A copy is the definition's text without type annotations: scripts are read by people who train, and need fewer imports
without them.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import libcst as cst

from nb2ddp.syntax.cells import Source
from nb2ddp.syntax.tree import Tree

_FOLDER = Path(__file__).parent.parent / "runtime"
#: The module whose definitions every script has, in the fixed part of its setup block.
PROCESS = "process"
#: The module of functions that replace others if a job has several machines.
_MACHINES = "machines"
#: Other names that code inserted by rules uses besides the functions, with their imports.
_IMPORTS = {
    "asyncio": "import asyncio",
    "atexit": "import atexit",
    "contextlib": "import contextlib",
    "subprocess": "import subprocess",
    "timedelta": "from datetime import timedelta",
    "PartialState": "from accelerate import PartialState",
    "set_seed": "from transformers import set_seed",
}
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
#: The names of an import, or one name, with its opening parenthesis if it is called.
_NAME = re.compile(rf"(?m)^(?P<head> *(?:from [\w.]+ )?import )(?P<names>\w+(?:, \w+)*)(?![\w.])|{_WORD.pattern}\(?")
_COMMENT = re.compile(r"^\s*#.*", re.MULTILINE)


@dataclass(frozen=True)
class Definition:
    """A function, class or constant of the runtime."""

    name: str
    source: str
    imports: dict[str, str]  #: the import statement of each name that its module imports

    @cached_property
    def text(self) -> str:
        """Its text in a script."""
        return _without_annotations(self.source)

    @cached_property
    def reads(self) -> set[str]:
        """The names that its text reads."""
        return {name.id for name in ast.walk(ast.parse(self.text)) if isinstance(name, ast.Name)} - {self.name}


@dataclass(frozen=True)
class Linked:
    """The needs of inserted code: imports of the standard library, imports of packages, and functions."""

    standard: frozenset[str]
    packages: frozenset[str]
    functions: tuple[str, ...]


def words(code: str) -> frozenset[str]:
    """Return the names in code, without attributes."""
    return frozenset(_WORD.findall(code))


def renamed(code: str, names: Mapping[str, str]) -> str:
    """Return code with some names replaced; an import of such a name binds the new one with `as`.

    Args:
        code: lines, or a part of one.
        names: the new name for each name, as `taken` returns them.
    """

    def other(match: re.Match[str]) -> str:
        if match["head"] is None:
            word = match[0].removesuffix("(")
            return names.get(match[0]) or names.get(word, word) + match[0][len(word) :]
        bound = (f"{each} as {names[each]}" if each in names else each for each in match["names"].split(", "))
        return match["head"] + ", ".join(bound)

    return _NAME.sub(other, code) if names else code


def link(code: Iterable[str], several_machines: bool = False) -> Linked:
    """Find what inserted code needs.

    Args:
        code: pieces that name functions and constants of the runtime, and modules.
        several_machines: whether the functions for several machines replace those for one.
    """
    used = frozenset[str]().union(*(words(_COMMENT.sub("", piece)) for piece in code))
    known = definitions(several_machines)
    linked: dict[str, Definition] = {}
    imports = set[str]()

    def follow(name: str, above: dict[str, str]) -> None:
        if name in above:
            imports.add(above[name])
        elif name in known and name not in linked:
            for read in sorted(known[name].reads):
                follow(read, known[name].imports)
            linked[name] = known[name]

    order = [*known, *_IMPORTS]
    for name in sorted(used.intersection(order), key=order.index):
        follow(name, _IMPORTS)
    standard = frozenset(each for each in imports if each.split()[1].split(".")[0] in sys.stdlib_module_names)
    return Linked(standard, frozenset(imports) - standard, tuple(definition.text for definition in linked.values()))


@cache
def definitions(several_machines: bool = False) -> dict[str, Definition]:
    """Return the runtime's functions, classes and constants by name, in the order of modules and lines."""
    modules = sorted(path.stem for path in _FOLDER.glob("*.py") if path.stem not in ("__init__", PROCESS, _MACHINES))
    modules += [_MACHINES] if several_machines else []
    return {name: definition for module in modules for name, definition in _defined(module).items()}


@cache
def process() -> str:
    """Return the lines that set `local_rank`, `world_size` and `is_main_process`."""
    return "\n".join(definition.text for definition in _defined(PROCESS).values())


@cache
def names() -> frozenset[str]:
    """Return all names that a setup block may bind, without imports."""
    return frozenset((*definitions(several_machines=True), *_defined(PROCESS)))


@cache
def imports() -> dict[str, str]:
    """Return the names of modules, classes and functions that the script's added code uses, with the import of each."""
    every = [definition.imports for definition in (*definitions(True).values(), *_defined(PROCESS).values())]
    statements = {name: statement for each in (*every, _IMPORTS) for name, statement in each.items()}
    return {name: each for name, each in statements.items() if not each.startswith(f"import {name}.")}


def taken(source: Source) -> dict[str, str]:
    """Return the names that the notebook binds to something else, each with its replacement.

    These are names of the setup block, imported names, and `name(` for built-in functions.
    """
    tree = source.tree
    own = dict.fromkeys(name for name in names() if name in tree.bound_names)
    for name, statement in imports().items():
        library = statement.split()[1].split(".")[0]
        imported = [(binding.imported or "").split(".") for binding in tree.bindings(name)]
        if any((each[0], each[-1]) != (library, name) for each in imported):
            own[name] = None
    return {name: source.name(name) for name in own} | {f"{name}(": f"{source.name(name)}(" for name in shadowed(tree)}


def shadowed(tree: Tree) -> list[str]:
    """Return the names of built-in functions that a notebook binds at module level."""
    bound = [name for name in vars(builtins) if name.islower() and name in tree.bound_names]
    return [name for name in bound if any(not each.imported for each in tree.bindings(name))]


@cache
def _defined(module: str) -> dict[str, Definition]:
    source = (_FOLDER / f"{module}.py").read_text(encoding="utf-8")
    body, lines = ast.parse(source).body, source.splitlines()
    imports: dict[str, str] = {}
    definitions = {}
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            origin = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
            if not origin.startswith("from nb2ddp."):
                bound = {alias.asname or alias.name.split(".")[0]: ast.unparse(alias) for alias in node.names}
                imports |= {name: f"{origin}import {alias}" for name, alias in bound.items()}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)):
            text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            definitions[_bound(node)] = Definition(_bound(node), text, imports)
    return definitions


def _bound(node: ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign) -> str:
    """Return the name of a function, class or constant."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return node.name
    return ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])


def _without_annotations(text: str) -> str:
    """Return the text of a function, class or constant without annotations, except those of fields without a value."""
    tree = Tree(text)
    for node in reversed(tree.of(cst.Annotation)):  # from the end: the offsets before it stay valid
        owner, (start, end) = tree.parents[node], tree.span(node)
        default = owner.default if isinstance(owner, cst.Param) else None
        if not isinstance(owner, cst.AnnAssign) or owner.value is not None:
            rest = text[end:] if default is None else f"={text[tree.start(default) :]}"
            text = text[:start].rstrip(" :->") + rest
    return text
