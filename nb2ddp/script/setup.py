"""The setup block: what every script begins with, and what the code that rules inserted needs."""

from __future__ import annotations

from collections.abc import Sequence

from nb2ddp.facts.environment import Setting, blocked_modules, uses_unsloth
from nb2ddp.facts.loading import ModelKind
from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import quoted
from nb2ddp.facts.waiting import wait_seconds
from nb2ddp.options import Launch
from nb2ddp.script.inserted import END, Inserted
from nb2ddp.script.linker import link, process, renamed, taken, words
from nb2ddp.script.needs import tests
from nb2ddp.script.templates import render
from nb2ddp.script.versions import floors, tries_kernels

#: What the fixed part of the block imports of Python's own library, and what it compares versions with.
_FIXED = frozenset({"import logging", "import os", "import sys"})
_VERSION = "from importlib.metadata import version"
_GROUP = "PartialState(cpu=not torch.cuda.is_available(), timeout=timedelta({}))  # others may wait long for one"
#: What makes processes wait for each other, where cells have it before the end of training.
_WAITS = ("PartialState", "run_once")


def setup(program: Program, inserted: Inserted) -> str:
    """The setup block of a script.

    Args:
        program: the notebook.
        inserted: the code that rules inserted, whose functions and imports the block holds.
    """
    with_unsloth, several = uses_unsloth(program.tree), program.options.launch.machines > 1
    last = [*(["compare_folders()"] if several else []), *inserted.last]
    if with_unsloth and tries_kernels(program):
        last.append("keep_kernel_trial_apart()")
    if several or any(_makes_wait(text) for text in inserted.cells):
        last.insert(0, _GROUP.format(_duration(wait_seconds(program.training))))
    older = floors(program) if with_unsloth else []
    first, rest = link(inserted.first), link([*inserted.cells, *last], several)
    text = render(
        "setup.py.j2",
        standard=_lines(first.standard | rest.standard | _FIXED | ({_VERSION} if older else set())),
        first=_joined(first.functions, inserted.first),
        uses_unsloth=with_unsloth,
        settings=[*_settings(program.early_settings), *_blocks(program)],
        process=process(),
        tests_of_needs=tests(program.needs, program.name("missing")),
        warns_of_unused=program.model_kind is not ModelKind.DENSE_TEXT,
        floors=older,
        fewer_processes=_fewer_processes(program.options.launch),
        packages=_lines(rest.packages - {"import torch"}),
        rest=_joined(rest.functions, last),
    )
    return renamed(text, taken(program)).strip("\n")


def _fewer_processes(launch: Launch) -> str:
    """What to type where a machine has fewer GPUs than processes, as a part of an f-string that knows `gpus`."""
    if launch.machines == 1 and launch.launcher in ("accelerate", "torchrun"):
        return "start it with torchrun --nproc_per_node gpu {sys.argv[0]}"
    count = "{gpus}" if launch.machines == 1 else f"{{{launch.machines} * gpus}}"
    return f"convert again with --num-processes {count}"


def _makes_wait(text: str) -> bool:
    return not words(text).isdisjoint(_WAITS) and END not in text


def _duration(seconds: int) -> str:
    return f"seconds={seconds}" if seconds % 3600 else f"hours={seconds // 3600}"


def _lines(imports: frozenset[str]) -> list[str]:
    """Imports in their order: modules before what is taken from modules."""
    return sorted(imports, key=lambda each: (each.startswith("from"), each))


def _joined(functions: tuple[str, ...], calls: Sequence[str]) -> str:
    """Functions with two blank lines around each, and the lines that call some of them."""
    return "\n\n\n".join(filter(None, [*functions, "\n".join(calls)]))


def _blocks(program: Program) -> list[str]:
    """The lines that keep packages from being imported, as the notebook writes them above the import of Unsloth."""
    tree = program.tree
    lines = blocked_modules(tree)
    rests = [tree.source[(end := tree.span(line)[1]) : tree.line_end(end)].strip(" ;") for line in lines]
    comments = [rest if rest.startswith("#") else "" for rest in rests]
    return [f"{tree.text(line)}  {comment}".rstrip() for line, comment in zip(lines, comments, strict=True)]


def _settings(early: list[Setting]) -> list[str]:
    """The lines that set what the notebook sets before Unsloth is imported, with the comments of those that moved."""
    lines: list[str] = []
    for name in dict.fromkeys(each.name for each in early):
        own = [each for each in early if each.name == name]
        moved = [each for each in own if each.moves]
        beside, *others = dict.fromkeys(each.beside for each in moved if each.beside) or [""]
        if not beside and not lines:
            beside = "# the notebook's settings, before the imports that read them"
        lines += dict.fromkeys([comment for each in moved for comment in each.comments] + others)
        lines.append(f"os.environ[{quoted(name)}] = {quoted(own[-1].value)}  {beside}".rstrip())
    return lines
