"""Convert notebooks in several processes whose memory differs, and name those that come out differently.

`python -m tests.same_bytes FOLDER_OR_NOTEBOOK ...` ends with 1 where one does. What must hold: a conversion follows
from the notebook and the options alone, not from the order of a set of nodes or texts, nor from `id`. So a loop whose
order counts never goes over a set, and nodes are sorted by a key that no two of them share: `Tree.in_order`.

Each process has a PYTHONHASHSEED of its own, lays out its memory differently, and hashes LibCST's nodes in an order of
its own, which is what addresses do to them by chance.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import libcst as cst

from nb2ddp.convert import convert_source
from nb2ddp.options import Launch, Options
from nb2ddp.results import NotebookError

PROCESSES = 2
#: With packages in a file, in the script, and in a notebook that holds the script.
_OPTIONS = (
    Options(),
    Options(launch=Launch(launcher="uv")),
    Options(launch=Launch(launcher="notebook")),
)


def differing(notebooks: Sequence[Path]) -> list[str]:
    """Say which notebooks become different files, messages or refusals in different processes, and in which options.

    Raises:
        subprocess.CalledProcessError: a conversion crashed; its traceback is on standard error.
    """
    paths = json.dumps([str(path) for path in notebooks])
    jobs = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.same_bytes", "--process", str(seed)],
            cwd=Path(__file__).parent.parent,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in range(1, PROCESSES + 1)
    ]
    answers = [job.communicate(paths)[0] for job in jobs]
    for job in jobs:
        if job.returncode:
            raise subprocess.CalledProcessError(job.returncode, job.args)
    first, *others = map(json.loads, answers)
    return [name for name, digest in first.items() if any(other[name] != digest for other in others)]


def found(paths: Sequence[Path]) -> list[Path]:
    """The notebooks that paths name, those of a folder in order."""
    inside = [sorted(each for each in path.iterdir()) if path.is_dir() else [path] for path in paths]
    return [each for group in inside for each in group if each.suffix in (".ipynb", ".py")]


def _in_one_process(seed: int) -> dict[str, str]:
    """A digest of all that each notebook becomes, in a process whose memory no other has."""
    draws = random.Random(seed)
    _shuffle(cst.CSTNode, draws.getrandbits(60))  # type: ignore[type-abstract]
    digests = {}
    kept: list[object] = []
    for path in map(Path, json.load(sys.stdin)):
        text = path.read_text(encoding="utf-8-sig")
        for options in _OPTIONS:
            kept += [bytearray(draws.randrange(1, 2000)) for _ in range(draws.randrange(500))]
            draws.shuffle(kept)
            del kept[: len(kept) // 2]
            digests[f"{path} with {options.launch.launcher}"] = sha256(_said(text, path, options).encode()).hexdigest()
    return digests


def _said(text: str, path: Path, options: Options) -> str:
    try:
        done = convert_source(text, path.stem, "train.py", options, path.name)
    except NotebookError as error:
        return repr(error.diagnostic)
    return repr((list(done.files.items()), done.diagnostics, done.packages))


def _shuffle(kind: type[cst.CSTNode], salt: int) -> None:
    """Hash nodes of a class, and of those below it, by their addresses and a number."""
    kind.__hash__ = lambda node: hash((salt, id(node)))  # type: ignore[assignment, method-assign]
    for below in kind.__subclasses__():
        _shuffle(below, salt)


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--process"]:
        print(json.dumps(_in_one_process(int(arguments[1]))))
        return 0
    notebooks = found([Path(each) for each in arguments])
    names = differing(notebooks)
    print("\n".join([*names, f"{len(names)} of {len(notebooks) * len(_OPTIONS)} conversions differ"]))
    return 1 if names or not notebooks else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
