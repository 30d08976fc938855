"""Show how a change affects the scripts of all available notebooks.

`python -m tests.frozen` converts each notebook with five sets of options. It compares scripts, other files, findings
and refusals, without the lines `convert again:`, with the results of HEAD, or of the commit `--against`. It prints one
diff for each distinct change, with the number of notebooks that have it. The exit code is 1 if anything differs.
`--every 8` takes every eighth notebook.

The notebooks are those in the folders of `../shared/corpus`, beside the checkout that the worktree belongs to, and in
each given FOLDER. The results of a commit are kept below the folder for temporary files.
"""

from __future__ import annotations

import argparse
import difflib
import io
import json
import lzma
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nb2ddp.convert import convert_source
from nb2ddp.options import Launch, Options
from nb2ddp.results import Diagnostic, NotebookError

ROOT = Path(__file__).resolve().parent.parent
#: Functions, since one version may not know the options of another.
SETS: dict[str, Callable[[], Options]] = {
    "default": Options,
    "uv": lambda: Options(launch=Launch(launcher="uv")),
    "notebook": lambda: Options(launch=Launch(launcher="notebook")),
    "split": lambda: Options(split_model=True),
    "resume": lambda: Options(batch=2, resume=True),
}
_AGAIN = re.compile(r"^.*\bconvert again: .*\n", re.MULTILINE)
#: Where to keep the results of commits.
_KEPT = Path(tempfile.gettempdir()) / f"nb2ddp-frozen-{os.getuid()}"

#: Files and their texts.
Files = dict[str, str]


def outcome(notebook: Path, options: Options) -> Files:
    """Convert a notebook and return its files. The file `findings` lists findings, or the reason for a refusal."""
    try:
        text = notebook.read_text(encoding="utf-8", errors="surrogateescape")
        done = convert_source(text, notebook.stem, "train_ddp.py", options, notebook.name)
    except NotebookError as error:
        return {"findings": _listed(error.diagnostics)}
    except Exception as error:
        return {"findings": f"crash: {error!r}\n"}
    files = {name: _plain(name, text) for name, text in done.files.items()}
    return {**files, "findings": "".join(f"needs {need}\n" for need in done.needs) + _listed(done.diagnostics)}


def _listed(found: Sequence[Diagnostic]) -> str:
    return "".join(f"{d.location}: {d.code} {d.severity.value}{' fixed' * d.fixed}: {d.message}\n" for d in found)


def _plain(name: str, text: str) -> str:
    """Return a file without the line that contains its digest; of a notebook, return the text of its cells."""
    is_notebook = name.endswith(".ipynb")
    lines = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"]) if is_notebook else text
    return _AGAIN.sub("", lines)


def convert_all(notebooks: Sequence[Path], results: Path) -> None:
    """Convert notebooks with the imported nb2ddp, and write a compressed file for each below a folder."""
    sets: dict[str, Options | None] = {}
    for name, make in SETS.items():
        try:
            sets[name] = make()
        except (TypeError, ValueError):
            sets[name] = None  # this version has no such option
    for notebook in notebooks:
        made = {name: None if options is None else outcome(notebook, options) for name, options in sets.items()}
        path = _result(results, notebook)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(lzma.compress(json.dumps(made).encode("utf-8", "surrogatepass"), preset=0))
        unfinished.replace(path)


def _result(results: Path, notebook: Path) -> Path:
    return results / notebook.parent.name / f"{notebook.name}.xz"


def _read(results: Path, notebook: Path) -> dict[str, Files | None]:
    made: dict[str, Files | None] = json.loads(lzma.decompress(_result(results, notebook).read_bytes()))
    return made


def results_of(code: Path, notebooks: Sequence[Path], results: Path) -> None:
    """Convert the notebooks that have no result yet, with the nb2ddp of a folder, in two processes."""
    missing = [notebook for notebook in notebooks if not _result(results, notebook).exists()]
    command = [sys.executable, "-P", __file__, "--results", str(results)]
    environment = {**os.environ, "PYTHONPATH": str(code)}
    jobs = [subprocess.Popen([*command, *map(str, missing[start::2])], env=environment) for start in (0, 1)]
    codes = [job.wait() for job in jobs]
    if any(codes):
        raise SystemExit(f"the conversions with {code} failed")


@contextmanager
def code_of(commit: str) -> Iterator[Path]:
    """Yield a temporary folder with the files of a commit."""
    command = ["git", "archive", commit, "nb2ddp", "templates"]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def corpus() -> list[Path]:
    """Return the folders of notebooks beside the checkout."""
    return sorted(Path(ROOT, git("rev-parse", "--git-common-dir")).resolve().parents[1].glob("shared/corpus/*"))


def notebooks_of(folders: Sequence[Path]) -> list[Path]:
    found = (path for folder in folders for path in folder.resolve().glob("*"))
    return sorted(path for path in found if path.suffix in (".ipynb", ".py"))


def named(notebook: Path) -> str:
    """Return the short name of a notebook, such as `nb/Gemma.ipynb`."""
    return f"{notebook.parent.name}/{notebook.name}"


def hunks(before: str, after: str) -> Iterator[str]:
    """Yield the hunks of a diff, without the lines that give their positions."""
    diff = difflib.unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm="")
    yield from filter(None, re.split(r"(?:^|\n)@@ .*(?:\n|$)", "\n".join(list(diff)[2:])))


def compare(notebooks: Sequence[Path], before: Path, after: Path) -> tuple[set[str], dict[str, dict[str, str]]]:
    """Compare the results of two versions.

    Returns:
        The names of the notebooks that differ, such as `nb/Gemma.ipynb`, and the distinct changes. The key of a change
        is its text with all numbers replaced by 0. Its value maps each notebook that has the change to its diff.
    """
    differing: set[str] = set()
    changes: dict[str, dict[str, str]] = defaultdict(dict)
    for notebook in notebooks:
        old, new, name = _read(before, notebook), _read(after, notebook), named(notebook)
        for chosen in SETS:
            was, now = old[chosen], new[chosen]
            if was is None or now is None or was == now:
                continue
            differing.add(name)
            for file in sorted({*was, *now}):
                for hunk in hunks(was.get(file, ""), now.get(file, "")):
                    key = re.sub(r"\d+", "0", "\n".join(line for line in hunk.split("\n") if line[:1] in "+-"))
                    changes[key].setdefault(name, f"{name}, {file}, options {chosen}\n{hunk}")
    return differing, changes


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", metavar="FOLDER")
    parser.add_argument("--against", metavar="COMMIT", default="HEAD", help="what to compare with (default HEAD)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take each N-th notebook")
    parser.add_argument("--show", type=int, default=40, metavar="N", help="distinct changes to show (default 40)")
    parser.add_argument("--results", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.results:
        convert_all([Path(name) for name in given.folders], given.results)
        return 0
    notebooks = notebooks_of([*corpus(), *map(Path, given.folders)])[:: given.every]
    with tempfile.TemporaryDirectory() as now:
        results_of(ROOT, notebooks, Path(now))
        commit = git("rev-parse", f"{given.against}^{{commit}}")
        with code_of(commit) as code:
            results_of(code, notebooks, _KEPT / commit)
        differing, changes = compare(notebooks, _KEPT / commit, Path(now))
    ranked = sorted(changes.values(), key=len, reverse=True)
    for places in ranked[: given.show]:
        print(f"=== {len(places)} notebooks, such as {next(iter(places.values()))}\n")
    print(f"{len(differing)} of {len(notebooks)} notebooks differ from {commit[:8]}, in {len(ranked)} distinct changes")
    print(*sorted(differing), sep="\n")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
