"""Any notebook becomes a script that is Python, or an error with its place. Nothing is written outside the folder.

`NB2DDP_FUZZ_CASES=20000 pytest tests/test_fuzz.py` distributes that number of cases over the tests here, others each
time. The default of 200 cases, and the 5,000 of `python -m tests --all`, are the same each time.
"""

from __future__ import annotations

import ast
import json
import os
import re
import tempfile
from pathlib import Path

import libcst as cst
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from nb2ddp.codes import INTERNAL
from nb2ddp.notebook.magics import mask
from nb2ddp.options import Launch, Options
from nb2ddp.project.files import Job, Mode
from nb2ddp.project.inputs import Input, InputError, script_for
from nb2ddp.project.pool import convert_job
from nb2ddp.results import Result, Status
from nb2ddp.rules.index import RULES
from tests.examples import examples
from tests.notebooks import CELLS, code, document, markdown, write

CASES = int(os.environ.get("NB2DDP_FUZZ_CASES", "200"))
#: The share of each test in all cases.
SHARES = {"cells": 0.3, "programs": 0.4, "structure": 0.2, "bytes": 0.1}


def cases(test: str) -> settings:
    """Return settings for a test's share of the cases, without a deadline because machines differ."""
    return settings(
        max_examples=max(int(CASES * SHARES[test]), 1),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        derandomize=CASES < 20000,  # a short run is the same each time
    )


