"""IPython's syntax as Python: magics, shell commands, `get_ipython`, and what only a cell may hold."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import FILE_MAGICS, NOTEBOOK_MAGICS, Does
from nb2ddp.facts.environment import ENV_MAGICS, assignment, packages_of
from nb2ddp.facts.execution import Phase
from nb2ddp.facts.logins import variable_of_command
from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import (
    is_install,
    is_of_its_shell,
    kills_job,
    never_ends,
    only_shows,
    parse,
    quoted,
    rerun,
    trailing_comment,
    undefined,
    without_comment,
    without_installs,
)
from nb2ddp.notebook.magics import PYTHON_CELL_MAGICS, Kind, Syntax
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, left_out, rule
from nb2ddp.script.modules import ON_COLAB, ON_INDEX, is_published
from nb2ddp.syntax.edits import AddToSetup, Edit, InsertBefore, Remove, Replace
from nb2ddp.syntax.tree import Tree

_QUOTES = "Python before 3.12 stops at this f-string, whose quotes stand inside it, too; the script uses others inside"
_NEWER = "this f-string needs Python 3.12 or newer, and so does the script: older ones stop with a SyntaxError"
_OTHER = {'"': "'", "'": '"'}


@rule("DDP007")
def newer_python(program: Program) -> Iterator[Finding]:
    """Quotes in an f-string that need Python 3.12 become other quotes."""
    tree = program.tree
    for string in tree.of(cst.FormattedString):
        parts = [part for part in string.parts if isinstance(part, cst.FormattedStringExpression)]
        fields = [part.expression for part in parts]
        text = "".join(map(tree.text, fields))
        if "\\" in text or any(tree.within(part, cst.Comment) for part in parts):
            yield Finding(string, _NEWER, severity=Severity.WARNING)
        elif string.end in text:
            edits = _with_other_quotes(tree, fields, string.end)
            said, severity = (_QUOTES, None) if edits else (_NEWER, Severity.WARNING)
            yield Finding(string, said, edits, severity)


def _with_other_quotes(tree: Tree, fields: list[cst.BaseExpression], quote: str) -> tuple[Replace, ...]:
    """The strings in an f-string's fields with the quotes that the f-string does not have; none where that fails."""
    strings = [each for field in fields for each in tree.within(field, cst.SimpleString) if each.quote == quote]
    other = _OTHER.get(quote, quote)
    is_plain = all(other not in each.value for each in strings) and not any(
        tree.within(field, cst.FormattedString) for field in fields
    )
    count = sum(tree.text(field).count(quote) for field in fields)
    if not is_plain or count != 2 * len(strings):
        return ()
    return tuple(Replace(each, each.value.replace(quote, other)) for each in strings)


_FUTURE = "Python takes this import on the first lines of a script alone; the script has it there"
_GLOBAL = "a global outside of functions does nothing, and Python refuses it below a use of it; the script drops it"


@rule("DDP010", also_alone=True)
def only_in_a_cell(program: Program) -> Iterator[Finding]:
    """What Python takes at the top of a cell, but not within a script, is moved or left out."""
    tree = program.tree
    for future, *_ in tree.imports("__future__"):
        yield Finding(future, _FUTURE, (AddToSetup(tree.text(future), before_imports=True), Remove(future)))
    for line in tree.of(cst.Global):
        named = [item.name.value for item in line.names]
        if tree.scope(line) is tree.module and any(_is_used_above(tree, name, line) for name in named):
            yield Finding(line, _GLOBAL, (Remove(line, keep_comment=False),))


def _is_used_above(tree: Tree, name: str, line: cst.CSTNode) -> bool:
    """Whether the module itself binds or reads a name above a statement."""
    used = [*(each.node for each in tree.bindings(name)), *tree.loads(name)]
    return any(tree.start(use) < tree.start(line) and tree.function(use) is None for use in used)


@rule("DDP301")
def env_magic(program: Program) -> Iterator[Finding]:
    """`%env X=1 # why` becomes `os.environ["X"] = "1"  # why`, in every process."""
    for call, form in program.forms_of(Kind.LINE_MAGIC):
        if form.name not in ENV_MAGICS or call in program.tokens_to_fill_in:  # DDP311 says so
            continue
        statement = program.alone(call)
        pair = assignment(form.text)
        if pair is None:
            shown = f'os.environ["{form.text}"]' if form.text else "dict(os.environ)"
            edit = Replace(call, shown) if statement is None else Remove(statement, comment=trailing_comment(form.text))
            yield Finding(call, f"%{form} only shows the environment; the script leaves it out", (edit,))
            continue
        name, value, comment = pair
        code = f'os.environ["{name}"] = {parse(value, program.tree.bound_at(call)).expression}'
        said = f"%{form.name} works in a notebook only; the script sets the variable in Python"
        yield Finding(call, said, (Replace(call, f"{code}  {comment}".rstrip()),))


