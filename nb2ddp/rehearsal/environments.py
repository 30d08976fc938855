"""Where a script is rehearsed: the environment of this program, or one that uv makes with the versions of the job.

Made environments lie in the cache folder, each under a hash of what was asked for; those that were used last are kept.
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

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from nb2ddp.project.files import default_folder
from nb2ddp.rehearsal import uv
from nb2ddp.rehearsal.stage import about
from nb2ddp.versions import pins, tables

KEPT = 4  #: environments, of one or two gigabytes each
_HOUR = 3600.0  # seconds
_UNFIT = "left-out.txt"  #: in an environment: packages that are not built for its torch
#: The packages that train; what others there are changes nothing that a verdict speaks of.
LIBRARIES = ("torch", "transformers", "accelerate", "datasets", "trl", "peft", "sentence_transformers", "unsloth")
#: What a rehearsal needs besides, whatever the notebook installs.
_NEEDED = ("torch", "psutil", "pillow", "requests", "tomli")
#: What cannot be installed without a GPU or its compiler, or does nothing without one.
NEEDS_GPU = frozenset(
    "apex auto-gptq autoawq bitsandbytes causal-conv1d cut-cross-entropy deepspeed fbgemm-gpu flash-attn"
    " flash-linear-attention flashinfer-python gptqmodel liger-kernel mamba-ssm pytorch-triton-rocm sageattention"
    " sglang tensorrt tilelang transformer-engine triton triton-kernels triton-rocm triton-windows vllm xformers"
    " xgrammar".split()
)
#: Of these any version does, also where Unsloth asks for one that an index does not have yet.
ANY_VERSION = ("certifi",)
_OF_TORCH = ("torchaudio", "torchcodec", "torchvision")  # compiled for one build of torch each
_PYTHONS = ((3, 10), (3, 13))  # the oldest and the newest for which the libraries are made


@dataclass(frozen=True)
class Environment:
    """A Python, and what is installed for it.

    Attributes:
        python: its interpreter.
        name: as a verdict calls it.
        versions: those of `LIBRARIES` that are there, and their versions.
        notes: what was left out.
        is_notebooks: it was made of what the notebook asks for.
    """

    python: str
    name: str
    versions: Mapping[str, str]
    notes: tuple[str, ...] = ()
    is_notebooks: bool = False

    def has(self, name: str) -> bool:
        """Whether one of `LIBRARIES` can be imported."""
        return name in self.versions


@dataclass(frozen=True)
class Wanted:
    """What an environment is to hold.

    Attributes:
        lines: of a requirements file, options about indexes included.
    """

    lines: tuple[str, ...] = ()

    @classmethod
    def of(cls, files: Mapping[str, str]) -> Wanted:
        """What requirements files ask for.

        Args:
            files: texts by file name; other files than those are passed over.
        """
        texts = (text for name, text in files.items() if name.endswith(".requirements.txt"))
        lines = [line.strip() for text in texts for line in text.splitlines()]
        return cls(tuple(line for line in lines if line and not line.startswith("#")))

    @property
    def requirements(self) -> list[Requirement]:
        """Those of its lines that name a package, and versions."""
        return [own for line in self.lines if (own := _requirement(line)) and not own.url]

    def with_versions(self, name: str) -> Wanted:
        """The same packages, with the versions of a set in place of the notebook's."""
        named = {canonicalize_name(Requirement(pin).name) for pin in pins(name)}
        others = [line for line in self.lines if _package(line) not in named]
        return Wanted((*others, *pins(name)))

    def lacks(self, environment: Environment) -> list[str]:
        """The requirements about `LIBRARIES` that an environment does not meet."""
        return [
            str(own)
            for own in self.requirements
            if (version := environment.versions.get(own.name.replace("-", "_")))
            and not own.specifier.contains(version, prereleases=True)
        ]


def here() -> Environment:
    """The environment of this program."""
    return Environment(sys.executable, "this environment", about.versions(LIBRARIES))


