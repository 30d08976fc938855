"""Properties of every converted notebook, read from the output with plain `ast`, not with the converter's own code.

The notebooks are the project's fixtures and, if the environment variable NB2DDP_CORPUS names a folder, all those in it.
"""

from __future__ import annotations

import ast
import builtins
import io
import json
import os
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.facts.loading import ModelKind, trains_lora
from nb2ddp.facts.program import Program
from nb2ddp.notebook.reader import read_notebook
from nb2ddp.options import Options
from nb2ddp.results import Diagnostic, NotebookError

FIXTURES = Path(__file__).parent.parent / "fixtures"
NOTEBOOKS = sorted((FIXTURES / "notebooks").glob("*.ipynb"))
if "NB2DDP_CORPUS" in os.environ:
    NOTEBOOKS += sorted(Path(os.environ["NB2DDP_CORPUS"]).glob("*.ipynb"))

REFUSALS = {"DDP002", "DDP003", "DDP004"}
LOADERS = re.compile(r"Fast\w*(Model|Transformer)|Auto(PeftModel|Model)\w*|\w+For(CausalLM|ConditionalGeneration)")
CONFIGS = re.compile(r"\w*(TrainingArguments|SFTConfig|GRPOConfig|DPOConfig|ORPOConfig|KTOConfig)")
COLLECTIVES = {"train", "evaluate", "predict"}
MAGIC = re.compile(r"^\s*(!|%|\?)")


@dataclass(frozen=True)
class Converted:
    """A notebook, its script, and the script's section of each cell."""

    cells: dict[int, str]
    script: str
    sections: dict[int, str]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.script)


@cache
def converted(path: Path) -> Converted | NotebookError:
    text = path.read_text(encoding="utf-8")
    try:
        conversion = convert_source(text, path.stem, "train.py")
    except NotebookError as error:
        return error
    script = conversion.files["train.py"]
    cells = {
        number: "".join(cell["source"]).replace("\r\n", "\n")
        for number, cell in enumerate(json.loads(text)["cells"], start=1)
        if cell["cell_type"] == "code"
    }
    parts = re.split(r"^# %% (.*)\n", script, flags=re.MULTILINE)
    sections: dict[int, str] = {}
    last = 0
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        if match := re.fullmatch(r"Cell (\d+)", title):
            last = int(match[1])
        if match or title.startswith("Training is over"):
            sections[last] = sections.get(last, "") + body
    return Converted(cells, script, sections, conversion.diagnostics)


def each(kind: type) -> list[object]:
    return [pytest.param(path, id=path.stem) for path in NOTEBOOKS if isinstance(converted(path), kind)]


def get(path: Path) -> Converted:
    result = converted(path)
    assert isinstance(result, Converted)
    return result


def without_magics(source: str) -> str:
    """Return a cell as Python: `pass` replaces each line that only IPython understands, with its continuation."""
    lines, inside = [], False
    if re.search(r"^%%(?!capture)\w", source, flags=re.MULTILINE):
        return ""
    for line in source.split("\n"):
        magic = inside or bool(MAGIC.match(line))
        stand_in = "" if inside else line[: len(line) - len(line.lstrip())] + "pass"
        lines.append(stand_in if magic else line)
        inside = magic and line.rstrip().endswith("\\")
    return "\n".join(lines)


def parses(path: Path) -> bool:
    """Return False if this Python cannot read the notebook's own code (nested quotes in f-strings before 3.12)."""
    try:
        for source in get(path).cells.values():
            ast.parse(without_magics(source))
    except SyntaxError:
        return False
    return True


every_script = pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.stem) for p in NOTEBOOKS if isinstance(converted(p), Converted) and parses(p)]
)


@pytest.mark.parametrize("path", each(NotebookError))
def test_refusals_have_a_code_and_a_place(path: Path) -> None:
    error = converted(path)
    assert isinstance(error, NotebookError)
    assert error.code in REFUSALS, error.message
    assert error.location is not None


