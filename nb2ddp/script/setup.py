"""The setup block: the lines that every script has, and the functions that inserted code calls."""

from __future__ import annotations

from collections.abc import Sequence

from nb2ddp.facts.environment import Setting
from nb2ddp.facts.execution import RUN_ONCE
from nb2ddp.facts.loading import ModelKind
from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import quoted
from nb2ddp.script.inserted import END, Inserted
from nb2ddp.script.linker import link, process, renamed, shadowed, taken, words
from nb2ddp.script.needs import tests
from nb2ddp.script.templates import render
from nb2ddp.script.versions import floors, tries_kernels
from nb2ddp.syntax.arguments import constant
from nb2ddp.syntax.tree import grouped

#: Imports of the standard library in the fixed part of the block.
_FIXED = frozenset({"import logging", "import os", "import sys"})
#: Its further imports if the notebook trains with Unsloth.
_UNSLOTH = frozenset({"import atexit", "import shutil"})
#: The import of the function that compares package versions with the oldest that work.
_COMPARES = "from accelerate.utils import compare_versions"
_GROUP = "PartialState(cpu=not torch.cuda.is_available(), timeout=timedelta({}))  # longest wait for another process"
#: Seconds that a process waits: long enough for downloads and data preparation by one process before training.
_WAIT = 7200
#: Names that make processes wait for each other if cells contain them before the end of training.
_WAITS = ("PartialState", *RUN_ONCE)


def setup(program: Program, inserted: Inserted) -> str:
    """Return the setup block of a script.

    Args:
        program: the notebook.
        inserted: the code that rules inserted; the block contains its functions and imports.
    """
    with_unsloth, several = program.trains_with_unsloth, program.options.launch.machines > 1
    last = [*(["compare_folders()"] if several else []), *inserted.last]
    if several or any(END not in text and not words(text).isdisjoint(_WAITS) for text in inserted.cells):
        seconds = _wait_seconds(program)
        duration = f"seconds={seconds}" if seconds % 3600 else f"hours={seconds // 3600}"
        last.insert(0, _GROUP.format(duration))
    futures = {line for line in inserted.first if line.startswith("from __future__ ")}
    first, rest = link(inserted.first), link([*inserted.cells, *last], several)
    used = words("\n".join([*first.functions, *rest.functions, *inserted.cells]))
    own = {f"from builtins import {each} as {program.name(each)}" for each in shadowed(program.tree) if each in used}
    oldest = floors(program) if with_unsloth else []
    packages = rest.packages - {"import torch"} | ({_COMPARES} if oldest else set())
    accelerate = frozenset(line for line in packages if line.startswith("from accelerate"))  # also without Unsloth
    text = render(
        "setup.py.j2",
        futures=sorted(futures),
        standard=_lines(first.standard | rest.standard | _FIXED | own | (_UNSLOTH if with_unsloth else frozenset())),
        has_no_file=not program.tree.loads("__file__"),
        first=_joined(first.functions, [line for line in inserted.first if line not in futures]),
        uses_unsloth=with_unsloth,
        tries_kernels=with_unsloth and tries_kernels(program),
        settings=_settings(program.early_settings),
        process=process(),
        tests_of_needs=tests(program.needs, program.name("missing")),
        warns_of_unused=_may_look_for_unused(program),
        floors=oldest,
        accelerate=_lines(packages & accelerate),
        packages=_lines(packages - accelerate),
        rest=_joined(rest.functions, last),
    )
    return renamed(text, taken(program)).strip("\n")


def _wait_seconds(program: Program) -> int:
    """Return how long a process waits for the others: two hours, or the notebook's `ddp_timeout` if that is longer.

    The first process group decides: `TrainingArguments` uses an existing one, and `ddp_timeout` then has no effect
    (accelerate/state.py, `PartialState.__init__`; transformers/training_args.py, `_setup_devices`).
    """
    values = [constant(program.tree, call, "ddp_timeout") for call in program.training.arguments]
    return max([_WAIT, *(value for value in values if isinstance(value, int))])


def _may_look_for_unused(program: Program) -> bool:
    """Return whether DDP may look for unused parameters: not if the notebook or rule DDP202 disables it everywhere."""
    flags = [constant(program.tree, call, "ddp_find_unused_parameters") for call in program.training.arguments]
    return program.model_kind is not ModelKind.DENSE_TEXT and not (flags and all(value is False for value in flags))


def _lines(imports: frozenset[str]) -> list[str]:
    """Return sorted imports: `import` lines, then one `from` line for each module."""
    parts = [line.partition("import ") for line in sorted(imports)]
    names = grouped((origin, name) for origin, _, name in parts if origin)
    plain = [line for line in sorted(imports) if line.startswith("import ")]
    return [*plain, *(f"{origin}import {', '.join(found)}" for origin, found in names.items())]


def _joined(functions: tuple[str, ...], calls: Sequence[str]) -> str:
    """Return functions with two blank lines around each, and the lines that call some of them."""
    return "\n\n\n".join(filter(None, [*functions, "\n".join(calls)]))


def _settings(early: list[Setting]) -> list[str]:
    """Return the notebook's settings from before the import of Unsloth, with comments on moved ones."""
    lines: list[str] = []
    pairs = dict.fromkeys((setting.name, setting.test) for setting in early)
    for name, test in sorted(pairs, key=lambda pair: pair[1]):
        own = [setting for setting in early if (setting.name, setting.test) == (name, test)]
        moved = [setting for setting in own if setting.moves]
        beside, *others = dict.fromkeys(setting.beside for setting in moved if setting.beside) or [""]
        lines += dict.fromkeys([comment for setting in moved for comment in setting.comments] + others)
        *_, last = [setting for setting in own if not setting.is_default] or own[:1]
        key, value = quoted(name), quoted(last.value)
        line = f"os.environ.setdefault({key}, {value})" if last.is_default else f"os.environ[{key}] = {value}"
        if test and (header := f"if {test}:") not in lines:
            lines.append(header)
        lines.append(f"    {line}" if test else f"{line}  {beside}".rstrip())
    return lines
