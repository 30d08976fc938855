"""Count, over folders of notebooks, the places at which scripts break a principle of docs/principles.md.

    python -m benchmarks.principles NOTEBOOKS...                 counts in what these notebooks convert to
    python -m benchmarks.principles --scripts OUT NOTEBOOKS...   counts in scripts that were converted before, which lie
                                                                 in OUT under the notebooks' names

Each line is a class: in how many places, and in how many scripts. Every count is made from the text of notebook and
script alone, so that scripts of any version can be counted.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from nb2ddp.convert import convert_source
from nb2ddp.facts.shell import is_install
from nb2ddp.notebook.reader import read_notebook
from nb2ddp.options import LaunchError
from nb2ddp.results import NotebookError

_END = re.compile(r"^# %% Training is over.*\n(?:(?!# %%).*\n)*?if not is_main_process:\n    sys\.exit\(\)\n", re.M)
_ALONE = re.compile(r"^\s*if (?:is_main_process|local_rank == 0):|run_once\(|device_map ?= ?local_rank", re.M)
_READ = re.compile(r'(?<![\w.])os\.environ\["(\w+)"\](?!\s*=[^=])')
_TOKEN = re.compile(r"(?<![\w-])(hf_|sk-|gh[pousr]_)(?=[\w-]*\d)[\w-]{16,}([\w-]{3})(?![\w-])")
_KILLS = re.compile(r"^\s*if local_rank == 0:\n(?:\s+.*\n){0,3}?\s+.*(?:pkill|killall|xargs kill)", re.M)
_TRIED = re.compile(r"^(?P<i> *)try:\n(?P=i)    if local_rank == 0:\n(?:(?P=i)        .*\n)+(?P=i)    \S", re.M)
_SERVES = re.compile(r"^(?:\w+\.run\(.*port|uvicorn\.run\(|\w+\.launch\((?!.*prevent_thread_lock))", re.M)
#: What rules of their own put into another form, or take out.
_FORMS = re.compile(
    r"(?:display|Audio|HTML|(?:plt|fig|pylab)\.show|wandb\.login|drive\.mount|files\.\w+|\w*login)\(|1 ?/ ?0"
)
#: Classes that the text of a script shows, by the principle or paragraph that they break.
_TEXTS = {
    "P5 a comment that more GPUs make untrue": re.compile(r"# .*(?:as in the notebook$|taken as for )", re.M),
    "P4 what every job needs, at the top of one": re.compile(r"^#   needs: .*a GPU for each process", re.M),
    "P6 a command that ends the job itself": re.compile(
        r"^ *(?:subprocess\.run|os\.system)\(.*(?:(?:pkill|killall) .*python|fuser .*/dev/nvidia|nvidia-smi.*kill)",
        re.M,
    ),
    "P6 a service asked by every process": re.compile(r"# TODO\[nb2ddp\] DDP405: .*asks a service"),
    "P6 what other processes run is ended by one": _KILLS,
    "P6 a line between a write and the wait for it, in a try": _TRIED,
    "clutter: an empty try": re.compile(r"^\s*try:\n\s+pass\n", re.M),
    "clutter: an import that always fails": re.compile(r'ImportError\("not a hosted notebook"\)'),
    "clutter: two TODOs above one line": re.compile(r"(?:^ *# TODO\[nb2ddp\].*\n){2,}", re.M),
    "clutter: a TODO between a decorator and its function": re.compile(r"^ *@.*\n *# TODO\[nb2ddp\]", re.M),
    "clutter: a dictionary unpacked into another": re.compile(r"\*\*\{\*\*\{"),
    "clutter: our line below a comment": re.compile(r"^ *# (?!TODO|%%).*\n *s(?:pare|kip)_checkpointing\w*\(", re.M),
}


def counts(cells: Sequence[str], script: str) -> Counter[str]:
    """The places of each class in a script.

    Args:
        cells: the sources of the notebook's code cells.
        script: what it was converted to.
    """
    head, _, body = script.partition("\n# %% Distributed setup\n")
    _, _, body = body.partition("\n# %% ")
    found = Counter({name: len(pattern.findall(body)) for name, pattern in _TEXTS.items()})
    found["P1 a line lost with an install"] = sum(1 for _ in _lost(cells, script))
    found["P2 a value shown by a cell, and not by the script"] = sum(1 for _ in _unshown(cells, body))
    end = _END.search(body)
    after = body[end.end() :] if end is not None else ""
    found["P3 several processes where there is one"] = len(_ALONE.findall(after))
    found["P6 a server at which a script stops, without a word"] = len(_SERVES.findall(body[: -len(after) or None]))
    named = head if "needs:" in head else ""
    read = set(_READ.findall(body)) - {"LOCAL_RANK", "RANK", "WORLD_SIZE"}
    set_here = set(re.findall(r'os\.environ\["(\w+)"\]\s*=[^=]', script))
    found["P4 a variable that is read and not named at the top"] = sum(name not in named for name in read - set_here)
    tokens = {match[1] + "..." + match[2] for match in _TOKEN.finditer(body)}
    found["P4 a token that is not named at the top"] = sum(token not in named for token in tokens)
    found["clutter: a comment whose code is gone"] = sum(1 for _ in _lone_comments(cells, body))
    return found


def _lost(cells: Sequence[str], script: str) -> Iterator[str]:
    """Lines of cells that install packages which install nothing themselves, and are not in the script."""
    kept = {line.strip() for line in script.splitlines()}
    for source in cells:
        lines = [line.strip() for line in source.splitlines()]
        if any(line.startswith("!") and is_install(line[1:]) for line in lines):
            yield from (line for line in lines if _is_plain(line) and line not in kept)


def _is_plain(line: str) -> bool:
    """True for a statement of one line that neither installs nor decides how, so that its loss shows."""
    return bool(re.match(r"(?:import |from \S+ import |assert |print\(|[A-Z_]{3,} ?= ?[\w.\"']+$)", line))


def _unshown(cells: Sequence[str], body: str) -> Iterator[str]:
    """The last expressions of cells which are in the script in no form."""
    flat = re.sub(r"\s+", "", body)
    for source in cells:
        try:
            last = ast.parse(source).body[-1:]
        except (SyntaxError, ValueError):
            continue
        if last and isinstance(last[0], ast.Expr) and not isinstance(last[0].value, ast.Constant):
            text = ast.get_source_segment(source, last[0].value) or ""
            if not _FORMS.match(text) and re.sub(r"\s+", "", text)[:40] not in flat:
                yield text


def _lone_comments(cells: Sequence[str], body: str) -> Iterator[str]:
    """Cells of the script that hold comments alone, and code in the notebook."""
    own = [{line.strip() for line in source.splitlines() if line.strip()} for source in cells]
    for cell in re.split(r"^# %% ", body, flags=re.M):
        head, _, text = cell.partition("\n")
        lines = {line.strip() for line in text.splitlines() if line.strip()}
        only_comments = head.startswith("Cell") and lines and all(line.startswith("#") for line in lines)
        if only_comments and not any(source == lines for source in own):
            yield cell


def _script(path: Path, text: str, scripts: Path | None) -> str:
    """The script of a notebook; empty for one that has none."""
    if scripts is not None:
        made = scripts / f"{path.stem}.py"
        return made.read_text(encoding="utf-8") if made.exists() else ""
    try:
        return convert_source(text, path.stem, "train_it.py", file_name=path.name).files["train_it.py"]
    except (NotebookError, LaunchError):
        return ""


def main(arguments: Sequence[str]) -> None:
    """Print the counts of all folders together."""
    scripts = Path(arguments[1]) if arguments[:1] == ["--scripts"] else None
    places, files, converted = Counter[str](), Counter[str](), 0
    for folder in arguments[2:] if scripts is not None else arguments:
        for path in sorted(each for each in Path(folder).iterdir() if each.suffix in (".ipynb", ".py")):
            text = path.read_text(encoding="utf-8-sig")
            if script := _script(path, text, scripts):
                notebook = read_notebook(text, path.stem, path.name)
                found = counts([cell.source for cell in notebook.cells if cell.kind == "code"], script)
                converted += 1
                places += found
                files += Counter(name for name, number in found.items() if number)
    print(f"{converted} scripts")
    for name in sorted(counts([], "")):
        print(f"{places[name]:5} in {files[name]:3}  {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