def made(
    wanted: Wanted, libraries: Iterable[str], name: str, tell: Callable[[str], None], *, folder: Path | None = None
) -> Environment:
    """An environment with what is wanted, from the cache or newly made.

    Args:
        wanted: its packages.
        libraries: those of `LIBRARIES` that it has besides.
        name: as a verdict is to call it.
        tell: called with what happens.
        folder: where environments lie; None takes the cache folder.

    Raises:
        uv.UvError: uv is not there, or cannot make it.
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
    said = subprocess.run([program, about.__file__, *LIBRARIES], capture_output=True, text=True, check=True).stdout
    return Environment(str(program), name, json.loads(said), tuple(notes))


def for_training(wanted: Wanted, *, has_gpu: bool) -> tuple[Path, list[str]]:
    """Where an environment for a script lies, one for each list of packages, and options of `uv pip install` for it.

    Args:
        wanted: what its requirements file asks for.
        has_gpu: it trains on a GPU; else what needs one is left out.
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
    """The interpreter of an environment."""
    return place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def home() -> Path:
    """The folder of made environments."""
    return default_folder() / "environments"


def python() -> str:
    """The interpreter that runs this, or a version that the libraries are made for."""
    oldest, newest = _PYTHONS
    return sys.executable if oldest <= sys.version_info[:2] <= newest else "3.12"


def _name(*about: object) -> str:
    """A name for an environment, by what decides what is in it."""
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


def _requirement(line: str) -> Requirement | None:
    try:
        return Requirement(line)
    except InvalidRequirement:
        return None


def _package(line: str) -> str:
    """The package that a line names; "" for an option, and for a bare address."""
    own = _requirement(line)
    return canonicalize_name(own.name) if own else ""


def _installable(wanted: Wanted, libraries: Iterable[str]) -> tuple[list[str], list[str]]:
    """The lines for uv, with what a rehearsal needs, and the packages that are left out."""
    lines = wanted.lines
    left = sorted({_package(line) for line in lines} & NEEDS_GPU)
    named = {_package(line) for line in lines}
    needed = dict.fromkeys(canonicalize_name(name) for name in (*_NEEDED, *libraries))
    missing = [name for name in needed if name not in named]
    return [line for line in lines if _package(line) not in NEEDS_GPU] + missing, left


def _resolved(lines: Sequence[str], scratch: Path) -> str:
    """What the lines resolve to: where nothing else asks for a version of torch, to that of our tests."""
    asked = partial(uv.resolved, folder=scratch, python=python(), overrides=ANY_VERSION, excluded=sorted(NEEDS_GPU))
    with contextlib.suppress(uv.UvError):
        return asked([*lines, f"torch=={tables()['cpu']['torch']}"] if "torch" in lines else lines)
    return asked(lines)


def _fitting(lock: str) -> tuple[str, list[str]]:
    """A lock without what was built for another torch than its own, and the packages that it loses."""
    builds = dict(re.findall(r"(?m)^([\w-]+)==[^+\s]*(\S*)$", lock))
    unfit = [name for name in _OF_TORCH if builds.get(name, builds.get("torch")) != builds.get("torch")]
    kept = (line for line in lock.splitlines() if line.partition("==")[0] not in unfit)
    return "".join(f"{line}\n" for line in kept), unfit


def _make(lines: Sequence[str], place: Path, tell: Callable[[str], None]) -> None:
    """Make an environment beside its place, and move it there whole."""
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
    """Remove what was used before those that are kept, unless a rehearsal may still run in it."""
    made = [path for path in root.glob("*") if re.fullmatch(r"[0-9a-f]{16}", path.name)]
    for place in sorted(made, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        if time.time() - place.stat().st_mtime > _HOUR:
            shutil.rmtree(place, ignore_errors=True)
    for scratch in root.glob("new-*"):  # of one that was killed
        if time.time() - scratch.stat().st_mtime > 24 * _HOUR:
            shutil.rmtree(scratch, ignore_errors=True)