@rule("DDP302")
def cell_magic_around_code(program: Program) -> Iterator[Finding]:
    """`%%capture`, `%%time`, `%%timeit` and the like are removed; the code below them stays."""
    for call, form in program.forms_of(Kind.CELL_MAGIC):
        statement = program.alone(call)
        if form.body is None and form.name in PYTHON_CELL_MAGICS and statement is not None:
            said = f"%%{form.name} works in a notebook only; the script keeps the code below it"
            yield Finding(call, said, (Remove(statement, comment=trailing_comment(form.text)),))
            yield from _captured(program, form)


def _captured(program: Program, form: Syntax) -> Iterator[Finding]:
    """Uses of the name that `%%capture name` binds: a script captures nothing."""
    tree = program.tree
    names = [word for word in form.text.split("#")[0].split() if word.isidentifier()]
    if form.name != "capture" or not names:
        return
    said = f"{names[0]} holds what %%capture caught; a script prints that at once, so there is nothing to show here"
    for use in tree.loads(names[0]):
        part, statement = tree.parents[use], tree.around(use, cst.Expr)
        if statement is not None and _only_shows(tree, statement, names[0]):
            yield Finding(use, said, (Remove(statement, comments_above=True),))
        elif isinstance(part, cst.Attribute):
            yield Finding(use, said, (Replace(part, '""'),), severity=Severity.WARNING)


def _only_shows(tree: Tree, statement: cst.Expr, name: str) -> bool:
    """True for `caught.show()`, `print(caught.stdout)` and the like, which read no other name."""
    names = [(each, tree.parents[each]) for each in tree.within(statement, cst.Name)]
    parts = {getattr(above, kind, None) for _, above in names for kind in ("attr", "keyword")}
    read = {each.value for each, _ in names if each not in parts}
    return read <= {name, "print", "display"}


#: Without Python to run they do nothing; with it they stand no more (ipython.py).
_TIMERS = frozenset({"time", "timeit", "prun", "memit", "mprun", "lprun"})
_HELP = "shows help; the script leaves it out"
_AUTOMATIC = "is IPython's automatic call, which the script leaves out: write it as a Python call"


@rule("DDP303")
def line_magic(program: Program) -> Iterator[Finding]:
    """`%cd` becomes `os.chdir`, `%time f()` becomes `f()`; `name?` and settings of the notebook are removed."""
    for call, form in program.forms_of(Kind.HELP, Kind.AUTOCALL):
        is_call = form.kind is Kind.AUTOCALL
        message = f"{form.name}{form.text} {_AUTOMATIC}" if is_call else f"{form.text}? {_HELP}"
        yield Finding(call, message, (left_out(program, call, trailing_comment(form.source)),), todo=is_call)
    for call, form in program.forms_of(Kind.LINE_MAGIC):
        if form.name in ENV_MAGICS or program.installs.is_install(call):
            continue  # DDP301, DDP306
        is_alone = program.alone(call) is not None
        code = _code_of_line(program, call, form, shown=is_alone)
        comment = trailing_comment(form.text) if is_alone else ""
        edit = Replace(call, f"{code}  {comment}".rstrip()) if code else left_out(program, call, comment)
        if code is None:
            said = "works in a notebook only, so the script leaves it out: write what it does in Python"
            yield Finding(call, f"%{form} {said}", (edit,), todo=True)
        else:
            does = "does the same in Python" if code else "leaves it out"
            yield Finding(call, f"%{form.name} works in a notebook only; the script {does}", (edit,))


def _code_of_line(program: Program, call: cst.Call, form: Syntax, shown: bool) -> str | None:
    """The Python that a magic stands for: empty where it only steers the notebook, None where there is none."""
    if form.name in ("cd", "pushd"):
        folder = form.text.removeprefix("-q ").strip().strip("'\"") or "~"
        if folder.startswith("-"):
            return None
        name = re.fullmatch(r"\{(\w+)\}|\$(\w+)", folder)
        if name is not None and program.tree.bound(name[1] or name[2], call):
            return f"os.chdir({name[1] or name[2]})"
        path = parse(folder, program.tree.bound_at(call)).expression
        return f"os.chdir(os.path.expanduser({path}))" if folder.startswith("~") else f"os.chdir({path})"
    if form.name == "pwd":
        return "" if shown else "os.getcwd()"
    if form.name == "store":
        return None if "-r" in form.text.split() else ""
    return "" if form.name in NOTEBOOK_MAGICS | _TIMERS and shown else None


