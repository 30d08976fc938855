"""README and the first hour of a new user, typed by a program: `python -m tests.first_hour` writes docs/first-hour.md.

Every command is run, in order, in an empty folder with a fresh clone and new environments, and what it prints stands on
the page. It installs the project and rehearses a script, which takes minutes; `--quick` leaves these steps as the page
has them. `tests/test_first_hour.py` runs the quick steps each time; README's second command is typed by `.ci/run`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from tests import stand_in
from tests.checkout import repository
from tests.notebooks import code

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "first-hour.md"
PICTURE = ROOT / "docs" / "figures" / "terminal.svg"


#: What README says to type: convert in a clone, run the checks, install, use.
CONVERT, CHECKS, INSTALL, USE = (
    tuple(block.splitlines())
    for block in re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
)
#: What one step printed, on the page.
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Step:
    """A piece of the page.

    Attributes:
        prose: what stands above the commands.
        commands: lines for a shell.
        code: what the last of them exits with.
        before: what happens outside of the shell.
        at: the folder in which they are typed.
        slow: it takes minutes, or its numbers differ from run to run.
        imitated: stand-ins take the place of other projects' programs.
    """

    prose: str
    commands: tuple[str, ...] = ()
    code: int = 0
    before: Callable[[Path], None] | None = None
    at: str = "."
    slow: bool = False
    imitated: bool = False


def _add_a_cell(folder: Path) -> None:
    """Change the notebook as a person does in Jupyter."""
    path = folder / "finetune.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    source = 'print("trained for", trainer_stats.metrics["train_runtime"], "seconds")'
    notebook["cells"].append(code(source))
    path.write_text(json.dumps(notebook, indent=1), encoding="utf-8")


def _change_the_same_line(folder: Path) -> None:
    path = folder / "finetune.ipynb"
    path.write_text(path.read_text(encoding="utf-8").replace("max_steps = 20", "max_steps = 30"), encoding="utf-8")


STEPS = (
    Step("A fresh clone, in an empty folder:", ('git clone -q "$URL" nb2ddp',), slow=True),
    Step("README's first command, in the clone:", CONVERT, at="nb2ddp", slow=True),
    Step(
        "README's installation, in the folder that holds the clone, into an environment:",
        ("python3 -m venv .venv", ". .venv/bin/activate", *INSTALL),
        slow=True,
    ),
    Step(
        "One of its notebooks stands here for yours, in a folder of its own:",
        ("mkdir mine", "cp nb2ddp/fixtures/notebooks/alpaca.ipynb mine/finetune.ipynb"),
    ),
    Step(
        "README's lines for it, typed there. This machine has no GPU: stand-ins take the place of pip, Python and the "
        "launchers, which check the files and options that they are given:",
        USE,
        at="mine",
        imitated=True,
    ),
    Step(
        "The same notebook under the script's name that the rest of this page has:",
        ("cp nb2ddp/fixtures/notebooks/alpaca.ipynb finetune.ipynb",),
    ),
    Step("A notebook becomes a script. It is read, not run:", ("nb2ddp finetune.ipynb train.py",)),
    Step("The first lines of the script say how it is started, and how it is made again:", ("head -5 train.py",)),
    Step(
        "Does it train on several GPUs as on one? A rehearsal trains it on the CPU, with small models in place of the "
        "real ones, as one process and as two. First the packages that it trains with (or `pip install uv`, which lets "
        "it make an environment of its own):",
        (
            'pip install -q "./nb2ddp[rehearse]"',
            "pip install -q --no-deps unsloth unsloth_zoo",
            "nb2ddp rehearse -q train.py",
        ),
        slow=True,
    ),
    Step(
        "Twenty steps are too few, so the script is edited. That is fine, and said:",
        ("sed -i 's/max_steps = 20/max_steps = 200/' train.py", "nb2ddp finetune.ipynb train.py --check"),
    ),
    Step(
        "A day later the notebook has one more cell, at its end. The script is out of date now:",
        ("nb2ddp finetune.ipynb train.py --check",),
        code=1,
        before=_add_a_cell,
    ),
    Step(
        "Converting again adds what is new, and keeps the edit:",
        (
            "nb2ddp finetune.ipynb train.py --diff",
            "nb2ddp finetune.ipynb train.py",
            "grep -n max_steps train.py",
        ),
    ),
    Step(
        "Where the notebook changes the very line that was edited, nothing is written, and both are shown:",
        ("nb2ddp finetune.ipynb train.py",),
        code=2,
        before=_change_the_same_line,
    ),
    Step(
        "A person decides: `--keep mine` for the own lines, or as here for the notebook's:",
        (
            "nb2ddp finetune.ipynb train.py --keep new",
            "grep -n max_steps train.py",
            "nb2ddp finetune.ipynb train.py --check",
        ),
    ),
)
_INTRODUCTION = """\
# The first hour

