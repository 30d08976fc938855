"""Convert notebooks: source to text, file to file."""

from __future__ import annotations

import ast
import difflib
import gc
import re
import warnings
from dataclasses import asdict, replace
from pathlib import PurePath

import libcst as cst

from nb2ddp.codes import INTERNAL, INTERNAL_MESSAGE
from nb2ddp.estimate.trainings import trainings
from nb2ddp.facts.program import Program
from nb2ddp.notebook.ipynb import Cell, Notebook
from nb2ddp.notebook.magics import PLACEHOLDER
from nb2ddp.notebook.reader import placed, read_notebook
from nb2ddp.options import LaunchError, Options, OptionsError
from nb2ddp.results import Conversion, Location, NotebookError
from nb2ddp.rules import refusals
from nb2ddp.rules.engine import refuse, rewrite
from nb2ddp.rules.index import RULES
from nb2ddp.rules.suppress import Suppressions
from nb2ddp.script.hosted import launching_notebook
from nb2ddp.script.imported import all_needs
from nb2ddp.script.launch import CONFIG_NAME, LAUNCHING, launch_files
from nb2ddp.script.modules import hidden, other_name
from nb2ddp.script.needs import secrets
from nb2ddp.script.packages import requirements
from nb2ddp.script.render import script
from nb2ddp.script.setup import setup
from nb2ddp.script.stamp import sign_all
from nb2ddp.script.versions import floors

#: The code of the rule that refuses a notebook without a training.
NO_TRAINING = refusals.no_training.code
#: NUL and surrogates, which JSON can encode and UTF-8 cannot.
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")


def convert_source(
    text: str,
    name: str = "notebook",
    script_name: str = "train.py",
    options: Options | None = None,
    file_name: str = "",
    reference: str | None = None,
) -> Conversion:
    """Convert the text of a notebook, in any format that nb2ddp reads. Nothing is executed, read or written.

    Args:
        text: the file's content.
        name: the notebook's name in the script's first line.
        script_name: the file name of the script, which its launch line and the launch files name.
        options: the options; the defaults if None.
        file_name: the notebook's file name; its extension counts if the content does not show the format.
        reference: the notebook's path from the script's folder, for the line `convert again:`; None means its file
            name, in the script's folder.

    Returns:
        The text of the script and of each launch file by file name, and the findings. They have the line of the file,
        in addition to cell, line and column.

    Raises:
        NotebookError: it cannot be converted; the error says where and why.
        OptionsError: an option names an unknown rule.
        LaunchError: the launch files cannot be written for a script of this name.
    """
    notebook = read_notebook(text, name, file_name)
    was_enabled = gc.isenabled()
    gc.disable()  # no part of a tree is garbage before its conversion ends
    try:
        conversion = _convert(notebook, script_name, options or Options(), reference or file_name or f"{name}.ipynb")
    except NotebookError as error:
        error.diagnostics = tuple(placed(notebook, error.diagnostics))
        raise
    finally:
        if was_enabled:
            gc.enable()
    return replace(conversion, diagnostics=tuple(placed(notebook, conversion.diagnostics)))


def check_codes(options: Options) -> None:
    """Refuse options that name an unknown rule.

    Raises:
        OptionsError: a code is not the beginning of any rule's.
    """
    codes = [rule.code for rule in RULES]
    for wanted in sorted((options.select or frozenset()) | options.ignore):
        if not wanted or not any(code.startswith(wanted) for code in codes):
            near = difflib.get_close_matches(wanted, codes, n=1)
            raise OptionsError(f"There is no rule {wanted!r}" + (f"; did you mean {near[0]}?" if near else "."))


def _convert(notebook: Notebook, script_name: str, options: Options, reference: str) -> Conversion:
    check_codes(options)
    _check_text(notebook)
    _check_name(notebook, script_name)
    notebook = replace(notebook, name=_title(notebook.name))
    try:
        program = Program(notebook, options)
        suppressions = Suppressions(program)
        rules = [rule for rule in RULES if options.applies(rule.code)]
        result = rewrite(program, rules, suppressions)
        unused = suppressions.unused([rule.code for rule in rules], [rule.code for rule in RULES])
        diagnostics = tuple(sorted([*result.diagnostics, *unused], key=lambda finding: finding.order))
        refuse(diagnostics)
        block = setup(program, result.inserted)
        packages = requirements(program, floors(program))
        needs = all_needs(program, packages)
        launch = launch_files(options.launch, script_name, secrets(program), resume=options.resume)
        text = script(program, packages, needs, result.cells, block, script_name)
        _check_script(text, program, result.cells, all_rules=not suppressions.used and len(rules) == len(RULES))
    except NotebookError as error:
        error.diagnostics = tuple(
            replace(finding, line_text=notebook.line_text(finding.location)) if finding.location else finding
            for finding in error.diagnostics
        )
        raise
    if options.split_model:
        del launch[CONFIG_NAME]  # Python starts its one process
    listed = {} if options.launch.launcher in ("notebook", "uv") else packages.files(script_name, notebook.name)
    files = sign_all({script_name: text, **launch, **listed}, reference, script_name, options)
    if options.launch.launcher == "notebook":  # it contains the signed script
        launching = launching_notebook(program, files[script_name], script_name, packages)
        name = f"{PurePath(script_name).stem}{LAUNCHING}"
        files |= sign_all({name: launching}, reference, script_name, options)
    about = tuple(needs), tuple(map(asdict, trainings(program)))
    vars(program).clear()  # the facts refer to each other: free them now, without the garbage collector
    return Conversion(files, diagnostics, *about)


