"""What a hosted notebook and a person at it give: installs, services of Colab and Kaggle, answers to questions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import libcst as cst

from nb2ddp.facts.effects import FILE_MAGICS
from nb2ddp.facts.environment import first_import
from nb2ddp.facts.hosted import HOSTED, SECRET, UPLOAD, HostedPath, hosted_name
from nb2ddp.facts.installs import announcements
from nb2ddp.facts.needs import secret_variable
from nb2ddp.facts.program import Program
from nb2ddp.facts.questions import Question
from nb2ddp.notebook.magics import Kind
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, left_out, rule, shown, without_names
from nb2ddp.syntax.edits import LICENCE, OF_NO_CODE, Cut, Edit, Remove, Replace
from nb2ddp.syntax.environ import sets_only
from nb2ddp.syntax.tree import Statement, Tree, head, small_statements

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
    """Package installs are removed; the settings, imports and clones of an install cell stay."""
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
    checks += [(check, "if") for check in tree.live(cst.If) if _ends_in_raise(check.body)]
    for check, when in checks:
        is_beside = program.cell_at(tree.start(check)).number in installs.cells and not installs.covers(check)
        if is_beside and _VERSION.search(tree.text(check.test)):
            said = f"ends the job {when} {tree.text(check.test)}: install the notebook's versions"
            yield Finding(check, said, severity=Severity.WARNING)


def _ends_in_raise(suite: cst.BaseSuite) -> bool:
    lines = small_statements(suite) or small_statements(suite.body[-1])
    return any(isinstance(line, cst.Raise) for line in lines)


#: What a handler may be for that a missing package comes to.
_CATCHES = frozenset({"", "ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_VALUE = "{}(...) works on Colab or Kaggle only, so its value is None in the script: write the value{}"
_THEIRS = "is a path that only Colab or Kaggle has: name one on your machine"
_SEVERAL = "are paths that only Colab or Kaggle has: name those on your machine"
_UPLOADS = "uploads files into the notebook's folder; the script leaves it out: copy them into the job's folder"
_SERVICE = "works on Colab or Kaggle only; the script leaves it out"
_WRITES = "writes to {}, which only Colab or Kaggle has: name a folder on your machine"
_UNMOUNTED = "writes to Colab's Drive, which no job mounts: mount it before the job, or name a folder on your machine"


@rule("DDP310")
def hosted_notebook_service(program: Program) -> Iterator[Finding]:
    """Colab's and Kaggle's services are removed; their secrets are read from the environment."""
    tree, handled = program.tree, set[cst.CSTNode]()
    tried = {_handled(tree, statement) for statement, *_ in tree.imports(*HOSTED)}
    for call in tree.of(cst.Call):
        name = hosted_name(tree, call)
        if name is None or not handled.isdisjoint(tree.ancestors(call)) or program.installs.covers(call):
            continue
        statement = program.alone(call)
        if not tried.isdisjoint(tree.ancestors(call)):
            if name == UPLOAD:
                yield Finding(call, f"{name}() {_UPLOADS}", severity=Severity.WARNING)
            continue
        handled.add(statement or call)
        if SECRET.fullmatch(name) and call.args:
            yield _secret(tree, call, name)
        elif statement is not None:
            told = (Remove(each) for each in announcements(tree, statement))
            drops = (Remove(statement, keep_comment=False, comments_above=True), *told)
            yield Finding(call, f"{name}(...) {_SERVICE}", drops)
        elif name == "kaggle_secrets.UserSecretsClient" and (line := tree.around(call, cst.Assign)):
            yield Finding(call, f"{name} {_SERVICE}", (Remove(line, keep_comment=False, comments_above=True),))
        elif name == UPLOAD and (line := tree.around(call, cst.Assign)) is not None and not tree.bound_uses(line):
            yield Finding(call, f"{name}() {_UPLOADS}", (Remove(line),), severity=Severity.WARNING)
        else:
            message = _VALUE.format(name, ", such as {name: open(name, 'rb').read()}" if name == UPLOAD else "")
            yield Finding(call, message, (Replace(call, "None"),), todo=True)
    yield from _imports(program)
    yield from _paths(program)


def _secret(tree: Tree, call: cst.Call, name: str) -> Finding:
    """Read a secret from the environment; where the notebook puts it there itself, that line goes."""
    key, owner = tree.literal(call.args[0].value), tree.parents[call]
    variable = secret_variable(key) if isinstance(key, str) else key
    shown = f'"{variable}"' if isinstance(key, str) else tree.text(call.args[0].value)
    edit: Edit = Replace(call, f"os.environ[{shown}]")
    if isinstance(owner, cst.Assign) and sets_only(tree, owner, variable):
        edit = Remove(owner)
    said = "reads a secret of Colab or Kaggle; the script reads it from the environment: set it there"
    return Finding(call, f"{name}(...) {said}", (edit,))


def _paths(program: Program) -> Iterator[Finding]:
    """The paths of the hosted notebook, where they are read first: one finding for those of one statement."""
    paths = [path for path in program.hosted_paths if not path.is_made]
    first = {path.text: path for path in reversed(paths)}
    by_statement: dict[Statement, list[HostedPath]] = {}
    for path in paths:
        if first[path.text] is path:
            by_statement.setdefault(program.tree.statement(path.node), []).append(path)
    for path, *others in by_statement.values():
        them = f"{path.text!r} {_THEIRS}" if not others else f"{path.text!r} and {len(others)} more {_SEVERAL}"
        texts = {each.text for each in (path, *others)}
        more = [each.node for each in paths if each.text in texts]
        yield Finding(path.node, f"{them}{_places(program, path.node, more)}", todo=True)
    yield from _written(program, set(by_statement))


def _written(program: Program, said: set[Statement]) -> Iterator[Finding]:
    """The folders of the hosted notebook that are written into: one finding for each, where no line says more."""
    nodes: dict[str, list[cst.BaseExpression]] = {}
    for folder, written in program.written_there:
        nodes.setdefault(folder, []).append(written)
    for folder, every in nodes.items():
        for node in [each for each in every if program.tree.statement(each) not in said][:1]:
            said.add(program.tree.statement(node))
            writes = _UNMOUNTED if "drive" in folder else _WRITES.format(folder)
            places = [*every, *_files_naming(program, folder)]
            others = [each for each in places if program.location(each).cell != program.location(node).cell]
            yield Finding(node, f"{writes}{_places(program, node, others)}", todo=True)


def _files_naming(program: Program, folder: str) -> list[cst.Call]:
    """The cells that write a file, such as a Modelfile, whose text names something in a folder."""
    named = re.compile(rf"(?<![\w/]){re.escape(folder)}/")
    files = [each for each in program.forms_of(Kind.CELL_MAGIC) if each[1].name in FILE_MAGICS]
    return [call for call, form in files if named.search(form.body or "")]


def _places(program: Program, node: cst.CSTNode, others: Iterable[cst.CSTNode]) -> str:
    """Where else a path stands, for the end of a message: `, here, further down and in cell 3`."""
    statement = program.tree.statement(node)
    more = [each for each in others if program.tree.statement(each) is not statement]
    cells_of_more = list(dict.fromkeys(program.location(each).cell for each in more))
    own = program.location(node).cell
    numbers = [str(each) for each in cells_of_more if each != own]
    cells = (
        [f"in cells {', '.join(numbers[:-1])} and {numbers[-1]}"] if numbers[1:] else [f"in cell {n}" for n in numbers]
    )
    *places, last = ["here", *["further down"] * (own in cells_of_more), *cells]
    return f", {', '.join(places)} and {last}" if places else ""


def _imports(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for statement, module, kept in tree.imports(*HOSTED):
        if not program.installs.covers(statement) and _handled(tree, statement) is None:
            edit = Replace(statement, kept) if kept else Remove(statement, keep_comment=False, comments_above=True)
            yield Finding(statement, f"{module} works on Colab or Kaggle only; the script does without it", (edit,))


def _handled(tree: Tree, statement: cst.Import | cst.ImportFrom) -> cst.BaseSuite | None:
    """The body of a `try` that handles a failed import, and goes on without a hosted notebook."""
    tried = tree.around(statement, cst.Try)
    if tried is None or statement not in tree.within(tried.body, type(statement)):
        return None
    handler = next((each for each in tried.handlers if not _CATCHES.isdisjoint(_caught(tree, each))), None)
    return None if handler is None or _gives_secrets(tree, tried, handler) or _raises(tree, handler) else tried.body


def _gives_secrets(tree: Tree, tried: cst.Try, handler: cst.ExceptHandler) -> bool:
    """True for a `try` that asks the hosted notebook for secrets alone, and does without where there are none.

    A variable that the environment lacks then ends it as the secret did.
    """
    names = [name for call in tree.within(tried.body, cst.Call) if (name := hosted_name(tree, call)) is not None]
    all_secrets = all(SECRET.fullmatch(name) or name.endswith("UserSecretsClient") for name in names)
    return bool(names) and all_secrets and not _caught(tree, handler).isdisjoint(("", "Exception", "BaseException"))


def _caught(tree: Tree, handler: cst.ExceptHandler) -> set[str]:
    """What a handler catches; "" for everything."""
    return {""} if handler.type is None else {tree.text(name) for name in tree.within(handler.type, cst.Name)}


def _raises(tree: Tree, handler: cst.ExceptHandler) -> bool:
    """True for a handler that ends the notebook, or hands the error on."""
    last = small_statements(handler.body) or small_statements(handler.body.body[-1])
    return any(each.exc is None or each in last for each in tree.within(handler, cst.Raise))


@rule("DDP311", Severity.WARNING)
def question_to_a_person(program: Program) -> Iterator[Finding]:
    """`input()`, `getpass()` and logins read environment variables instead; `breakpoint()` is removed."""
    asked = [each for each in program.questions if not program.installs.covers(each.call)]
    for question in asked:
        yield _login(program, question) if question.is_login else _asked(program, question)
    for text, variable in program.tokens_to_fill_in.items():
        if not program.installs.covers(text):
            form = program.form(text)
            said = f"{program.tree.text(text) if form is None else form.source} stands for a token"
            yield Finding(text, f"{said}: set {variable} in the environment", (_read(program, text, variable),))


def _login(program: Program, question: Question) -> Finding:
    """Leave a login out: the service's library reads the variable when it is needed."""
    said = f"asks a person for a token; the script leaves it out: set {question.variable} in the environment"
    statement = program.alone(question.call)
    edit = Remove(statement, comments_above=True) if statement is not None else left_out(program, question.call)
    return Finding(question.call, f"{shown(program, question.call)} {said}", (edit,))


