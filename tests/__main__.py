"""Set everything up on a fresh machine and run the checks: `python3 -m tests`, or all of them with `--all`.

This needs Python 3.11 and a C compiler. It makes `.venv` and installs the project with the packages that its tests
need. Then it runs the linter, the fast tests, the type checker, and a few of the tests that train on this machine (the
marker `short`). The fast tests also compare the generated pages. With `--all` it runs all tests that train, the slow
tests, the cluster tests, and 5,000 fuzzed inputs. The checks that fail most often run first. Without `--all` the first
failure ends the run.

uv makes a second environment below `.venv-pinned`, with the versions that most public notebooks pin
(`tests/pinned.py`). As root on Debian, `--all` installs the system packages of the cluster tests. Elsewhere these tests
are skipped and report what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Mapping
from pathlib import Path

import tomllib

from nb2ddp.rehearsal import uv

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".venv"
PYTHON = HOME / "bin/python"
#: The folders of the project's own code. Other files in a clone, such as a user's script, are not checked.
CODE = ("action", "benchmarks", "nb2ddp", "tests")
#: The versions that the tests train with, and the packages to install without their dependencies, which need a GPU.
VERSIONS = tomllib.loads((ROOT / "nb2ddp" / "versions.toml").read_text(encoding="utf-8"))
PINS = {**VERSIONS["newest"], **VERSIONS["cpu"]}
UNSLOTH = ("unsloth", "unsloth_zoo")
#: The packages of the programs that the tests in tests/cluster run.
SYSTEM_PACKAGES = ("slurm-wlm", "munge", "iproute2", "shellcheck")


def run(title: str, *command: str | Path, environment: Mapping[str, str] | None = None) -> str:
    """Run one step from the project's folder and return its last line. Exit with the step's code if it fails."""
    print(f"\n=== {title}", flush=True)
    start, last = time.monotonic(), ""
    with subprocess.Popen(
        [str(word) for word in command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as step:
        assert step.stdout is not None
        for line in step.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    code = step.returncode
    print(f"=== {title}: {'failed' if code else 'passed'} in {time.monotonic() - start:.0f} s", flush=True)
    if code:
        sys.exit(code)
    return last


def install(everything: bool) -> None:
    """Make the environment and install into it. This is quick if the environment already exists."""
    if not PYTHON.exists():
        venv.create(HOME, with_pip=True)
    run("uv", PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv")
    settings = uv.settings()  # the package index and proxy that this user's pip has
    with_uv: tuple[str | Path, ...] = (PYTHON, "-m", "uv", "pip", "install", "--quiet", "--python", PYTHON, *uv.torch())
    pins = {name: f"{name}=={version}" for name, version in PINS.items()}
    others = [pin for name, pin in pins.items() if name not in UNSLOTH]
    run("project", *with_uv, "--editable", ".[dev,e2e]", *others, environment=settings)
    run("unsloth", *with_uv, "--no-deps", *(pins[name] for name in UNSLOTH), environment=settings)
    run("the notebooks' versions", PYTHON, "-m", "tests.pinned")
    missing = not all(shutil.which(program) for program in ("slurmctld", "munged", "ip", "shellcheck"))
    if everything and missing and shutil.which("apt-get") and os.geteuid() == 0:
        run("package lists", "apt-get", "update", "-qq")
        run("system packages", "apt-get", "install", "-y", "-qq", "--no-install-recommends", *SYSTEM_PACKAGES)


def main(arguments: list[str]) -> int:
    """Run the checks, or all of them with `--all`, and return the exit code."""
    if arguments not in ([], ["--all"]):
        print("usage: python3 -m tests [--all]", file=sys.stderr)
        return 2
    everything = bool(arguments)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # without bytecode, an import of torch takes twice as long
    if everything:
        os.environ["NB2DDP_FUZZ_CASES"] = "5000"
    install(everything)
    run("lint", PYTHON, "-m", "ruff", "check", *CODE)
    run("format", PYTHON, "-m", "ruff", "format", "--check", *CODE)
    pytest: list[str | Path] = [PYTHON, "-m", "pytest", "-q", *([] if everything else ["-x"]), "-m"]
    ends = {"fast tests": run("fast tests", *pytest, "not e2e and not cluster and not slow", "-n", "auto")}
    run("types", PYTHON, "-m", "mypy")
    train = "e2e" if everything else "e2e and short"
    ends["tests that train"] = run("tests that train", *pytest, train, "-n", "auto")
    if everything:
        ends["slow tests"] = run("slow tests", *pytest, "slow or cluster", "-n", "auto", "--dist", "loadgroup")
    print("", *(f"=== {title}: {end}" for title, end in ends.items()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