def _title(name: str) -> str:
    """Return a notebook's name for a comment: one line, without an encoding declaration (PEP 263)."""
    printable = "".join(character if character.isprintable() else " " for character in name)
    return re.sub(r"coding[:=]", "coding ", printable)


def _check_text(notebook: Notebook) -> None:
    """Refuse a notebook without code, characters that no Python file can contain, and the name that nb2ddp reserves."""
    if not any(cell.kind == "code" and cell.source.strip() for cell in notebook.cells):
        raise NotebookError("the notebook has no code, so there is nothing to train and no script", code=NO_TRAINING)
    faults = []
    for cell in notebook.cells:
        if character := _UNWRITABLE.search(cell.source):
            message = f"the character {character[0]!r} cannot be in a script: remove it"
            faults.append(NotebookError(message, _at(cell, character.start())).diagnostic)
        if cell.kind == "code" and (start := cell.source.find(PLACEHOLDER)) >= 0:
            message = f"the name {PLACEHOLDER} is nb2ddp's own: choose another"
            faults.append(NotebookError(message, _at(cell, start)).diagnostic)
    refuse(faults)


def _check_name(notebook: Notebook, script_name: str) -> None:
    """Refuse the name of an imported module: Python would import the script instead."""
    stem = PurePath(script_name).stem
    if what := hidden(stem, [cell.source for cell in notebook.cells if cell.kind == "code"]):
        raise LaunchError(
            f"The script cannot be called {script_name!r}: Python would import it in place of {what}, here and in "
            f"every script beside it. Call it {other_name(stem)}."
        )


def _at(cell: Cell, offset: int) -> Location:
    before = cell.source[:offset]
    return Location(cell.number, before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def _check_script(text: str, program: Program, cells: dict[int, str], *, all_rules: bool) -> None:
    """Refuse a script that is not Python, or that still contains a placeholder.

    The error names the cells that do not become Python: IPython syntax within other code, or left by the rules.
    """
    if fault := _fault(text):
        why = "" if all_rules else "without the rules that were left out, "
        faults = []
        for number, cell in cells.items():
            if found := _fault(cell):
                problem = (
                    f"{why}the cell cannot be converted to Python ({found} of the result): write it in plain Python"
                )
                faults.append(NotebookError(problem, Location(number, 1, 1)).diagnostic)
        refuse(faults)
        for part in program.code_cells:
            if found := _fault(program.tree.source[: program.cell_span(part.number)[1]]):  # `global x` below an `x`
                message = f"the cell is Python, but not below those above it ({found}, counted from the first cell)"
                raise NotebookError(message, Location(part.number, 1, 1))
        raise _internal(f"the script would not be Python ({fault})")
    if text.count(PLACEHOLDER) > sum(cell.source.count(PLACEHOLDER) for cell in program.notebook.cells):
        raise _internal("IPython syntax is left in the script")


def _internal(what: str) -> NotebookError:
    return NotebookError(INTERNAL_MESSAGE.format(what), code=INTERNAL.code)


def _fault(text: str) -> str:
    """Return why a script is not Python, and in which line; empty if it is Python, even of a newer version.

    Python's compiler, which is ten times as fast, comes first; it also refuses code that it can parse, such as
    `return` outside of a function.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about escapes in the notebook's strings
        try:
            compile(text, "script", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, MemoryError) as error:
            try:
                cst.parse_module(text)
            except cst.ParserSyntaxError as own:
                return f"{own.message.splitlines()[-1]} in line {own.raw_line}"
            if isinstance(error, SyntaxError) and _is_read(text):
                return f"{error.msg} in line {error.lineno}"
    return ""


def _is_read(text: str) -> bool:
    """Return whether this version of Python can parse a text, which then needs no newer version."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True
