"""Modules that the script imports and that nothing brings: of the user's own, or of packages that nobody installs.

Nothing in a notebook tells the two apart, so they are named without saying where they come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import libcst as cst

from nb2ddp.facts.environment import imported_packages
from nb2ddp.facts.needs import Kind, Need
from nb2ddp.facts.program import Program
from nb2ddp.facts.values import texts_of
from nb2ddp.script.modules import is_published, on_index
from nb2ddp.script.packages import Requirements

#: Modules of the machines that host notebooks: scripts do without them.
_HOSTED = frozenset("google ipykernel kaggle_datasets kaggle_secrets marimo".split())
#: What puts a folder where modules are looked for.
_TO_PATH = re.compile(r"sys\.path\.(append|insert|extend)|site\.addsitedir")


def all_needs(program: Program, packages: Requirements) -> list[str]:
    """What a job needs beside its packages and GPUs, modules that nothing brings at the end."""
    return [str(need) for need in (*program.needs, *_modules(program, packages))]


def _modules(program: Program, packages: Requirements) -> Iterator[Need]:
    """The imported modules that nothing brings, but those that a `try` stands around, or that a test names."""
    tree, cells = program.tree, dict[str, dict[int, None]]()
    for line, module in imported_packages(tree):
        tests = " ".join(tree.text(above.test) for above in tree.ancestors(line) if isinstance(above, cst.If))
        is_tried = tree.around(line, cst.Try) or re.search(rf"\b{module}\b", tests)
        is_there = is_tried or program.installs.covers(line) or _is_brought(module, packages)
        if not is_there and not _is_made(program, line, module):
            cells.setdefault(module, {})[program.location(line).cell] = None
    for module, places in cells.items():
        yield Need(f"the module {module}", Kind.MODULE, tuple(places), required=False)


def _is_brought(module: str, packages: Requirements) -> bool:
    """Whether Python, a training, or a package of the notebook's brings a module, as far as its name tells.

    A package may bring modules of its first word (`langchain`, `langchain_core`), or of any (`openai-whisper`,
    `whisper`). What a source of other packages brings is not known.
    """
    if module in _HOSTED or is_published(module, ()):
        return True
    names = {package.name for package in packages.packages}
    words = {word for name in names for word in re.split(r"\W+", name)}
    first = module.lower().partition("_")[0]
    if first in words or module.lower() in words or on_index(module).lower() in names:
        return True
    return any(package.is_source and not is_published(package.name, ()) for package in packages.packages)


def _is_made(program: Program, line: cst.CSTNode, module: str) -> bool:
    """Whether something above may write a module, or a folder in which modules are looked for."""
    tree = program.tree
    above = [maker for maker in program.makers if tree.start(maker.call) < tree.start(line)]
    added = [call for call in program.execution.calls(_TO_PATH) if tree.start(call) < tree.start(line)]
    folders = [text for call in added for text in texts_of(tree, call.args[-1].value)]
    places = [f"{module}.py", module, *(folder for folder in folders if PurePosixPath(folder).name not in ("", ".."))]
    return any(maker.may_make(place) for maker in above for place in places)
