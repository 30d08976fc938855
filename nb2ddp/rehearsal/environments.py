"""Environments for rehearsals: that of this program, or one that uv creates with the versions of the job.

Created environments are in the cache folder, each under a hash of its requirements; the last used ones are kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nb2ddp.project.files import default_folder
from nb2ddp.rehearsal import uv
from nb2ddp.rehearsal.stage import about
from nb2ddp.script.modules import requirement_of
from nb2ddp.versions import pins, tables

KEPT = 4  #: environments, of one or two gigabytes each
_HOUR = 3600.0  # seconds
_UNFIT = "left-out.txt"  #: a file in an environment: packages that are not built for its torch
#: The packages that train. Other packages do not change a verdict.
LIBRARIES = ("torch", "transformers", "accelerate", "datasets", "trl", "peft", "sentence_transformers", "unsloth")
#: Packages that a rehearsal also needs, even if the notebook does not install them.
_NEEDED = ["torch", "psutil", "pillow", "requests"]
if sys.version_info < (3, 11):
    _NEEDED.append("tomli")  # the stage reads its tables with it
#: Packages that cannot be installed without a GPU or its compiler, or do nothing without a GPU.
NEEDS_GPU = frozenset(
    "apex auto-gptq autoawq bitsandbytes causal-conv1d cut-cross-entropy deepspeed fbgemm-gpu flash-attn"
    " flash-linear-attention flashinfer-python gptqmodel liger-kernel mamba-ssm pytorch-triton-rocm sageattention"
    " sglang tensorrt tilelang transformer-engine triton triton-kernels triton-rocm triton-windows vllm xformers"
    " xgrammar".split()
)
#: Packages of which any version is good enough, even if Unsloth asks for one that an index does not have yet.
ANY_VERSION = ("certifi",)
_OF_TORCH = ("torchaudio", "torchcodec", "torchvision")  # each is compiled for one build of torch
_PYTHONS = ((3, 10), (3, 13))  # the oldest and the newest that the libraries support


@dataclass(frozen=True)
class Environment:
    """A Python interpreter and its packages.

    Attributes:
        python: the path of the interpreter.
        name: its name in a verdict.
        versions: the installed packages of `LIBRARIES`, and their versions.
        notes: what was left out.
        is_notebooks: whether it was created from the requirements of the notebook.
    """

    python: str
    name: str
    versions: Mapping[str, str]
    notes: tuple[str, ...] = ()
    is_notebooks: bool = False

    def has(self, name: str) -> bool:
        """Return whether one of `LIBRARIES` can be imported."""
        return name in self.versions


@dataclass(frozen=True)
class Wanted:
    """The packages for an environment.

    Attributes:
        lines: the lines of a requirements file, with options about indexes.
    """

    lines: tuple[str, ...] = ()

    @classmethod
    def of(cls, files: Mapping[str, str]) -> Wanted:
        """Return the packages that requirements files ask for.

        Args:
            files: texts by file name; files of other kinds are ignored.
        """
        texts = (text for name, text in files.items() if name.endswith(".requirements.txt"))
        lines = [line.strip() for text in texts for line in text.splitlines()]
        return cls(tuple(line for line in lines if line and not line.startswith("#")))

    @property
    def requirements(self) -> list[Requirement]:
        """The requirements in its lines that name a package without an address."""
        return [own for line in self.lines if (own := requirement_of(line)) and not own.url]

    def with_versions(self, name: str) -> Wanted:
        """Return the same packages, with the versions of a set instead of the notebook's versions."""
        named = {canonicalize_name(Requirement(pin).name) for pin in pins(name)}
        others = [line for line in self.lines if _package(line) not in named]
        return Wanted((*others, *pins(name)))

    def lacks(self, environment: Environment) -> list[str]:
        """Return the requirements about `LIBRARIES` that an environment does not meet."""
        return [
            str(own)
            for own in self.requirements
            if (version := environment.versions.get(own.name.replace("-", "_")))
            and not own.specifier.contains(version, prereleases=True)
        ]


def here() -> Environment:
    """Return the environment of this program."""
    return Environment(sys.executable, "this environment", about.versions(LIBRARIES))


def made(
    wanted: Wanted, libraries: Iterable[str], name: str, tell: Callable[[str], None], *, folder: Path | None = None
) -> Environment:
    """Return an environment with the wanted packages, from the cache or newly created.

    Args:
        wanted: its packages.
        libraries: packages of `LIBRARIES` to add.
        name: its name in a verdict.
        tell: called with what happens.
        folder: the folder of environments; None for the cache folder.

    Raises:
        uv.UvError: uv is not installed, or cannot create it.
    """
    root = folder or home()
    root.mkdir(parents=True, exist_ok=True)
    lines, left = _installable(wanted, libraries)
    place = root / _name(lines, python(), platform.machine(), tables()["cpu"])
    if not place.is_dir():
        tell("asking the package index for versions")
        _make(lines, place, tell)
    os.utime(place)
    _prune(root)
    program, unfit = interpreter(place), (place / _UNFIT).read_text(encoding="utf-8").split()
    notes = [f"left out because they need a GPU: {', '.join(left)}"] if left else []
    notes += [f"left out because no index has them for this build of torch: {', '.join(unfit)}"] if unfit else []
    output = subprocess.run([program, about.__file__, *LIBRARIES], capture_output=True, text=True, check=True).stdout
    return Environment(str(program), name, json.loads(output), tuple(notes))


