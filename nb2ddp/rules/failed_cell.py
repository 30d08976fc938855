"""DDP008: A cell that failed when the notebook was saved gets a `TODO`: the script has its code, and may stop there.

Before training, a job ends after it has loaded the model; after training, it runs nothing that follows. What only the
notebook's machine or order of cells explains is left out: an interrupt, a missing package, a name not yet defined, no
GPU, memory or a disk that is full, a process that the machine ended, a library that does not load, adapters added
twice.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule

_ELSEWHERE = re.compile(
    r"(?is)KeyboardInterrupt|NameError|(ModuleNotFound|Import)Error|.*(\bFailed to import\b|"
    r"\bout of (memory|resource)\b|OutOfMemory|MemoryError|allocate memory|enough GPU RAM|No space left|StorageFull|"
    r"the disk is full|\babruptly\b|killed by signal|NVIDIA driver|\bneed a GPU|update Unsloth|no (CUDA|GPU)s?\b|"
    r"\berror loading\b.*\bdll\b|cannot open shared object|already added LoRA)"
)
#: What an error of the Hub begins with: `(Request ID: Root=...)`.
_REQUEST = re.compile(r"\(Request ID: [^()]*\)\s*")
_FAILED = "this cell failed when the notebook was saved ({}), and the script has it: run the notebook again and save it"
_LOST = "this cell failed when the notebook was saved ({}): if it fails again, the script stops here, after training"


def find(program: Program) -> Iterator[Finding]:
    lines = {
        cell: [
            line
            for line in program.lines_of(cell.number)
            if program.tree.is_live(line) and not program.installs.covers(line)
        ]
        for cell in program.code_cells
    }
    last = max((cell.number for cell, own in lines.items() if own), default=0)
    for cell, own in lines.items():
        if not own or not cell.failed or _ELSEWHERE.match(cell.failed):
            continue
        needed = [line for line in own if program.training.is_before_end(line)]
        error = textwrap.shorten(_REQUEST.sub("", cell.failed), 90, placeholder="...")
        if needed:
            yield Finding(needed[0], _FAILED.format(error), todo=True)
        elif cell.number != last:
            yield Finding(own[0], _LOST.format(error), todo=True)


_REFUSED = "HfHubHTTPError: (Request ID: Root=1-2;3) 403 Forbidden: no rights to create a model"
_ERRORS = "AttributeError: the model has no attribute 'vllm_engine'", "IndexError: list index out of range"

RULE = Rule(
    name="failed-when-saved",
    find=find,
    severity=Severity.WARNING,
    examples=(
        Example(
            f"trainer.train()\n#> {_ERRORS[0]}\n",
            f"# TODO[nb2ddp] DDP008: {_FAILED.format(_ERRORS[0])}\ntrainer.train()\n#> {_ERRORS[0]}\n",
        ),
        Example(
            f"trainer.train()\n# %%\nprint(rows[0].split('x')[1])\n#> {_ERRORS[1]}\n# %%\n"
            "model.save_pretrained('lora')\n",
            f"trainer.train()\n# %%\n# TODO[nb2ddp] DDP008: {_LOST.format(_ERRORS[1])}\n"
            f"print(rows[0].split('x')[1])\n#> {_ERRORS[1]}\n# %%\nmodel.save_pretrained('lora')\n",
        ),
        Example(
            "rows = load()\n#> NameError: name 'load' is not defined\n# %%\ntrainer.train()\n# %%\n"
            "model.save_pretrained('lora')\n#> OSError: the disk is full\n# %%\nprint(1)\n"
        ),
        Example("trainer.train()\n# %%\nprint(rows[0])\n#> IndexError: list index out of range\n"),
        Example(
            f"trainer.train()\n# %%\nmodel.push_to_hub('a/b')\n#> {_REFUSED}\n# %%\nprint(1)\n",
            "trainer.train()\n# %%\n# TODO[nb2ddp] DDP008: "
            + _LOST.format("HfHubHTTPError: 403 Forbidden: no rights to create a model")
            + f"\nmodel.push_to_hub('a/b')\n#> {_REFUSED}\n# %%\nprint(1)\n",
        ),
        Example(
            "rows = rows.map(f)\n#> RuntimeError: One of the subprocesses has abruptly died during map operation.\n"
            "# %%\ntrainer.train()\n#> RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed.\n"
        ),
        Example("trainer.train()\n#> RuntimeError: Found no NVIDIA driver on your system.\n"),
        Example(
            "import torch\n#> OSError: [WinError 127] Not found. Error loading 'torch/lib/shm.dll' or what it needs.\n"
            "# %%\ntrainer = make()\n#> RuntimeError: Unsloth: You already added LoRA adapters to your model!\n"
            "# %%\ntrainer.train()\n"
        ),
    ),
)
