"""Resolve the requirements of many notebooks with uv: `python -m benchmarks.resolution FOLDER ... [--page]`.

Each folder holds notebooks, as .ipynb or marimo's .py. What pip would be given for each is resolved for Python 3.12 on
Linux, without being installed. What a repository of git, a file or an index has that is not reached from here is left
out and counted apart. What came out is kept in benchmarks/results/resolution.json, by folder.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from nb2ddp.convert import convert_source
from nb2ddp.options import Options
from nb2ddp.rehearsal import upstream, uv
from nb2ddp.rehearsal.environments import ANY_VERSION
from nb2ddp.results import NotebookError

OUT = Path(__file__).parent / "results" / "resolution.json"
LIMIT = 120  # seconds of one resolution
PYTHON = "3.12"
_AWAY = re.compile(r"\$\{|git\+|@ |^https?://|\.whl$|^-e |^\./|^-r ")
_INDEX = re.compile(r"^--(?:extra-index-url|index-url|find-links) (https?://\S+)")


def resolve(files: Mapping[str, str]) -> tuple[str, str]:
    """Resolve what the requirements files of a notebook ask for.

    Args:
        files: what a conversion writes: texts by name.

    Returns:
        "all"; "the rest" where something is not reached from here, "away" where the rest does not fit without it;
        "none" where there is nothing to install; or "failed"; and what uv said.
    """
    wanted = {name: text for name, text in files.items() if ".requirements" in name}
    if not wanted:
        return "none", ""
    is_all = True
    for name, text in wanted.items():
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
        reached = [line for line in lines if _is_reached(line)]
        is_all = is_all and reached == lines
        done = _resolved(tuple(reached), "no-deps" in name)
        if done:
            return ("failed" if reached == lines else "away"), done
    return ("all" if is_all else "the rest"), ""


def _is_reached(line: str) -> bool:
    index = _INDEX.match(line)
    return _answers(index[1]) if index and "${" not in line else not _AWAY.search(line)


@cache
def _answers(address: str) -> bool:
    return upstream.answers(address)


@cache
def _resolved(lines: tuple[str, ...], is_alone: bool) -> str:
    """What uv says of requirements that do not fit together; "" where they do."""
    command = [uv.program(), "pip", "compile", "--quiet", "--no-header", "--python-version", PYTHON, "-"]
    command += ["--python-platform", "linux", "--prerelease", "if-necessary-or-explicit"]
    command += ["--no-deps"] if is_alone else []
    with tempfile.TemporaryDirectory() as scratch:
        overrides = Path(scratch, "overrides.txt")
        overrides.write_text("\n".join(ANY_VERSION), encoding="utf-8")
        done = subprocess.run(
            [*command, "--overrides", str(overrides)],
            input="\n".join(lines),
            env=uv.settings(),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    return " ".join(done.stderr.split())[-600:] if done.returncode else ""


def folder(path: Path) -> Counter[str]:
    """How the notebooks of a folder resolve; the failures are printed."""
    found: Counter[str] = Counter()
    for notebook in sorted([*path.glob("*.ipynb"), *path.glob("*.py")]):
        try:
            text = notebook.read_text(encoding="utf-8-sig")
            done = convert_source(text, notebook.stem, "train.py", Options(requirements=True), notebook.name)
        except NotebookError:
            continue
        how, why = resolve(done.files)
        found[how] += 1
        if why:
            print(f"{notebook.name}: {why}", flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resolution", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args(arguments)
    results = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {}
    for path in given.folders:
        results[path.name] = dict(folder(path))
        print(path.name, results[path.name], flush=True)
    with tempfile.NamedTemporaryFile("w", dir=given.out.parent, delete=False, encoding="utf-8") as file:
        file.write(json.dumps(results, indent=1, sort_keys=True) + "\n")
    Path(file.name).replace(given.out)
    given.out.chmod(0o644)


if __name__ == "__main__":
    main()
