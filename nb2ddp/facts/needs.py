"""What a job needs beside its packages and GPUs: variables, paths, services. One list, from the whole notebook."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import libcst as cst

from nb2ddp.facts.environment import LAUNCHER_VARIABLES, settings
from nb2ddp.facts.hosted import SECRET, hosted_name, hosted_paths
from nb2ddp.facts.logins import token_of
from nb2ddp.facts.questions import questions
from nb2ddp.syntax.environ import environ_key
from nb2ddp.syntax.tree import Tree

if TYPE_CHECKING:
    from nb2ddp.facts.program import Program

#: Variables that any shell or machine sets.
_ALWAYS = frozenset("HOME HOSTNAME LANG LD_LIBRARY_PATH LOGNAME PATH PWD PYTHONPATH SHELL TERM TMPDIR USER".split())
_SECRET_NAME = re.compile(r"\w*(KEY|TOKEN|SECRET|PASSWORD)")
_READS = re.compile(r"os\.(environ\.get|getenv)")
#: A server on this machine, as an address names it.
_SERVER = re.compile(r"https?://(localhost|127\.0\.0\.1|0\.0\.0\.0):\d+")
_STARTS = re.compile(r"\b(serve|server|uvicorn|gunicorn|sglang|ollama)\b|&\s*$")


class Kind(Enum):
    """What is needed."""

    VARIABLE = "variable of the environment"
    PATH = "path"
    SERVICE = "service"


@dataclass(frozen=True)
class Need:
    """One thing that a job needs.

    Attributes:
        name: the variable, the path, or the address.
        kind: what it is.
        cells: the cells that read it, by number, in order.
        required: the notebook stops without it, so the script looks for it as it starts.
    """

    name: str
    kind: Kind
    cells: tuple[int, ...]
    required: bool

    def __str__(self) -> str:
        cells = ", ".join(map(str, self.cells))
        return f"{self.name} (cell{'s' if len(self.cells) > 1 else ''} {cells})"


def needs(program: Program) -> list[Need]:
    """What the notebook reads and does not make itself, in the order of the first reading."""
    found: dict[tuple[Kind, str], list[tuple[cst.CSTNode, bool]]] = {}
    for kind, name, node, required in sorted(_read(program), key=lambda each: program.tree.start(each[2])):
        found.setdefault((kind, name), []).append((node, required))
    return [
        Need(
            name,
            kind,
            tuple(dict.fromkeys(program.location(node).cell for node, _ in places)),
            any(required for _, required in places),
        )
        for (kind, name), places in found.items()
    ]


def _read(program: Program) -> Iterator[tuple[Kind, str, cst.CSTNode, bool]]:
    for name, node, required in (*_variables(program), *_asked(program)):
        yield Kind.VARIABLE, name, node, required
    for path in hosted_paths(program.execution):
        if path.is_made:
            folder = "/content" if path.text.startswith("/content") else "/kaggle/working"
            yield Kind.PATH, f"{folder} as the current folder", path.node, False
        else:
            yield Kind.PATH, path.text, path.node, path.required
    calls = program.execution.calls()
    started = any(program.tree.qualified(call.func) == "subprocess.Popen" for call in calls)
    if not started and not any(_STARTS.search(program.effects.command(call)) for call in calls):
        for text in program.tree.live(cst.SimpleString):
            if match := _SERVER.match(str(text.evaluated_value)):
                yield Kind.SERVICE, f"a server at {match[0]}", text, False


def _asked(program: Program) -> Iterator[tuple[str, cst.CSTNode, bool]]:
    """Variables that answer what the notebook asks a person."""
    for each in questions(program, program.effects):
        if not program.installs.covers(each.call):
            handled = each.may_skip or is_tried(program.tree, each.call)
            yield each.variable, each.call, not (handled or _is_set_alike(program.tree, each.call, each.variable))


def _variables(program: Program) -> Iterator[tuple[str, cst.CSTNode, bool]]:
    """Variables that the notebook reads and does not set: secrets of Colab and Kaggle, `os.environ`."""
    tree = program.tree
    known = {name for _, name, _ in settings(program)} | LAUNCHER_VARIABLES | _ALWAYS
    for call in tree.live(cst.Call):
        key = tree.literal(call.args[0].value) if call.args else None
        if not isinstance(key, str) or program.installs.covers(call):
            continue
        name = hosted_name(tree, call)
        if name is not None and SECRET.fullmatch(name):
            yield key, call, not (is_tried(tree, call) or _is_set_alike(tree, call, key))
        elif _READS.fullmatch(tree.qualified(call.func)) and key not in known and len(call.args) == 1:
            given = [token_of(tree, each) for each in tree.live(cst.Call)]
            logs_in = any(tree.value(token) is call for token in given if token is not None)
            if logs_in or _SECRET_NAME.fullmatch(key):
                yield key, call, logs_in and not is_tried(tree, call)
    for item in tree.live(cst.Subscript):
        key = environ_key(tree, item)
        is_read = not isinstance(tree.parents[item], (cst.AssignTarget, cst.Del))
        if isinstance(key, str) and key not in known and is_read and not program.installs.covers(item):
            yield key, item, not is_tried(tree, item)


def _is_set_alike(tree: Tree, call: cst.Call, name: str) -> bool:
    """True for what only sets the variable by its own name, for a library that may find its token elsewhere too."""
    owner = tree.parents[call]
    return isinstance(owner, cst.Assign) and environ_key(tree, owner.targets[0].target) == name


def is_tried(tree: Tree, node: cst.CSTNode) -> bool:
    """True where the notebook goes on without what a node reads: in a `try`, below a test, in a function."""
    inner = node
    for above in tree.ancestors(node):
        if isinstance(above, cst.Try) and inner is above.body:
            return True
        if isinstance(above, (cst.If, cst.IfExp)) and inner is not above.test:
            return True
        if isinstance(above, (cst.FunctionDef, cst.Lambda, cst.While)):
            return True
        inner = above
    return False