@rule("DDP305")
def shell_command(program: Program) -> Iterator[Finding]:
    """`!command` and `%mkdir` become `subprocess.run`, in one process of each machine before training."""
    for call, form in program.forms_of(Kind.SHELL):
        others = variable_of_command(form.command) is not None or kills_job(form.command)  # DDP311, DDP412
        if not program.installs.covers(call) and not others:
            yield from _found(program, call, form.command)


def _found(program: Program, call: cst.Call, command: str) -> Iterator[Finding]:
    """What becomes of a shell command."""
    text = rerun(without_installs(command))
    for name in undefined(text, program.tree.bound_at(call)):
        said = f"{name!r} is never defined, so the shell gets {{{name}}} as it stands: define it above"
        yield Finding(call, said, todo=True)
    shown = f"!{textwrap.shorten(text, 60, placeholder='...')}"
    message = f"{shown} works in a notebook only; the script runs it with subprocess"
    statement = program.alone(call)
    if statement is None:
        yield _assigned(program, call, text, message)
    elif not text or text.startswith("#"):
        yield Finding(call, message, edits=(Remove(statement),))
    elif never_ends(text) or is_of_its_shell(text):
        does = "runs until a person stops it" if never_ends(text) else "changes nothing but its own shell, which ends"
        said = f"{does}; the script leaves it out"
        yield Finding(call, f"{shown} {said}", (Remove(statement, keep_comment=False, comments_above=True),))
    elif only_shows(text) and program.training.last is not None and not program.execution.runs(call, Phase.AFTER):
        said = "only shows something; the script leaves it out"
        yield Finding(call, f"{shown} {said}", (Remove(statement, keep_comment=False, comments_above=True),))
    else:
        comment = trailing_comment(command)
        parsed = parse(text, program.tree.bound_at(call))
        run = Replace(statement, f"{parsed.run}  {comment}".rstrip())
        place = program.placement.on_main_process if only_shows(text) else program.placement.once
        ends_others = program.execution.does(call) & Does.KILL and program.execution.runs(call, Phase.DURING)
        yield Finding(call, message, (run, *(() if ends_others else place(statement))))


def _assigned(program: Program, call: cst.Call, text: str, message: str) -> Finding:
    """A command whose output the notebook takes: where it may do more than show something, it runs once."""
    lines = Replace(call, parse(text, program.tree.bound_at(call)).lines)
    if only_shows(text) or not program.execution.runs(call) or program.placement.runs_alone(call):
        return Finding(call, message, (lines,))
    if share := program.placement.shared(call):
        return Finding(call, message, (lines, *share))
    message = f"{message}, in all processes at once: put it on a line of its own"
    return Finding(call, message, (lines,), todo=True)


#: The shells that run the body.
_SHELLS = {**dict.fromkeys(("bash", "!", "sx", "system"), "bash"), "sh": "sh"}
#: Magics that go on where their shell fails.
_SILENT = frozenset({"!", "sx", "system"})
#: Programs that do nothing with the body: `%%script false` switches a cell off.
_OFF = re.compile(r"(--\S+\s+)*(false|true|echo)\b")
#: Magics that draw in the notebook, and that show a text to read.
_DRAWN = frozenset({"html", "HTML", "javascript", "js", "svg", "SVG"})
_TEXT = frozenset({"latex", "markdown"})
_INSTALLS_TOO = (
    "this cell installs packages and does more, so the script runs all of it, installs too: move the installs "
    "out, and install once before the job"
)


@rule("DDP309")
def cell_magic_with_own_body(program: Program) -> Iterator[Finding]:
    """`%%writefile` writes the file, `%%bash` and `%%sh` run the shell; other cell magics become comments."""
    for call, form in program.forms_of(Kind.CELL_MAGIC):
        statement = program.alone(call)
        if form.body is None or statement is None or program.installs.is_install(call):
            continue
        commented = Replace(statement, "\n".join(f"# {line}".rstrip() for line in form.body.split("\n")))
        code = _code_of_cell(program, call, form)
        if form.name in _DRAWN:
            said = f"%%{form.name} draws in a notebook; the script leaves it out"
            yield Finding(call, said, (Remove(statement),))
        elif form.name in _TEXT or (form.name == "script" and _OFF.match(form.text)):
            yield Finding(call, f"%%{form} runs no code; the script keeps it as a comment", (commented,))
        elif code is None:
            said = "works in a notebook only, so the script does not run this cell: write what it does in Python"
            yield Finding(call, f"%%{form} {said}", (commented,), todo=True)
        else:
            if form.name in _SHELLS and any(is_install(line.strip()) for line in form.body.split("\n")):
                yield Finding(call, _INSTALLS_TOO, todo=True)
            said = f"%%{form.name} works in a notebook only; the script does the same in Python"
            yield Finding(call, said, (Replace(statement, code), *program.placement.once(statement)))


