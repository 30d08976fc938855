"""Read and validate a notebook file, and the header of one that is a Python file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, cast

import nbformat

from nb2ddp.results import Location, NotebookError
from nb2ddp.toml import tomllib

CellKind = Literal["code", "markdown", "raw"]
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
#: A member that may be a cell's source; inside a string its quotes would be escaped.
_SOURCE = re.compile(rf'"(?:source|input)"\s*:\s*({_STRING.pattern}|\[(?:\s*{_STRING.pattern}\s*,?)*\s*\])')
_LINE_END = re.compile(r"\r\n?|\n")
#: The blanks before the first code of a cell.
_INDENT = re.compile(r"\s*?^([ \t]+)\S", re.MULTILINE)
#: The expression of https://packaging.python.org/en/latest/specifications/inline-script-metadata/.
BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
#: The beginning of the text of a PIL image, which the file may store as lines; the text of a list of images differs.
_IMAGE = re.compile(r"""(\[['"])?<PIL\.""")
#: Text of an output that shows a GPU's memory. Each alternative begins with a plain letter, which is fast to find.
_MEMORY = re.compile(r"ax memory(?<=[Mm]ax memory)|MiB /(?<=\dMiB /)|GPU.*\(\d+(\.\d+)? ?Gi?B")


@dataclass(frozen=True)
class Cell:
    """One cell. Cells count from 1, Markdown cells included.

    Attributes:
        lines: the line number in the file, from 1, of each line of the source; empty if unknown.
        indent: the number of columns by which the file indents the lines; None if the file is JSON.
        shows: whether the value of its last expression is among its saved outputs; None if it was not run.
        shows_image: whether that value is a PIL image.
        failed: the error among its saved outputs, on one line; empty if there is none.
    """

    number: int
    kind: CellKind
    source: str
    lines: Sequence[int] = field(default=(), compare=False)
    indent: int | None = field(default=None, compare=False)
    shows: bool | None = field(default=None, compare=False)
    shows_image: bool = field(default=False, compare=False)
    failed: str = field(default="", compare=False)


@dataclass(frozen=True)
class Metadata:
    """The packages that a Python file requires.

    Attributes:
        dependencies: requirements, as `pip` accepts them.
        requires_python: the accepted versions of Python, such as `>=3.10`; empty for any.
    """

    dependencies: tuple[str, ...] = ()
    requires_python: str = ""


@dataclass(frozen=True)
class Notebook:
    """A notebook's name (without folder and ending), its cells in the order in which they run, and its header.

    `gpu` is the GPU on which Colab or Kaggle ran it, by their name for it; empty if neither names one. `shown` has the
    saved outputs that show a GPU's memory, each with its cell's number.
    """

    name: str
    cells: tuple[Cell, ...]
    metadata: Metadata = field(default_factory=Metadata)
    gpu: str = ""
    shown: tuple[tuple[int, str], ...] = field(default=(), compare=False)

    def cell(self, number: int) -> Cell:
        """Return the cell with this number."""
        return self._by_number[number]

    def line_text(self, location: Location) -> str:
        """Return the line of a cell at a place; empty after its last line."""
        lines = self.cell(location.cell).source.split("\n")
        return lines[location.line - 1] if location.line <= len(lines) else ""

    @cached_property
    def _by_number(self) -> dict[int, Cell]:
        return {cell.number: cell for cell in self.cells}


def parse_notebook(text: str, name: str) -> Notebook:
    """Parse the text of an .ipynb file of any nbformat version.

    Line ends become `\\n`, and a code cell loses the indent of its first line; nothing else of a cell changes.

    Args:
        text: the file's content.
        name: the notebook's name in the script's first line.

    Raises:
        NotebookError: it is not JSON, not a notebook, or not a Python notebook.
    """
    try:
        raw = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise NotebookError(f"not a notebook: not valid JSON ({error})") from None
    if not isinstance(raw, dict) or "nbformat" not in raw:
        raise NotebookError("not a notebook: it has no 'nbformat' key")
    cells = _objects(raw.get("cells"))
    was_run = any(_objects(cell.get("outputs")) for cell in cells)
    try:
        saved = [_saved(cell, was_run) for cell in cells]
        shown = [(number, text) for number, cell in enumerate(cells, start=1) for text in _printed(cell)]
        bare = _bare_notebook(raw)
        is_current = bare["nbformat"] == 4
        node = nbformat.v4.to_notebook(bare) if is_current else nbformat.reads(json.dumps(bare), as_version=4)
        nbformat.validate(node, relax_add_props=True)
    except Exception as error:  # nbformat's upgrades of older versions may raise anything
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise NotebookError(f"not a valid notebook: {reason}") from None
    language = _language(node)
    if language not in ("", "python", "ipython"):
        raise NotebookError(f"the notebook's language is {language!r}; only Python can be converted")
    found = []
    for number, cell in enumerate(node.cells, start=1):
        source = _LINE_END.sub("\n", cell.source.removeprefix("\ufeff"))
        source = _dedented(source) if cell.cell_type == "code" else source
        found.append(Cell(number, cast(CellKind, cell.cell_type), source, **(saved[number - 1] if saved else {})))
    lines = file_lines(text, [cell.source for cell in found])
    placed = tuple(replace(cell, lines=own) for cell, own in zip(found, lines, strict=True))
    of_gpus = tuple((number, text) for number, text in shown if _MEMORY.search(text))
    return Notebook(name, placed, gpu=_gpu(node.metadata), shown=of_gpus)


def _gpu(metadata: Any) -> str:
    """Return the GPU in the metadata of Colab (`gpuType`) or Kaggle (`accelerator`); empty if there is none.

    Colab names it since 2023. Older notebooks only state that they use a GPU: a T4, unless the user paid for another.
    """
    named = _metadata_values(metadata, ("colab", "gpuType"), ("kaggle", "accelerator"))
    is_free = isinstance(metadata.get("colab"), dict) and metadata.get("accelerator") == "GPU"
    return next((name for name in named if name != "none"), "T4" if is_free else "")


def _saved(cell: dict[str, Any], was_run: bool) -> dict[str, Any]:
    """Return the fields of `Cell` that come from the saved outputs of a cell.

    Args:
        cell: the cell, as it is in the file.
        was_run: whether some cell of the notebook has outputs.
    """
    outputs = _objects(cell.get("outputs"))
    kinds = {output.get("output_type") for output in outputs}
    results = _objects([output.get("data") for output in outputs if output.get("output_type") == "execute_result"])
    errors = [output for output in outputs if output.get("ename")]
    is_known = was_run and (kinds or isinstance(cell.get("execution_count"), int)) and "error" not in kinds
    return {
        "shows": "execute_result" in kinds if is_known else None,
        "shows_image": any(_IMAGE.match(str(data.get("text/plain"))) for data in results),
        "failed": " ".join(f"{errors[0]['ename']}: {errors[0].get('evalue')}".split()) if errors else "",
    }


def _printed(cell: dict[str, Any]) -> list[str]:
    """Return what the outputs of a cell printed."""
    texts = [output.get("text") for output in _objects(cell.get("outputs"))]
    return ["".join(map(str, text)) if isinstance(text, list) else str(text) for text in texts]


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a JSON list; none for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _language(node: Any) -> str:
    """Return the notebook's language in lower case, without a version; empty if it names none."""
    languages = _metadata_values(node.metadata, ("language_info", "name"), ("kernelspec", "language"))
    return next(languages, "").lower().rstrip("0123456789.")


def _metadata_values(metadata: Any, *places: tuple[str, str]) -> Iterator[str]:
    """Yield the non-empty strings at some places of the metadata, each a section and a key."""
    for section, key in places:
        value = metadata.get(section)
        if isinstance(value, dict) and isinstance(value.get(key), str) and value[key]:
            yield value[key]


def _bare_notebook(raw: dict[str, Any]) -> dict[str, Any]:
    """Drop what a conversion never reads: outputs, attachments, widget state (sometimes hundreds of MB), cell ids.

    Without ids a notebook of nbformat 4.5 reads as 4.4; missing and repeated ids are then no error.
    """
    notebook = dict(raw)
    if notebook.get("nbformat") == 4:
        notebook["nbformat_minor"] = min(notebook.get("nbformat_minor") or 0, 4)
    if isinstance(notebook.get("metadata"), dict):
        notebook["metadata"] = {k: v for k, v in notebook["metadata"].items() if k != "widgets"}
    for owner in (notebook, *_objects(notebook.get("worksheets"))):
        cells = owner.get("cells")
        if isinstance(cells, list):
            owner["cells"] = [_bare_cell(cell) if isinstance(cell, dict) else cell for cell in cells]
    return notebook


def _bare_cell(cell: dict[str, Any]) -> dict[str, Any]:
    kept = [key for key in cell if key not in ("attachments", "id")]
    return {key: [] if key == "outputs" else cell[key] for key in kept}


def read_metadata(text: str) -> Metadata:
    """Read the `script` block of a Python file; empty if there is none.

    Raises:
        NotebookError: there are two, or the block does not follow the standard.
    """
    blocks = [match["content"] for match in BLOCK.finditer(text) if match["type"] == "script"]
    if not blocks:
        return Metadata()
    if len(blocks) > 1:
        raise NotebookError("there are two `# /// script` headers: keep one")
    content = "".join(line[2:] if line.startswith("# ") else line[1:] for line in blocks[0].splitlines(keepends=True))
    try:
        table: dict[str, Any] = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise NotebookError(f"the `# /// script` header is not TOML ({error}): correct it") from None
    dependencies, python = table.get("dependencies", []), table.get("requires-python", "")
    if not isinstance(dependencies, list) or not all(isinstance(requirement, str) for requirement in dependencies):
        raise NotebookError("`dependencies` of the `# /// script` header must be a list of strings")
    if not isinstance(python, str):
        raise NotebookError("`requires-python` of the `# /// script` header must be a string")
    return Metadata(tuple(dependencies), python)


# -- lines of the file ------------------------------------------------------------------------------------------


def _dedented(source: str) -> str:
    """Return a code cell's source without the indent of its first line, which IPython removes from all lines.

    Source: `leading_indent` of IPython 7 (Colab's). IPython 9 removes the indent that all lines share, which is the
    same for cells that run in both.
    """
    if not (indent := _INDENT.match(source)):
        return source
    return "\n".join(line.removeprefix(indent[1]) for line in source.split("\n"))


def file_lines(text: str, sources: Iterable[str]) -> list[list[int]]:
    """Return the line number in the file (from 1) of each line of each cell.

    Args:
        text: a valid .ipynb file, of any version of the format.
        sources: the cells' sources, with `\\n` as line ends; outputs and metadata may have members of the same name.

    Returns:
        One list for each cell, in order, with one number for each line of its source; empty if that is not found.
    """
    written = [_lines(text, *match.span(1)) for match in _SOURCE.finditer(text)]
    places, first, line, at = [], 0, 1, 0
    for source in sources:
        same = (n for n in range(first, len(written)) if source == written[n][0] or source == _dedented(written[n][0]))
        here = next(same, None)
        lines: list[int] = []
        for offset in written[here][1] if here is not None else ():
            line, at = line + text.count("\n", at, offset), max(at, offset)
            lines.append(line)
        places.append(lines)
        first = first if here is None else here + 1
    return places


def _lines(text: str, start: int, end: int) -> tuple[str, list[int]]:
    """Return a member's joined strings, and the offsets of the strings in which its lines begin."""
    value = json.loads(text[start:end])
    parts = [value] if isinstance(value, str) else value
    source = "".join(parts)
    starts = [0, *(match.end() for match in _LINE_END.finditer(source))]
    strings = zip((match.start() for match in _STRING.finditer(text, start, end)), parts, strict=True)
    offsets = [at for at, part in strings for _ in part] or [start]  # the string that contains each character
    return _LINE_END.sub("\n", source.removeprefix("\ufeff")), [offsets[min(at, len(offsets) - 1)] for at in starts]
