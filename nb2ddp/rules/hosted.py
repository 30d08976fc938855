"""Rules for what only a hosted notebook and its user provide: installs, services of Colab and Kaggle, answers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import libcst as cst

from nb2ddp.facts.flow import first_import
from nb2ddp.facts.hosted import HOSTED, SECRET, UPLOAD, hosted_name
from nb2ddp.facts.installs import announcements
from nb2ddp.facts.needs import secret_variable
from nb2ddp.facts.paths import HostedPath
from nb2ddp.facts.program import Program
from nb2ddp.facts.questions import Question
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, Findings, left_out, rule, shown, todo, without_names
from nb2ddp.syntax.edits import LICENCE, OF_NO_CODE, Cut, Edit, Remove, Replace
from nb2ddp.syntax.environ import sets_only
from nb2ddp.syntax.tree import Statement, Tree, head, small_statements

#: The packages that a package manager of the system installs.
_SYSTEM = re.compile(
    r"\b(?:apt|apt-get|aptitude|yum|dnf|brew|apk)(?:\s+-\S+)*\s+(?:install|add)((?:\s+-?\w[\w.+=-]*)+)"
)
#: Words in a comment that is only about the installation.
_OF_INSTALL = re.compile(r"(?i)install|\bpip\b|dependenc|requirement|package|--no-deps")
#: A request for a restart.
_OF_RESTART = re.compile(r"(?i)\brestart\w*\b[^.\n]*\b(runtime|kernel|session)\b")
_OF_VERSIONS = re.compile(r"\bpip install\b|[<>=]=\s*\d")
#: An install that is commented out.
_SWITCHED_OFF = re.compile(r"^#[# ]*[!%]?(?:pip|uv pip|conda) install\b", re.M)
#: Options that install from a file or a folder, which may come with the job.
_FROM_FILE = re.compile(r"(?:-r|--requirement|-e|--editable)[ =]+[^\s$:]+(?!\S)")
_INSTALL_LINE = re.compile(r"\binstall\b[^\n;&|]*")
_COMMENTS = re.compile(r"(?:^#.*\n)+", re.M)
_NEEDLESS = "only the install needs it; the script leaves it out"


@rule("DDP306")
def package_install(program: Program) -> Findings:
    """Package installs are removed; the settings, imports and clones of an install cell stay."""
    tree, removed = program.tree, program.installs.statements
    cuts = _cuts(program)
    moved = {setting.node for setting in program.early_settings if setting.moves}  # to the setup block
    for statement in tree.in_order(removed):
        if removed.isdisjoint(tree.ancestors(statement)) and not moved.issuperset(small_statements(statement) or "-"):
            edits: list[Edit] = [Remove(statement, keep_comment=False)]  # type: ignore[arg-type]
            if isinstance(tree.parents[statement], cst.IndentedBlock):
                edits.append(Cut(tree.comments_above(statement), tree.line_start(tree.start(statement))))
            edits += cuts.pop(program.cell_at(tree.start(statement)).number, ())
            message, severity = _reason(program, statement)
            yield Finding(statement, message, *edits, severity=severity)
    for line, kept in program.installs.imports.items():
        yield Finding(line, _NEEDLESS, without_names(program, line, kept))
    yield from _hollow(program)
    for gone in cuts.values():
        nodes = (*tree.of(cst.Comment), *tree.module.body)
        below = (node for node in nodes if tree.start(node) >= min(cut.start for cut in gone))
        there = min(below, key=tree.start, default=tree.module.body[-1])
        yield Finding(there, "a comment on the installation; the script leaves it out", *gone)


def _cuts(program: Program) -> dict[int, list[Cut]]:
    """Return the cuts of comments whose code is removed, by cell number."""
    cells = (cell.number for cell in program.code_cells)
    return {number: cuts for number in cells if (cuts := [Cut(*span) for span in _comments(program, number)])}


def _reason(program: Program, statement: cst.CSTNode) -> tuple[str, Severity | None]:
    """Return the message on a removed statement, with what is left to do, and the severity."""
    tree = program.tree
    if not any(statement in (each, *tree.ancestors(each)) for each in program.installs.installing):
        return _NEEDLESS, None
    forms = [form for call in tree.within(statement, cst.Call) if (form := program.form(call)) is not None]
    text = "\n".join([tree.text(statement), *(part for form in forms for part in (str(form), form.body or ""))])
    named = [word for found in _SYSTEM.findall(text) for word in found.split() if word[0] != "-"]
    if packages := ", ".join(dict.fromkeys(named)):
        message = f"installs {packages} on the machine, which a requirements file cannot do; the script leaves it out"
        return f"{message}: install it on each machine, before the job", Severity.WARNING
    lines = re.sub(r"[\"',()]+", " ", "\n".join(_INSTALL_LINE.findall(text)))
    if files := " ".join(
        dict.fromkeys(re.sub(r"(-r|--requirement)[ =]+", "-r ", found) for found in _FROM_FILE.findall(lines))
    ):
        message = "installs something that a requirements file cannot hold; the script leaves it out"
        return f"{message}: run pip install {files} once, before the job", Severity.WARNING
    return "installs packages; the script leaves it out: install them once, before the job", None


def _hollow(program: Program) -> Findings:
    """Yield findings on tests with only an `else` left (an `else` without code is removed with its last line)."""
    tree, removed = program.tree, program.installs.statements
    for test in tree.of(cst.If):
        other = test.orelse
        if test in removed or not isinstance(other, cst.Else):
            continue
        suites = [each.body for each in (test, other) if isinstance(each.body, cst.IndentedBlock)]
        if [all(line in removed for line in suite.body) for suite in suites] == [True, False]:
            gone = Cut(tree.line_start(tree.start(test.body.body[0])), tree.line_end(tree.start(other)) + 1)
            yield Finding(test, _NEEDLESS, Replace(test.test, f"not ({tree.text(test.test)})"), gone)


def _comments(program: Program, cell: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of comments on removed code, above it or, at a cell's end, below it; or all of an emptied cell.

    A title, which a blank line separates, is removed with the code below it only if it is about the installation.
    A request to restart after the installation is removed too.
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
            pattern = _OF_INSTALL if below in removed else _OF_VERSIONS
            of_restart = _OF_INSTALL.search(block[0]) and _OF_RESTART.search(block[0])
            if of_restart or (pattern.search(block[0]) if is_title else below in removed):
                yield block.span()


def _is_remark(program: Program, cell: int) -> bool:
    """Return whether a cell of comments above the import of Unsloth is about an install.

    Code that is commented out stays, unless it installs packages.
    """
    start, end = program.cell_span(cell)
    text = program.tree.source[start:end]
    listed = program.notebook.metadata.dependencies  # all that is left of the installs of a marimo notebook
    if not text.strip() or end > first_import(program.tree):
        return False
    if _SWITCHED_OFF.search(text) or OF_NO_CODE.search(text):
        return bool(_SWITCHED_OFF.search(text)) and not LICENCE.search(text)
    return bool(listed) or bool(program.installs.statements and _OF_INSTALL.search(text))


_VALUE = "{}(...) works on Colab or Kaggle only, so its value is None in the script: write the value{}"
_THEIRS = "is a path that only Colab or Kaggle has: name one on your machine"
_SEVERAL = "are paths that only Colab or Kaggle has: name those on your machine"
_SERVICE = "works on Colab or Kaggle only; the script leaves it out"
_WRITES = "writes to {}, which only Colab or Kaggle has: name a folder on your machine"
_UNMOUNTED = "writes to Colab's Drive, which no job mounts: mount it before the job, or name a folder on your machine"


@rule("DDP310")
def hosted_notebook_service(program: Program) -> Findings:
    """Colab's and Kaggle's services are removed; their secrets are read from the environment."""
    tree = program.tree
    handled: set[cst.CSTNode | None] = {_tried(tree, imported) for imported, *_ in tree.imports(*HOSTED)}
    for call in tree.of(cst.Call):
        name = hosted_name(tree, call)
        if name is None or not handled.isdisjoint(tree.ancestors(call)) or program.installs.covers(call):
            continue
        statement = program.alone(call)
        handled.add(statement or call)
        if SECRET.fullmatch(name) and call.args:
            yield _secret(tree, call, name)
        elif statement is not None:
            removals = (Remove(each) for each in announcements(tree, statement))
            drops = (Remove(statement, keep_comment=False, comments_above=True), *removals)
            yield Finding(call, f"{name}(...) {_SERVICE}", *drops)
        elif name == "kaggle_secrets.UserSecretsClient" and (line := tree.around(call, cst.Assign)):
            yield Finding(call, f"{name} {_SERVICE}", Remove(line, keep_comment=False, comments_above=True))
        else:
            message = _VALUE.format(name, ", such as {name: open(name, 'rb').read()}" if name == UPLOAD else "")
            yield todo(call, message, Replace(call, "None"))
    for imported, module, kept in tree.imports(*HOSTED):
        if not program.installs.covers(imported) and _tried(tree, imported) is None:
            edit = Replace(imported, kept) if kept else Remove(imported, keep_comment=False, comments_above=True)
            yield Finding(imported, f"{module} works on Colab or Kaggle only; the script does without it", edit)
    yield from _paths(program)


def _tried(tree: Tree, statement: cst.Import | cst.ImportFrom) -> cst.BaseSuite | None:
    """Return the body of a `try` whose handler runs if the import fails: it stays as it is; None if there is none."""
    tried = tree.around(statement, cst.Try)
    if tried is None or not tried.handlers or statement not in tree.within(tried.body, type(statement)):
        return None
    return tried.body


def _secret(tree: Tree, call: cst.Call, name: str) -> Finding:
    """Read a secret from the environment; if the line only puts the secret there, remove it."""
    key, owner = tree.literal(call.args[0].value), tree.parents[call]
    variable = secret_variable(key) if isinstance(key, str) else key
    shown = f'"{variable}"' if isinstance(key, str) else tree.text(call.args[0].value)
    edit: Edit = Replace(call, f"os.environ[{shown}]")
    if isinstance(owner, cst.Assign) and sets_only(tree, owner, variable):
        edit = Remove(owner)
    message = "reads a secret of Colab or Kaggle; the script reads it from the environment: set it there"
    return Finding(call, f"{name}(...) {message}", edit)


def _paths(program: Program) -> Findings:
    """Yield a finding for each statement that is the first to read paths of the hosted notebook."""
    paths = [path for path in program.hosted_paths if not path.is_made]
    first, by_statement = dict[str, HostedPath](), defaultdict[Statement, list[HostedPath]](list)
    for path in paths:
        if first.setdefault(path.text, path) is path:
            by_statement[program.tree.statement(path.node)].append(path)
    for path, *others in by_statement.values():
        them = f"{path.text!r} {_THEIRS}" if not others else f"{path.text!r} and {len(others)} more {_SEVERAL}"
        texts = {each.text for each in (path, *others)}
        more = [each.node for each in paths if each.text in texts]
        yield todo(path.node, f"{them}{_places(program, path.node, more)}")
    yield from _written(program, set(by_statement))


def _written(program: Program, reported: set[Statement]) -> Findings:
    """Yield a finding for each folder of the hosted notebook that is written to, at a statement without a finding."""
    nodes = defaultdict[str, list[cst.BaseExpression]](list)
    for folder, written in program.written_there:
        nodes[folder].append(written)
    for folder, every in nodes.items():
        for node in [each for each in every if program.tree.statement(each) not in reported][:1]:
            reported.add(program.tree.statement(node))
            writes = _UNMOUNTED if "drive" in folder else _WRITES.format(folder)
            yield todo(node, f"{writes}{_places(program, node, every)}")


def _places(program: Program, node: cst.CSTNode, others: Iterable[cst.CSTNode]) -> str:
    """Return the other cells that contain a path, as the end of a message."""
    cells = {program.location(each).cell for each in others} - {program.location(node).cell}
    return f"; also in cell {', '.join(map(str, sorted(cells)))}" if cells else ""


@rule("DDP311", Severity.WARNING)
def question_to_a_person(program: Program) -> Findings:
    """`input()`, `getpass()` and logins read environment variables instead; `breakpoint()` is removed."""
    asked = [each for each in program.questions if not program.installs.covers(each.call)]
    for question in asked:
        if question.is_login:  # the service's library reads the variable when it is needed
            message = f"asks for a token; the script leaves it out: set {question.variable} in the environment"
            edit = left_out(program, question.call)
            yield Finding(question.call, f"{shown(program, question.call)} {message}", edit)
        else:
            yield _asked(program, question)
    for text, variable in program.tokens_to_fill_in.items():
        if not program.installs.covers(text):
            form = program.form(text)
            message = f"{program.tree.text(text) if form is None else form.source} stands for a token"
            yield Finding(text, f"{message}: set {variable} in the environment", _read(program, text, variable))


def _asked(program: Program, question: Question) -> Finding:
    """Read the answer from a variable: nobody answers a process of a job."""
    tree, call, variable = program.tree, question.call, question.variable
    owner = tree.parents[call]
    asked = f"{tree.text(call.func)}() waits for an answer, and a job has nobody to give one"
    if isinstance(owner, cst.Expr):
        return Finding(call, f"{asked}; the script leaves it out", Remove(owner))
    edit = _read(program, call, variable, question.may_skip)
    # a test that the variable is not set becomes a test that it is
    test = [Replace(question.test.test, f'"{variable}" in os.environ')] if question.test else []
    may = ", or leave it out" if question.may_skip else ""
    again = tree.around(call, cst.While, cst.For) is not None and isinstance(edit, Replace)
    loop = "; the loop gets the same answer each time: remove the loop" if again else ""
    return Finding(call, f"{asked}: set {variable} in the environment{may}{loop}", edit, *test, todo=again)


def _read(program: Program, asked: cst.BaseExpression, variable: str, may_skip: bool = False) -> Edit:
    """Replace the expression that asks for a variable by a read of it; remove a line that only sets this variable."""
    owner = program.tree.parents[asked]
    if isinstance(owner, cst.Expr) or (  # `%env HF_TOKEN=hf_xxx`
        isinstance(owner, cst.Assign) and sets_only(program.tree, owner, variable)
    ):
        return Remove(owner)
    return Replace(asked, f'os.environ.get("{variable}", "")' if may_skip else f'os.environ["{variable}"]')
