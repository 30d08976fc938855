"""DDP306: Package installs are removed; the settings, imports and clones of an install cell stay."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.environment import first_import
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule, without_names
from nb2ddp.syntax.edits import LICENCE, OF_NO_CODE, Cut, Edit, Remove, Replace
from nb2ddp.syntax.tree import head, small_statements

#: What a package manager of the system is told to install.
_SYSTEM = re.compile(
    r"\b(?:apt|apt-get|aptitude|yum|dnf|brew|apk)(?:\s+-\S+)*\s+(?:install|add)((?:\s+-?\w[\w.+=-]*)+)"
)
#: What a comment says that speaks of the installation, and of nothing else.
_OF_INSTALL = re.compile(r"(?i)install|\bpip\b|dependenc|requirement|package|--no-deps")
#: What asks for a restart.
_OF_RESTART = re.compile(r"(?i)\brestart\w*\b[^.\n]*\b(runtime|kernel|session)\b")
_OF_VERSIONS = re.compile(r"\bpip install\b|[<>=]=\s*\d")
#: An install that is switched off.
_SWITCHED_OFF = re.compile(r"^#[# ]*[!%]?(?:pip|uv pip|conda) install\b", re.M)
#: What is installed from a file, which may come with the job.
_INSTALL_COMMAND = re.compile(r"\bpip3?\b[^\n;&|]*?\binstall\b(?:\\\n|[^\n;&|])*")
_LISTED = re.compile(r"[\s'\"](?:-r|--requirement)['\"]?[ =,]*['\"]?([^\s'\",$]+)")
_FOLDER = re.compile(r"[\s'\"](?:-e|--editable)['\"]?[ =,]*['\"]?([^\s'\",$:]+)(?![^\s'\",$])")
_WRITTEN = re.compile(r"""open\((["'])([^"']+)\1,\s*["']w""")
_VERSION = re.compile(r"__version__|\bversion\(")
_COMMENTS = re.compile(r"(?:^#.*\n)+", re.M)
_NEEDLESS = "only the install needs it; the script leaves it out"


@rule("DDP306")
def package_install(program: Program) -> Iterator[Finding]:
    tree, removed = program.tree, program.installs.statements
    cuts = _cuts(program)
    moved = {setting.node for setting in program.early_settings if setting.moves}  # DDP105 says so
    for statement in tree.in_order(removed):
        if removed.isdisjoint(tree.ancestors(statement)) and not moved.issuperset(small_statements(statement) or "-"):
            edits: tuple[Edit, ...] = (Remove(statement, keep_comment=False),)  # type: ignore[arg-type]
            if isinstance(tree.parents[statement], cst.IndentedBlock):
                edits = (*edits, Cut(tree.comments_above(statement), tree.line_start(tree.start(statement))))
            edits = (*edits, *cuts.pop(program.cell_at(tree.start(statement)).number, ()))
            message, severity = _reason(program, statement)
            yield Finding(statement, message, edits, severity=severity)
    for line, kept in program.installs.imports.items():
        yield Finding(line, _NEEDLESS, (without_names(program, line, kept),))
    yield from _hollow(program)
    for edits in cuts.values():
        nodes = (*tree.of(cst.Comment), *tree.module.body)
        below = (node for node in nodes if tree.start(node) >= min(cut.start for cut in edits))
        there = min(below, key=tree.start, default=tree.module.body[-1])
        yield Finding(there, "a comment on the installation; the script leaves it out", edits)
    yield from _version_checks(program)


def _cuts(program: Program) -> dict[int, tuple[Cut, ...]]:
    """The comments of each cell whose code is gone."""
    cells = (cell.number for cell in program.code_cells)
    found = {number: tuple(Cut(*span) for span in _comments(program, number)) for number in cells}
    return {number: edits for number, edits in found.items() if edits}


def _reason(program: Program, statement: cst.CSTNode) -> tuple[str, Severity | None]:
    """Why a statement leaves the script, and what is left to do."""
    tree = program.tree
    if not any(statement in (each, *tree.ancestors(each)) for each in program.installs.installing):
        return _NEEDLESS, None
    forms = [form for call in tree.within(statement, cst.Call) if (form := program.form(call)) is not None]
    texts = [tree.text(statement), *(part for form in forms for part in (str(form), form.body or ""))]
    named = [word for text in texts for found in _SYSTEM.findall(text) for word in found.split() if word[0] != "-"]
    if packages := ", ".join(dict.fromkeys(named)):
        said = f"installs {packages} on the machine, which no requirements file can; the script leaves it out"
        return f"{said}: install it on each machine, before the job", Severity.WARNING
    commands = [command for text in texts for command in _INSTALL_COMMAND.findall(text)]
    listed = [file for command in commands for file in _LISTED.findall(command)]
    made = {file for _, file in _WRITTEN.findall(tree.source)}
    folders = dict.fromkeys(folder for command in commands for folder in _FOLDER.findall(command))
    given = {f"-r {file}": f"what {file} lists" for file in listed if file not in made}
    given |= {f"-e {folder}": f"the package in {folder}" for folder in folders}
    if given:
        said = f"installs {' and '.join(given.values())}; the script leaves it out, and no requirements file holds it"
        return f"{said}: run pip install {' '.join(given)} once, before the job", Severity.WARNING
    return "installs packages; the script leaves it out: install them once, before the job", None


def _hollow(program: Program) -> Iterator[Finding]:
    """Tests of which only the `else` is left (an `else` of which nothing is left goes with its last line)."""
    tree, removed = program.tree, program.installs.statements
    for test in tree.of(cst.If):
        other = test.orelse
        if test in removed or not isinstance(other, cst.Else):
            continue
        suites = [each.body for each in (test, other) if isinstance(each.body, cst.IndentedBlock)]
        if [all(line in removed for line in suite.body) for suite in suites] == [True, False]:
            edits = (
                Replace(test.test, f"not ({tree.text(test.test)})"),
                Cut(tree.line_start(tree.start(test.body.body[0])), tree.line_end(tree.start(other)) + 1),
            )
            yield Finding(test, _NEEDLESS, edits)


def _comments(program: Program, cell: int) -> Iterator[tuple[int, int]]:
    """Comments whose code is gone: above it or, at a cell's end, below it; all of a cell of which nothing else is left.

    A title, which a blank line sets apart, goes with the code below it only if it speaks of the installation.
    So does a request to restart after that.
    """
    tree, source, (start, end) = program.tree, program.tree.source, program.cell_span(cell)
    removed = program.installs.statements
    lines = program.lines_of(cell)
    if cell in program.installs.emptied or (not lines and _is_remark(program, cell)):
        yield start, end
    elif any(line in removed or not removed.isdisjoint(small_statements(line)) for line in lines):
        for block in _COMMENTS.finditer(source, start, end):
            if any(tree.start(head(line)) < block.start() < tree.span(line)[1] for line in lines):
                continue
            below = next((line for line in lines if tree.start(head(line)) > block.start()), lines[-1])
            is_title = block.start() == start and source.startswith("\n", block.end())
            says = _OF_INSTALL if below in removed else _OF_VERSIONS
            of_restart = _OF_INSTALL.search(block[0]) and _OF_RESTART.search(block[0])
            if of_restart or (says.search(block[0]) if is_title else below in removed):
                yield block.span()


def _is_remark(program: Program, cell: int) -> bool:
    """True for a cell of comments above the import of Unsloth that speaks of an install.

    Code that is switched off stays, unless it installs.
    """
    start, end = program.cell_span(cell)
    text = program.tree.source[start:end]
    listed = program.notebook.metadata.dependencies  # all that is left of the installs of a notebook of marimo's
    if not text.strip() or end > first_import(program.tree):
        return False
    if _SWITCHED_OFF.search(text) or OF_NO_CODE.search(text):
        return bool(_SWITCHED_OFF.search(text)) and not LICENCE.search(text)
    return bool(listed) or bool(program.installs.statements and _OF_INSTALL.search(text))


def _version_checks(program: Program) -> Iterator[Finding]:
    """Checks beside an install that end the job where another version is installed."""
    tree, installs = program.tree, program.installs
    checks: list[tuple[cst.Assert | cst.If, str]] = [(check, "unless") for check in tree.live(cst.Assert)]
    checks += [(check, "if") for check in tree.live(cst.If) if _raises(check.body)]
    for check, when in checks:
        is_beside = program.cell_at(tree.start(check)).number in installs.cells and not installs.covers(check)
        if is_beside and _VERSION.search(tree.text(check.test)):
            said = f"ends the job {when} {tree.text(check.test)}: install the notebook's versions"
            yield Finding(check, said, severity=Severity.WARNING)


def _raises(suite: cst.BaseSuite) -> bool:
    lines = small_statements(suite) or small_statements(suite.body[-1])
    return any(isinstance(line, cst.Raise) for line in lines)