def block_lines(script: str) -> int:
    """Return the number of non-blank lines in a script's setup block, including comments and docstrings."""
    block = script.partition("# %% Distributed setup\n")[2].partition("\n# %% ")[0]
    assert block
    return sum(bool(line.strip()) for line in block.splitlines())


def longest_block(path: Path) -> int:
    """Return the allowed lines: 80 for LoRA on a dense text model, 120 for any other training."""
    program = Program(read_notebook(path.read_text(encoding="utf-8"), path.stem, path.name), Options())
    is_text = program.model_kind is ModelKind.DENSE_TEXT and trains_lora(program.tree, program.loads)
    return 80 if is_text else 120


@pytest.mark.parametrize("path", each(Converted))
def test_setup_block_is_short(path: Path) -> None:
    lines = block_lines(get(path).script)
    assert lines <= longest_block(path)
    resumed = convert_source(path.read_text(encoding="utf-8"), path.stem, "train.py", Options(resume=True))
    assert lines < block_lines(resumed.files["train.py"]) <= lines + 60


@every_script
def test_holds_no_notebook_residue(path: Path) -> None:
    """A `try` may contain services of hosted notebooks."""
    residue = r"__ipython__|^\s*(from|import) IPython\b|^(from|import) (google\.colab|kaggle_secrets)\b"
    assert not re.search(residue, get(path).script, re.M)


@every_script
def test_uses_no_name_that_the_notebook_did_not_define(path: Path) -> None:
    result = get(path)
    tree = result.tree
    free = loaded(tree) - bound(tree) - set(dir(builtins)) - {"__file__", "__name__"}
    own: set[str] = set()
    for source in result.cells.values():
        code = ast.parse(without_magics(source))
        own |= loaded(code)
        defined = bound(code)
        assert not (defined & free), "a name the notebook binds has lost its binding"
    assert free <= own, f"names that the notebook does not have: {free - own}"


@every_script
def test_keeps_every_comment(path: Path) -> None:
    result = get(path)
    moved = comments(result.script.partition("# %% Cell")[0])  # comments that moved with the settings that imports read
    for number in result.cells.keys() & result.sections:  # a cell that loses all its code loses its comments
        source, kept = result.cells[number], comments(result.sections[number]) | moved
        removed = lines_of(result, number, "DDP306")
        for line, comment in own_comments(source):
            if line not in removed:
                assert comment in kept, f"cell {number}:{line}: {comment}"


@every_script
def test_keeps_every_untouched_line_byte_for_byte(path: Path) -> None:
    result = get(path)
    for number, source in result.cells.items():
        section = result.sections.get(number, "")
        if not without_magics(source):  # a cell magic with a body of its own: one form
            continue
        found = [d for d in result.diagnostics if d.location and d.location.cell == number]
        touched = {line for d in found if d.location for line in statement_lines(source, d.location.line)}
        touched |= lines_of(result, number, "DDP306")
        left = iter(section.split("\n"))
        for line, text in enumerate(source.split("\n"), start=1):
            if line not in touched and text.strip():
                assert any(text == candidate for candidate in left), f"cell {number}:{line}: {text!r}"


@every_script
def test_every_live_model_load_is_placed(path: Path) -> None:
    text = get(path).script
    last = text.partition("# %% Training is over")[0].count("\n")  # from there on a load stays as in the notebook
    for call in calls(ast.parse(text)):
        name = dotted(call.func).split(".")
        if len(name) > 1 and name[-1] == "from_pretrained" and LOADERS.fullmatch(name[-2]) and call.lineno <= last:
            assert "local_rank" in ast.unparse(keyword(call, "device_map")), f"line {call.lineno}"