def for_training(wanted: Wanted, *, has_gpu: bool) -> tuple[Path, list[str]]:
    """Return the folder of a script's environment, one for each list of packages, and options of `uv pip install`.

    Args:
        wanted: the contents of its requirements file.
        has_gpu: whether it trains on a GPU; if not, packages that need one are left out.
    """
    root = home()
    root.mkdir(parents=True, exist_ok=True)
    place = root / f"run-{_name(str(sys.version_info[:2]), platform.machine(), str(has_gpu), *wanted.lines)}"
    asks = "torch" in map(_package, wanted.lines)
    if has_gpu:
        return place, [] if asks else [*uv.torch("auto")]
    left_out = root / "left-out-on-a-cpu.txt"
    left_out.write_text("".join(f"{name}\n" for name in sorted((*NEEDS_GPU, *_OF_TORCH))), encoding="utf-8")
    return place, [*uv.torch(), "--excludes", str(left_out), *([] if asks else [f"torch=={tables()['cpu']['torch']}"])]


def interpreter(place: Path) -> Path:
    """Return the interpreter of an environment."""
    return place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def home() -> Path:
    """Return the folder of created environments."""
    return default_folder() / "environments"


def python() -> str:
    """Return the interpreter that runs this program, or a version that the libraries support."""
    oldest, newest = _PYTHONS
    return sys.executable if oldest <= sys.version_info[:2] <= newest else "3.12"


def _name(*about: object) -> str:
    """Return a name for an environment: a hash of what determines its contents."""
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


def _package(line: str) -> str:
    """Return the package that a line names; "" for an option or a bare address."""
    own = requirement_of(line)
    return canonicalize_name(own.name) if own else ""


def _installable(wanted: Wanted, libraries: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the lines for uv, with what a rehearsal needs, and the packages that are left out."""
    lines = wanted.lines
    left = sorted({_package(line) for line in lines} & NEEDS_GPU)
    named = {_package(line) for line in lines}
    needed = dict.fromkeys(canonicalize_name(name) for name in (*_NEEDED, *libraries))
    missing = [name for name in needed if name not in named]
    return [line for line in lines if _package(line) not in NEEDS_GPU] + missing, left


def _resolved(lines: Sequence[str], scratch: Path) -> str:
    """Resolve the lines to exact versions; if none of them asks for a version of torch, take that of our tests."""
    asked = partial(uv.resolved, folder=scratch, python=python(), overrides=ANY_VERSION, excluded=sorted(NEEDS_GPU))
    with contextlib.suppress(uv.UvError):
        return asked([*lines, f"torch=={tables()['cpu']['torch']}"] if "torch" in lines else lines)
    return asked(lines)


def _fitting(lock: str) -> tuple[str, list[str]]:
    """Return a lock without packages for other builds of torch than its own, and the names of these packages."""
    builds = dict(re.findall(r"(?m)^([\w-]+)==[^+\s]*(\S*)$", lock))
    unfit = [name for name in _OF_TORCH if builds.get(name, builds.get("torch")) != builds.get("torch")]
    kept = (line for line in lock.splitlines() if line.partition("==")[0] not in unfit)
    return "".join(f"{line}\n" for line in kept), unfit


def _make(lines: Sequence[str], place: Path, tell: Callable[[str], None]) -> None:
    """Create an environment next to its final place, and move it there when it is complete."""
    scratch = Path(tempfile.mkdtemp(prefix="new-", dir=place.parent))
    try:
        lock, unfit = _fitting(_resolved(lines, scratch))
        tell("installing packages")
        tell("")  # uv shows its own progress on a terminal
        file = scratch / "lock.txt"
        file.write_text(lock, encoding="utf-8")
        uv.install(file, scratch / "made", python=python(), is_shown=sys.stderr.isatty())
        (scratch / "made" / _UNFIT).write_text(" ".join(unfit), encoding="utf-8")
        if not place.is_dir():  # else another process was faster
            (scratch / "made").rename(place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _prune(root: Path) -> None:
    """Keep the most recently used environments, and remove the others unless a rehearsal may still run in them."""
    made = [path for path in root.glob("*") if re.fullmatch(r"[0-9a-f]{16}", path.name)]
    for place in sorted(made, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        if time.time() - place.stat().st_mtime > _HOUR:
            shutil.rmtree(place, ignore_errors=True)
    for scratch in root.glob("new-*"):  # of a rehearsal that was killed
        if time.time() - scratch.stat().st_mtime > 24 * _HOUR:
            shutil.rmtree(scratch, ignore_errors=True)