def _code_of_cell(program: Program, call: cst.Call, form: Syntax) -> str | None:
    """The statement that does what a cell magic does; None where there is none, or where it has options."""
    words, body = _words(form.text), form.body or ""
    if form.name in FILE_MAGICS and words:
        mode = "a" if {"-a", "--append"} & set(words) else "w"
        path = parse(words[-1], program.tree.bound_at(call)).expression
        return f'with open({path}, "{mode}", encoding="utf-8") as file:\n    file.write({quoted(body + chr(10))})'
    if form.name not in _SHELLS or words:
        return None
    check = "" if form.name in _SILENT else ", check=True"
    return f'subprocess.run(["{_SHELLS[form.name]}", "-c", {quoted(body)}]{check})'


def _words(text: str) -> list[str]:
    try:
        return shlex.split(without_comment(text))
    except ValueError:
        return text.split()


@rule("DDP314")
def await_outside_function(program: Program) -> Iterator[Finding]:
    """`await x` at module level becomes `asyncio.run(x)`."""
    tree = program.tree
    outer = [node for node in tree.of(cst.Await) if tree.function(node) is None]
    wrapped = 0
    for node in outer:
        if any(other is not node and node in tree.within(other, cst.Await) for other in outer):
            continue
        code, edits = f"asyncio.run({tree.text(node.expression)})", list[Edit]()
        if not _is_coroutine_call(tree, node):
            wrapped += 1
            name = program.name(f"run_async_{wrapped}")
            body = f"async def {name}():\n    return {tree.text(node)}\n"
            code, edits = f"asyncio.run({name}())", [InsertBefore(tree.statement(node), body)]
        said = "await outside a function works in a notebook only; the script runs it with asyncio.run"
        yield Finding(node, said, (*edits, Replace(node, code)))
    for keyword in tree.of(cst.Asynchronous):
        owner = tree.parents[keyword]
        if not isinstance(owner, cst.FunctionDef) and tree.function(owner) is None:
            yield Finding(
                owner,
                "async for and async with outside a function work in a notebook only, so there is no script: move them"
                " into an async function and run it with asyncio.run",
                severity=Severity.ERROR,
            )


def _is_coroutine_call(tree: Tree, node: cst.Await) -> bool:
    """True for `await f(...)` that needs no running loop while its arguments are worked out."""
    call = node.expression
    simple = isinstance(call, cst.Call) and not tree.qualified(call.func).startswith("asyncio.")
    return simple and len(tree.within(node, cst.Await)) == 1


_NAMES = ("get_ipython", "IPython.get_ipython", "IPython.core.getipython.get_ipython")


@rule("DDP315")
def ipython_object(program: Program) -> Iterator[Finding]:
    """`get_ipython()` becomes None; a line that asks it for something gets a `TODO`."""
    tree = program.tree
    for call in tree.of(cst.Call):
        name = tree.qualified(call.func)
        if name not in _NAMES or call.args or program.installs.covers(call):
            continue
        if isinstance(tree.parents[call], (cst.Attribute, cst.Subscript)):
            said = "get_ipython() is None in a script, so this fails: write what it does in Python"
            yield Finding(call, said, (Replace(call, "None"),), todo=True)
        else:
            yield Finding(call, "get_ipython() works in a notebook only; the script has None", (Replace(call, "None"),))


_SAID = "IPython imports from the folder it is in, a script from its own: add sys.path.insert(0, os.getcwd()) below"


@rule("DDP321", Severity.WARNING)
def import_from_changed_folder(program: Program) -> Iterator[Finding]:
    """After `%cd` and `os.chdir`, imports that may be from the folder get a warning."""
    changes = [call for call, form in program.forms_of(Kind.LINE_MAGIC) if form.name in ("cd", "pushd")]
    changes += program.execution.calls("os.chdir")
    for call in changes if "sys.path" not in program.text else ():
        if program.tree.function(call) is None and program.tree.is_live(call) and _imports_below(program, call):
            yield Finding(call, _SAID)


def _imports_below(program: Program, call: cst.CSTNode) -> list[cst.Import | cst.ImportFrom]:
    """The imports below a change of folder of what is no known package."""
    tree, sources = program.tree, [cell.source for cell in program.code_cells]
    lines: list[cst.Import | cst.ImportFrom] = [*tree.live(cst.Import), *tree.live(cst.ImportFrom)]

    def is_known(name: str) -> bool:
        return name in ON_COLAB | ON_INDEX or is_published(name, sources)

    below = (line for line in lines if tree.start(line) > tree.start(call))
    return [line for line in below if not all(map(is_known, packages_of(line)))]
