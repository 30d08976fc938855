"""Break the most important modules, one place at a time, and count the breaks that a fast test notices.

    python -m benchmarks.mutation [MODULE...]

A break inverts a condition, leaves out a statement, or changes a number or a truth value.
A fixed seed chooses the places to break. Each break is made in a copy of the project. The tests named here run on it in
a process that is forked after the libraries are imported. results/mutation.json contains the results.
"""

from __future__ import annotations

import ast
import json
import os
import random
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import jupytext
import libcst
import nbconvert
import pytest

from benchmarks.tables import table

ROOT = Path(__file__).parent.parent
OUT = Path(__file__).parent / "results" / "mutation.json"
BREAKS = 20
SECONDS = 60  # of the processor, after which tests on a break count as hanging, which is noticed too
RULES = "tests/rules/test_rules.py"
#: The tests of each module, and which of them to run (`-k`). The tests of all rules run on breaks that these miss.
ALL_RULES = (f"{RULES} tests/test_golden.py", "test_example or test_script")
TESTS = {
    "syntax/tree.py": ("tests/syntax/test_tree.py tests/syntax/test_arguments.py tests/syntax/test_edits.py", ""),
    "syntax/edits.py": ("tests/syntax/test_edits.py tests/syntax/test_arguments.py", ""),
    "facts/execution.py": (f"tests/facts/test_execution.py {RULES}", "test_execution or DDP4"),
    "facts/placement.py": (RULES, "DDP4 and test_example"),
    "facts/training.py": ("tests/facts/test_training.py tests/facts/test_execution.py", ""),
    "rules/batch.py": (
        f"tests/rules/test_batch.py tests/script/test_start.py {RULES}",
        "test_batch or test_start or DDP2",
    ),
    "script/packages.py": ("tests/script/test_packages.py", ""),
    "project/merge.py": ("tests/project/test_merge.py tests/project/test_keep.py", ""),
    "runtime/batch.py": ("tests/runtime/test_batch.py", ""),
    "rehearsal/questions.py": ("tests/test_verdict.py", ""),
}
#: The parts of the project to copy.
PARTS = ("nb2ddp", "tests", "benchmarks", "fixtures", "docs", "templates", "pyproject.toml", "README.md")
LIBRARIES = (hypothesis, jupytext, libcst, nbconvert)  # imported once, before processes are forked


def breaks(source: str) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield the places of a module that can be broken, and the code to put there."""
    nodes = list(ast.walk(ast.parse(source)))
    decorators = [each for node in nodes for each in getattr(node, "decorator_list", ())]
    left_out = {node for each in decorators for node in ast.walk(each)}
    for node in (node for node in nodes if node not in left_out):
        text = ast.get_source_segment(source, node) or ""
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            yield node.test, f"(not ({ast.get_source_segment(source, node.test)}))"
        elif isinstance(node, ast.comprehension):
            yield from ((test, f"(not ({ast.get_source_segment(source, test)}))") for test in node.ifs)
        elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and not text.startswith(('"', 'r"'))):
            yield node, "pass"
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            yield node, f"({not node.value if isinstance(node.value, bool) else node.value + 1})"


def broken(source: str, node: ast.expr | ast.stmt, text: str) -> str:
    """Return a module with another text in the place of a node."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    start = starts[node.lineno - 1] + node.col_offset
    end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
    return (source.encode()[:start] + text.encode() + source.encode()[end:]).decode()


def passes(folder: Path, tests: tuple[str, str]) -> bool:
    """Return whether tests pass in a copy, run by a fork of this process."""
    files, chosen = tests
    process = os.fork()
    if process == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        os.environ["PYTHONPATH"] = str(folder)
        for name in [name for name in sys.modules if name.split(".")[0] in ("nb2ddp", "tests", "benchmarks")]:
            del sys.modules[name]
        os._exit(
            pytest.main(
                ["-x", "-q", "-p", "no:cacheprovider", "-m", "not e2e and not slow", "-k", chosen, *files.split()]
            )
        )
    return os.waitpid(process, 0)[1] == 0


def measured(folder: Path, name: str) -> dict[str, object]:
    """Break a module of the copy, one place at a time. Return the number of breaks, and those that were not noticed."""
    file = folder / "nb2ddp" / name
    source = file.read_text(encoding="utf-8")
    if not passes(folder, TESTS[name]):
        raise SystemExit(f"{name}: its tests fail without a break")
    places = list(breaks(source))
    unnoticed = []
    for number, (node, text) in enumerate(random.Random(name).sample(places, min(BREAKS, len(places)))):
        file.write_text(broken(source, node, text), encoding="utf-8")
        os.utime(file, (number, number))  # so that Python uses no bytecode of another break
        if passes(folder, TESTS[name]) and passes(folder, ALL_RULES):
            unnoticed.append(f"{node.lineno}: {ast.get_source_segment(source, node)} -> {text}")
    file.write_text(source, encoding="utf-8")
    return {"breaks": min(BREAKS, len(places)), "unnoticed": unnoticed}


def main(names: list[str]) -> None:
    results = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        for part in PARTS:
            path = ROOT / part
            copy = shutil.copytree if path.is_dir() else shutil.copy
            copy(path, Path(temporary, part))
        for name in names or TESTS:
            results[name] = measured(Path(temporary), name)
            OUT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    rows = [[name, str(each["breaks"]), str(each["breaks"] - len(each["unnoticed"]))] for name, each in results.items()]
    print(table(["module", "breaks", "noticed"], rows))


if __name__ == "__main__":
    main(sys.argv[1:])