<!-- Written by `python -m tests.first_hour`; do not edit. -->

Every command below was run in this order, and printed what stands here (seconds are left out).
"""


def play(
    folder: Path, environment: dict[str, str], *, slow: bool, steps: Sequence[Step] = STEPS
) -> Iterator[tuple[Step, str]]:
    """Run the steps, and say what each printed as a terminal shows it.

    Args:
        folder: an empty one.
        environment: of the commands.
        slow: run the slow steps too; without them, they print nothing.
        steps: which ones.
    """
    if not slow:
        (folder / "nb2ddp").symlink_to(ROOT)
    for step in steps:
        if step.before is not None:
            step.before(folder)
        yield step, "".join(_typed(folder, environment, step)) if slow or not step.slow else ""


def _typed(folder: Path, environment: dict[str, str], step: Step) -> Iterator[str]:
    if step.imitated:
        programs = stand_in.install(folder.parent / "programs", folder.parent / "log")
        environment = {**environment, **programs, "PATH": f"{folder.parent / 'programs'}:{environment['PATH']}"}
    for number, command in enumerate(step.commands, start=1):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder / step.at,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=1200,
        )
        assert done.returncode == (step.code if number == len(step.commands) else 0), done.stdout
        yield f"$ {command}\n{done.stdout}"


def page(played: Iterator[tuple[Step, str]]) -> str:
    """The page, of steps that were run."""
    return "\n".join([_INTRODUCTION, *(f"{step.prose}\n\n```console\n{text}```\n" for step, text in played)])


def picture(text: str) -> str:
    """A terminal that shows lines, as an SVG."""
    lines = text.splitlines()
    rows = [
        f'<text x="16" y="{28 + 20 * number}" fill="{_fill(line)}" xml:space="preserve">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]
    size = f'width="940" height="{24 + 20 * len(lines)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="14">'
    return "\n".join([head, f'<rect {size} rx="8" fill="#1e1e2e"/>', *rows, "</svg>", ""])


def _fill(line: str) -> str:
    if line.startswith("$"):
        return "#ffffff"
    if " error: " in line or line.startswith("  ✗"):
        return "#f38ba8"
    return "#f9e2af" if " warning: " in line else "#a6adc8"


def shown(page_text: str) -> str:
    """What the picture shows of the page: converting, editing, converting again."""
    convert = "nb2ddp finetune.ipynb train.py"
    wanted = (f"{convert}\n", "sed -i 's/max_steps = 20/", f"{convert} --diff\n")
    blocks = [block.split("\n```")[0] for block in page_text.split("```console\n")[1:]]
    first, edit, again = (next(block for block in blocks if block.startswith(f"$ {each}")) for each in wanted)
    return "\n".join([first, edit, again[again.index(f"$ {convert}\n") :]])


def environment_of(folder: Path) -> dict[str, str]:
    """An environment without settings of the machine, whose cache is the folder's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NB2DDP_", "GIT_"))}
    kept["HF_HUB_OFFLINE"] = "1"  # a rehearsal says the same wherever it is typed
    return {**kept, "NB2DDP_CACHE_DIR": str(folder / "cache"), "COLUMNS": "100", "NO_COLOR": "1", "CI": "1"}


def command_of(folder: Path) -> dict[str, str]:
    """An environment in which `nb2ddp` is this project, run by this Python."""
    command = folder / "bin" / "nb2ddp"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m nb2ddp "$@"\n')
    command.chmod(0o755)
    environment = environment_of(folder)
    return {**environment, "PATH": f"{command.parent}:{environment['PATH']}"}


def _all(folder: Path) -> Iterator[tuple[Step, str]]:
    environment = {**environment_of(folder.parent), "URL": str(repository(folder.parent / "origin"))}
    environment["PIP_QUIET"] = "2"  # what it says of a machine's own index is nobody else's
    environment["PATH"] = f"{folder / '.venv' / 'bin'}:{environment['PATH']}"
    return play(folder, environment, slow=True)


def _quick(folder: Path) -> Iterator[tuple[Step, str]]:
    before = dict(zip(STEPS, BLOCK.findall(PAGE.read_text(encoding="utf-8")), strict=True))
    played = play(folder, command_of(folder.parent), slow=False)
    return ((step, before[step] if step.slow else text) for step, text in played)


def main(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "work")
        folder.mkdir()
        text = page(_quick(folder) if arguments == ["--quick"] else _all(folder))
    text = re.sub(r"(?<=in )\d+ s and \d+ s", "… s and … s", text)
    PAGE.write_text(text, encoding="utf-8")
    PICTURE.write_text(picture(shown(text)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
