"""Stand in for a program of another project: `python stand_in.py NAME ARGUMENTS...` exits with 0 for valid arguments.

Launchers check the files and ranks that they get, and train nothing. A program that only passes on a command runs it.
The variable MACHINES gives the number of machines of the job. The names of the programs that ran are added to the file
LOG.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def script(name: str) -> str:
    assert Path(name).suffix == ".py", name
    compile(whole(name).read_text(encoding="utf-8"), name, "exec")
    return name


def whole(name: str) -> Path:
    assert Path(name).is_file(), name
    return Path(name)


def rank(text: str) -> int:
    assert int(text) < machines(), text
    return int(text)


def machines() -> int:
    return int(os.environ["MACHINES"])


def _accelerate(words: list[str], parser: argparse.ArgumentParser) -> list[str]:
    assert words.pop(0) == "launch"
    options: dict[str, Callable[[str], object]] = {
        "config_file": whole,
        "machine_rank": rank,
        "main_process_ip": str,
        "log_dir": str,
    }
    options |= dict.fromkeys(("num_processes", "main_process_port", "tee"), int)
    for option, kind in options.items():
        parser.add_argument(f"--{option}", type=kind)
    parser.add_argument("script", type=script)
    given = parser.parse_args(words)
    assert "num_processes:" in given.config_file.read_text()
    assert machines() == 1 or given.machine_rank is not None
    return []


def _torchrun(words: list[str], parser: argparse.ArgumentParser) -> list[str]:
    parser.add_argument("--standalone", action="store_true")
    parser.add_argument("--nproc_per_node", "--nproc-per-node", type=lambda n: n if n == "gpu" else int(n))
    parser.add_argument("--nnodes", type=int)
    parser.add_argument("--max-restarts", "--max_restarts", type=int)
    parser.add_argument("--node-rank", type=rank)
    parser.add_argument("--master-addr")
    parser.add_argument("--master-port", "--master_port", type=int)
    parser.add_argument("script", type=script)
    given = parser.parse_args(words)
    assert machines() == 1 or (given.master_addr and given.node_rank is not None)
    return []


def _pip(words: list[str], parser: argparse.ArgumentParser) -> list[str]:
    assert words.pop(0) == "install"
    for flag in ("--no-deps", "--no-build-isolation"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("-r", type=whole)
    parser.add_argument("packages", nargs="*")
    given = parser.parse_args(words)
    assert given.r or given.packages
    for package in given.packages:
        assert not package.startswith(".") or whole(f"{package.partition('[')[0]}/pyproject.toml")
    return []


def _uv(words: list[str], parser: argparse.ArgumentParser) -> list[str]:
    assert words.pop(0) == "run"
    parser.add_argument("--no-project", action="store_true")
    parser.add_argument("--with-requirements", type=script)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    header = given.with_requirements or script(given.command[0])
    assert "# /// script" in whole(header).read_text(encoding="utf-8")
    command: list[str] = given.command
    return command if given.with_requirements else []


def _sbatch(words: list[str], parser: argparse.ArgumentParser) -> list[str]:
    (job,) = words
    assert whole(job)
    return ["bash", job]


def _scontrol(words: list[str], parser: argparse.ArgumentParser) -> list[str]:
    print("node0")
    return []


def _srun(words: list[str], parser: argparse.ArgumentParser) -> list[str]:
    for machine in range(machines()):
        command = words[words.index("bash") :]
        subprocess.run(command, env={**os.environ, "SLURM_NODEID": str(machine)}, check=True, timeout=60)
    return []


def _jupyter(words: list[str], parser: argparse.ArgumentParser) -> list[str]:
    assert words[0] in ("lab", "nbconvert")
    assert any(word.endswith(".ipynb") and whole(word) for word in words)
    return []


def _python(words: list[str], parser: argparse.ArgumentParser) -> list[str]:
    (each,) = words
    script(each)
    return []


def _scp(words: list[str], parser: argparse.ArgumentParser) -> list[str]:
    *sources, target = words
    assert ":" in target
    assert all(map(whole, sources))
    return []


def _hf(words: list[str], parser: argparse.ArgumentParser) -> list[str]:
    assert words[:3] == ["jobs", "uv", "run"]
    parser.add_argument("--flavor", required=True)
    parser.add_argument("--secrets", action="append")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    command: list[str] = parser.parse_args(words[3:]).command
    return command


_PROGRAMS: dict[str, Callable[[list[str], argparse.ArgumentParser], list[str]]] = {
    "accelerate": _accelerate,
    "hf": _hf,
    "jupyter": _jupyter,
    "pip": _pip,
    "python": _python,
    "sbatch": _sbatch,
    "scontrol": _scontrol,
    "scp": _scp,
    "srun": _srun,
    "torchrun": _torchrun,
    "uv": _uv,
}


def install(folder: Path, log: Path) -> dict[str, str]:
    """Put the stand-ins into a new folder, and return an environment in which a shell finds them first."""
    folder.mkdir()
    for name in _PROGRAMS:
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" {name} "$@"\n')
        program.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin", "LOG": str(log), "MACHINES": "1"}


def main(name: str, words: Sequence[str]) -> int:
    """Check the arguments, record the name, and run what the program would run. Return the exit code."""
    rest = _PROGRAMS[name](list(words), argparse.ArgumentParser(prog=name))
    with Path(os.environ["LOG"]).open("a") as log:
        log.write(f"{name}\n")
    return subprocess.run(rest, timeout=60).returncode if rest else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