def _asked(program: Program, question: Question) -> Finding:
    """Read the variable that the answer is for; nobody answers a process of a job."""
    tree, call, variable = program.tree, question.call, question.variable
    owner = tree.parents[call]
    asked = f"{tree.text(call.func)}() asks a person, and a job has none"
    if isinstance(owner, cst.Expr):
        return Finding(call, f"{asked}; the script leaves it out", (Remove(owner),))
    loop = tree.around(call, cst.While, cst.For)
    told = "the loop gets the same answer each time"
    if isinstance(loop, cst.While) and tree.text(loop.test) in ("True", "1") and not _is_left(tree, loop):
        told = "the loop never ends, and nothing below it runs"
    again = "" if loop is None else f"; {told}: take it out"
    edit = _read(program, call, variable, question.may_skip)
    if question.test is not None and isinstance(edit, Replace):
        edit = _without_test(tree, question.test, edit)
    may = ", or leave it out" if question.may_skip else ""
    todo = loop is not None and isinstance(edit, Replace)
    return Finding(call, f"{asked}: set {variable} in the environment{may}{again * todo}", (edit,), todo=todo)


def _is_left(tree: Tree, loop: cst.While) -> bool:
    """Whether something in a loop, or an error, may end it."""
    leaves = any(tree.within(loop, kind) for kind in (cst.Break, cst.Return, cst.Raise, cst.Yield))
    exits = any(re.search(r"\b(exit|quit|kill)$", tree.text(call.func)) for call in tree.within(loop, cst.Call))
    return leaves or exits or tree.around(loop, cst.Try) is not None


def _read(program: Program, asked: cst.BaseExpression, variable: str, may_skip: bool = False) -> Edit:
    """Read the variable in the place of what asks for it; a line that only sets this variable goes."""
    owner = program.tree.parents[asked]
    if isinstance(owner, cst.Expr) or (  # `%env HF_TOKEN=hf_xxx`
        isinstance(owner, cst.Assign) and sets_only(program.tree, owner, variable)
    ):
        return Remove(owner)
    return Replace(asked, f'os.environ.get("{variable}", "")' if may_skip else f'os.environ["{variable}"]')


def _without_test(tree: Tree, test: cst.If, answer: Replace) -> Replace:
    """Bind an answer without the test whether its variable is set, as nothing else binds it where that is."""
    (start, end), asked = tree.span(answer.node), [*tree.ancestors(answer.node)]
    kept = list[str]()
    for line in test.body.body:
        first, last = tree.span(line)
        if line in asked:
            kept.append(f"{tree.source[first:start]}{answer.text}{tree.source[end:last]}")
        elif not re.match(r"print\(", tree.text(line)):  # what it prints asks for an answer
            kept.append(tree.source[first:last])
    return Replace(test, "\n".join(kept))