#: Parts of notebooks, and text that might break the reader.
FRAGMENTS = st.sampled_from(
    [*Path(__file__).with_name("fuzz.txt").read_text(encoding="utf-8").rstrip("\n").split("\n\n"), *CELLS]
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
LINES = st.one_of(FRAGMENTS, FRAGMENTS, TEXT)
SOURCES = st.lists(LINES, max_size=6).map("\n".join)
EXAMPLES = st.sampled_from([example.before for rule in RULES for example in examples(rule)])
WRAPPERS = st.sampled_from(
    ["{}", "{}", "if True:\n{}", "if False:\n{}", "def f():\n{}\nf()", "try:\n{}\nexcept E as e:\n  pass",
     "class A:\n{}", "for i in x:\n{}\nelse:\n  pass", "with a:\n{}", "while x:\n{}", "if a:\n  pass\nelse:\n{}"]
)  # fmt: skip


def wrap(wrapper: str, source: str) -> str:
    """Put code into a block."""
    if wrapper == "{}":
        return source
    body = "\n".join(f"    {line}" if line.strip() else line for line in source.split("\n"))
    return wrapper.replace("{}", body if body.strip() else "    pass")


def check(text: str | bytes, name: str = "notebook", options: Options | None = None) -> Result:
    """Convert as the command does, and check that the result keeps the promises of this module's docstring."""
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    with tempfile.TemporaryDirectory() as folder:
        notebook = Path(folder, f"{name}.ipynb")
        notebook.write_bytes(content)
        script = Path(folder, "out", "train.py")
        result = convert_job(Job(notebook, script, options or Options()), Mode.WRITE)
        there = {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()}
        assert notebook.read_bytes() == content
        if result.status is Status.FAILED:
            assert result.failure is not None
            assert result.failure.code != INTERNAL.code, result.failure.message
            assert there == {notebook.name}
        else:
            # Requirements only exist if the notebook needs a package.
            assert there - {"out/train.requirements.txt"} == {
                notebook.name,
                "out/train.py",
                "out/accelerate_config.yaml",
            }
            assert len(result.written) == len(there) - 1, "the result names each file"
            assert_python(script.read_text(encoding="utf-8"), content)
    return result


def assert_python(script: str, notebook: bytes) -> None:
    """Assert that a script is Python for LibCST, and for this Python if the notebook's cells are."""
    cst.parse_module(script)
    assert "__ipython__" not in script or b"__ipython__" in notebook
    try:
        ast.parse(script)
    except SyntaxError as error:
        cells = [cell for cell in json.loads(notebook.decode("utf-8-sig"))["cells"] if cell["cell_type"] == "code"]
        for cell in cells:
            try:
                ast.parse(mask("".join(cell["source"])).source)
            except SyntaxError:
                return  # syntax of a newer Python, or code that only the compiler refuses
        raise AssertionError(f"not Python: {error}") from error


@cases("cells")
@given(st.lists(SOURCES, max_size=4), st.booleans())
def test_cells(sources: list[str], trains: bool) -> None:
    cells = [*CELLS[1:3], *sources] if trains else sources
    check(json.dumps(document(*(cells or ["x"]))))


@cases("programs")
@given(
    st.lists(st.tuples(WRAPPERS, st.one_of(EXAMPLES, EXAMPLES, SOURCES)), min_size=1, max_size=5),
    st.sampled_from([Options(), Options(batch=1), Options(ignore=frozenset({"DDP1", "DDP4"}))]),
)
def test_programs(parts: list[tuple[str, str]], options: Options) -> None:
    """Convert programs of the rules' own examples, in blocks. The second conversion finds nothing left to rewrite."""
    check(json.dumps(document(*CELLS[1:3], *(wrap(*part) for part in parts))), options=options)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(allow_nan=True), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def broken(draw: st.DrawFn) -> str:
    """Return a notebook with some names and values replaced."""
    text = json.dumps(document(*CELLS, markdown(draw(TEXT)), code(draw(st.lists(SOURCES, max_size=3)))))
    for _ in range(draw(st.integers(0, 3))):
        places = [found.span() for found in re.finditer(r'"(?:[^"\\]|\\.)*"|\d+|null|\[\]|\{\}', text)]
        start, end = draw(st.sampled_from(places))
        text = text[:start] + json.dumps(draw(JSON)) + text[end:]
    return text


@cases("structure")
@given(broken() | JSON.map(json.dumps))
def test_structure(notebook: str) -> None:
    check(notebook)


@cases("bytes")
@given(
    st.data(),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1", "cp1252", "shift_jis"]),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_bytes(data: st.DataObject, encoding: str, line_end: str) -> None:
    text = json.dumps(document(*CELLS, data.draw(SOURCES)), indent=1, ensure_ascii=False).replace("\n", line_end)
    content = bytearray(text.encode(encoding, "replace"))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    assume(b"NaN" not in content)
    check(bytes(content))


@pytest.mark.parametrize("launcher", ["accelerate", "torchrun", "slurm"])
@pytest.mark.parametrize(
    "name", ["..", ".", "-x", "coding: rot13", "a\nb", "$(id)", "'; id #", "\x1b[2J", "a\\b", "x\u202ey", "~", "é" * 90]
)
def test_names(name: str, launcher: str, tmp_path: Path) -> None:
    """No name leads out of the output folder, or adds a line to the script's first ones."""
    notebook = write(tmp_path / "in" / f"{name}.ipynb")
    try:
        script = script_for(Input(notebook, tmp_path / "in"), tmp_path / "out")
    except InputError:
        return
    options = Options(launch=Launch(launcher=launcher))  # type: ignore[arg-type]
    result = convert_job(Job(notebook, script, options), Mode.WRITE)
    made = [path for path in tmp_path.rglob("*") if path.is_file() and path != notebook]
    assert all(path.parent == tmp_path / "out" for path in made)
    assert bool(made) == (result.status is not Status.FAILED)
    if made:
        compile(script.read_bytes(), "train.py", "exec")
        first = script.read_text(encoding="utf-8").split("# %% Distributed setup")[0]
        assert len(first.splitlines()) == 6 + (launcher != "slurm")  # its job uses all GPUs, whatever their number


@pytest.mark.parametrize("size", [1900, 30_000])
@pytest.mark.parametrize(
    "shape",
    ["({}1{})", "[x for x in {}", "{}-1", "a.{}b", "1+{}1", "f{}(a)", "lambda: {}1", "not {}x", "x={}1", "await {}x",
     "x if y else {}z", "f'{{{}}}'", "'a' {}", "@a\n{}def f(): pass", "if x: pass\n{}elif y: pass"],
)  # fmt: skip
def test_deep_and_long_code(shape: str, size: int) -> None:
    """LibCST's parser would end the process or take minutes, so such code is refused with its place."""
    repeated = {"({}1{})": "(", "f'{{{}}}'": "(1)+", "if x: pass\n{}elif y: pass": "elif z: pass\n"}
    unit = repeated.get(shape, shape.split("{}")[0] or "-")
    if shape == "({}1{})":
        source = "(" * size + "1" + ")" * size
    else:
        source = shape.replace("{{", "{").replace("}}", "}").replace("{}", unit * size, 1)
    check(json.dumps(document(*CELLS, source)))