@every_script
def test_every_batch_is_split(path: Path) -> None:
    tree = get(path).tree
    configs = [call for call in calls(tree) if CONFIGS.fullmatch(dotted(call.func).split(".")[-1])]
    assert configs
    for call in configs:
        names = {
            ast.unparse(keyword(call, "per_device_train_batch_size")),
            ast.unparse(keyword(call, "gradient_accumulation_steps")),
        }
        shared = "split_batches" in ast.unparse(keyword(call, "accelerator_config"))  # accelerate splits the batch
        assert ("shared_batch" if shared else "per_device_batch") in names, f"line {call.lineno}"
        assert shared or "accumulation" in names, f"line {call.lineno}"


@every_script
def test_distribution_ends_after_the_last_training(path: Path) -> None:
    ended = [
        node.lineno
        for node in live(get(path).tree)
        if isinstance(node, ast.Attribute) and node.attr == "destroy_process_group"
    ]
    trained = [
        call.lineno
        for call in calls(get(path).tree)
        if dotted(call.func).split(".")[-1] in COLLECTIVES and "trainer" in dotted(call.func)
    ]
    assert trained
    assert min(ended) > max(trained)


@every_script
def test_nothing_waits_inside_a_branch_of_one_rank(path: Path) -> None:
    """A process that waits for others that never arrive waits forever."""
    for node in ast.walk(get(path).tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("local_rank == 0", "is_main_process"):
            inside = [dotted(call.func) for child in node.body for call in calls(child)]
            assert not [name for name in inside if name.endswith(("wait_for_everyone", "process_first"))]


# -- reading Python ------------------------------------------------------------------------------------------


def live(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and its descendants, without the bodies of `if False:`."""
    yield node
    for child in ast.iter_child_nodes(node):
        if (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.Constant)
            and not node.test.value
            and child in node.body
        ):
            continue
        yield from live(child)


def calls(node: ast.AST) -> list[ast.Call]:
    return [child for child in live(node) if isinstance(child, ast.Call)]


def dotted(node: ast.AST) -> str:
    return re.sub(r"\(.*?\)|\[.*?\]", "", ast.unparse(node), flags=re.DOTALL)


def keyword(call: ast.Call, name: str) -> ast.expr:
    return next((k.value for k in call.keywords if k.arg == name), ast.Constant(None))


def loaded(tree: ast.AST) -> set[str]:
    return {n.id for n in live(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def bound(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return names


def comments(source: str) -> set[str]:
    return {comment for _, comment in own_comments(source)}


def own_comments(source: str) -> list[tuple[int, str]]:
    """Return the line and text of each Python comment."""
    tokens = tokenize.generate_tokens(io.StringIO(without_magics(source) + "\n").readline)
    return [(t.start[0], t.string.rstrip()) for t in tokens if t.type == tokenize.COMMENT]


def statement_lines(source: str, line: int) -> range:
    """Return the lines of a cell's top-level statement that contains a line, with the comments above it."""
    for node in ast.parse(without_magics(source)).body:
        if node.lineno <= line <= (node.end_lineno or node.lineno):
            line, end = node.lineno, node.end_lineno or node.lineno
            break
    else:
        end = line
    lines = source.split("\n")
    while end < len(lines) and lines[end - 1].endswith("\\"):  # a shell command that continues
        end += 1
    while line > 1 and lines[line - 2].startswith("#"):
        line -= 1
    return range(line, end + 1)


def lines_of(result: Converted, number: int, code: str) -> set[int]:
    """Return the lines of a cell's statements in which a rule found something, with the comments about them.

    These comments precede the statements, or are the title of the cell's form. If nothing is left of a cell, return all
    its lines.
    """
    source = result.cells[number]
    lines = source.split("\n")
    found = {
        line
        for d in result.diagnostics
        if d.location and (d.location.cell, d.code) == (number, code)
        for line in statement_lines(source, d.location.line)
    }
    if found and not result.sections.get(number, "").strip():
        return set(range(1, len(lines) + 1))
    for line in sorted(found):
        above = line - 1
        while above and (not lines[above - 1].strip() or lines[above - 1].lstrip().startswith("#")):
            found.add(above)
            above -= 1
    titles = {line for line, text in enumerate(lines, start=1) if text.lstrip("# ").startswith("@title")}
    return found | titles if found else found
