"""Find modules that the script imports but nothing provides: the user's, or modules of packages not installed.

A notebook does not show which of the two a module is, so the need does not state its origin.
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

#: Modules of the machines that host notebooks: scripts do not need them.
_HOSTED = frozenset("google ipykernel kaggle_datasets kaggle_secrets marimo".split())
#: Calls that add a folder to the module search path.
_TO_PATH = re.compile(r"sys\.path\.(append|insert|extend)|site\.addsitedir")


def all_needs(program: Program, packages: Requirements) -> list[str]:
    """Return the needs of a job besides packages and GPUs; modules that nothing provides come last."""
    return [str(need) for need in (*program.needs, *_modules(program, packages))]


def _modules(program: Program, packages: Requirements) -> Iterator[Need]:
    """Yield the imported modules that nothing provides, except those inside a `try` or named by an enclosing test."""
    tree, cells = program.tree, dict[str, dict[int, None]]()
    for line, module in imported_packages(tree):
        tests = " ".join(tree.text(above.test) for above in tree.ancestors(line) if isinstance(above, cst.If))
        is_tried = tree.around(line, cst.Try) or re.search(rf"\b{module}\b", tests)
        is_there = is_tried or program.installs.covers(line) or _is_provided(module, packages)
        if not is_there and not _is_made(program, line, module):
            cells.setdefault(module, {})[program.location(line).cell] = None
    for module, places in cells.items():
        yield Need(f"the module {module}", Kind.MODULE, tuple(places), required=False)


def _is_provided(module: str, packages: Requirements) -> bool:
    """Return whether Python, training, or a package of the notebook provides a module, judging by its name.

    A package may provide modules with its first word (`langchain`, `langchain_core`) or any other (`openai-whisper`,
    `whisper`) as their name. A package from a URL or a file may provide any module, unless training may import it.
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
    """Return whether code above an import may create the module, or a folder on the module search path."""
    tree = program.tree
    above = [maker for maker in program.makers if tree.start(maker.call) < tree.start(line)]
    added = [call for call in program.execution.calls(_TO_PATH) if tree.start(call) < tree.start(line)]
    folders = [text for call in added for text in texts_of(tree, call.args[-1].value)]
    places = [f"{module}.py", module, *(folder for folder in folders if PurePosixPath(folder).name not in ("", ".."))]
    return any(maker.may_make(place) for maker in above for place in places)
