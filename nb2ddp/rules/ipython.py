"""Rules that turn IPython's syntax into Python: magics, shell commands, `get_ipython`, code that only cells allow."""

from __future__ import annotations

import re
import textwrap
from itertools import count

import libcst as cst

from nb2ddp.facts.commands import (
    is_of_its_shell,
    kills_job,
    never_ends,
    only_shows,
    without_comment,
    without_installs,
    words,
)
from nb2ddp.facts.effects import ENV_MAGICS, FILE_MAGICS, NOTEBOOK_MAGICS, Does
from nb2ddp.facts.environment import assignment, imported_packages
from nb2ddp.facts.execution import Phase
from nb2ddp.facts.logins import variable_of_command
from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import parse, quoted, rerun, trailing_comment, undefined
from nb2ddp.notebook.magics import Kind, Syntax
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, Findings, left_out, rule, todo, warning
from nb2ddp.script.modules import ON_COLAB, ON_INDEX, is_published
from nb2ddp.syntax.edits import AddToSetup, Edit, InsertBefore, Remove, Replace

_QUOTES = "Python before 3.12 rejects this f-string, which contains its own quotes; the script uses other quotes inside"
_NEWER = "this f-string needs Python 3.12 or newer, and so does the script: older versions stop with a SyntaxError"


@rule("DDP007")
def newer_python(program: Program) -> Findings:
    """Quotes in an f-string that need Python 3.12 become other quotes."""
    tree = program.tree
    for string in tree.of(cst.FormattedString):
        fields = [part.expression for part in string.parts if isinstance(part, cst.FormattedStringExpression)]
        text, other = "".join(map(tree.text, fields)), "'" if string.end == '"' else '"'
        if string.end not in text and "\\" not in text:
            continue
        strings = [each for field in fields for each in tree.within(field, cst.SimpleString)]
        inside = [each for each in strings if each.quote == string.end]
        if text.count(string.end) == 2 * len(inside) and other not in text and "\\" not in text:
            yield Finding(string, _QUOTES, *(Replace(each, each.value.replace(string.end, other)) for each in inside))
        else:
            yield warning(string, _NEWER)


_FUTURE = "Python accepts this import only at the top of a file; the script moves it there"


@rule("DDP010", also_alone=True)
def only_in_a_cell(program: Program) -> Findings:
    """`from __future__ import ...` moves to the top of the script."""
    for future, *_ in program.tree.imports("__future__"):
        line = AddToSetup(program.tree.text(future), before_imports=True)
        yield Finding(future, _FUTURE, line, Remove(future))


_IN_PYTHON = "works in a notebook only; the script does the same in Python"
_LEFT_OUT = "works in a notebook only; the script leaves it out"
_UNKNOWN = "works in a notebook only, so the script does not run it: write what it does in Python"
_BELOW = "works in a notebook only; the script keeps the code below it"
_CAUGHT = "holds what %%capture caught; a script prints that at once, so there is nothing to show here"
_NO_CODE = "runs no code; the script keeps it as a comment"
#: Cell magics that run a shell, and those whose body is not code.
_SHELLS = ("bash", "sh")
_TEXTS = frozenset("html HTML javascript js latex markdown svg SVG".split())


@rule("DDP302")
def cell_magic(program: Program) -> Findings:
    """`%%capture` and the like are removed, `%%writefile` and `%%bash` become Python; others become comments."""
    for call, form in program.forms_of(Kind.CELL_MAGIC):
        statement = program.alone(call)
        if statement is None or program.installs.is_install(call):
            continue
        commented = Replace(statement, "\n".join(f"# {line}".rstrip() for line in (form.body or "").split("\n")))
        if form.body is None:
            edit = Remove(statement, comment=trailing_comment(form.text))
            yield Finding(call, f"%%{form.name} {_BELOW}", edit)
            yield from _captured(program, form)
        elif code := _code_of_cell(program, call, form, form.body):
            guards = program.placement.once(statement)
            yield Finding(call, f"%%{form.name} {_IN_PYTHON}", Replace(statement, code), *guards)
        elif form.name in _TEXTS:
            yield Finding(call, f"%%{form} {_NO_CODE}", commented)
        else:
            yield todo(call, f"%%{form} {_UNKNOWN}", commented)


def _captured(program: Program, form: Syntax) -> Findings:
    """Yield findings on uses of the name that `%%capture name` binds: a script captures nothing."""
    tree = program.tree
    names = (word for word in without_comment(form.text).split() if word.isidentifier() and form.name == "capture")
    for use in tree.loads(next(names, "")):
        part, line = tree.parents[use], tree.around(use, cst.Expr)
        problem = f"{use.value} {_CAUGHT}"
        if line is not None and re.match(rf"{use.value}\b|print\(", tree.text(line)):
            yield Finding(use, problem, Remove(line, comments_above=True))
        elif isinstance(part, cst.Attribute):
            yield Finding(use, problem, Replace(part, '""'), severity=Severity.WARNING)


def _code_of_cell(program: Program, call: cst.Call, form: Syntax, body: str) -> str:
    """Return the statement that does what a cell magic does; "" if there is none, or if the magic has options."""
    options = words(without_comment(form.text))
    if form.name in FILE_MAGICS and options:
        mode = "a" if {"-a", "--append"} & set(options) else "w"
        path = parse(options[-1], program.tree.bound_at(call)).expression
        return f'with open({path}, "{mode}", encoding="utf-8") as file:\n    file.write({quoted(body + chr(10))})'
    if form.name in _SHELLS and not options:
        return f'subprocess.run(["{form.name}", "-c", {quoted(body)}], check=True)'
    return ""


#: Magics that control the notebook; timers without Python to run do nothing.
_STEERING = NOTEBOOK_MAGICS.union("time timeit prun memit mprun lprun store pwd".split())


@rule("DDP303")
def line_magic(program: Program) -> Findings:
    """`%env` sets `os.environ`, `%cd` becomes `os.chdir`, `%time f()` becomes `f()`; others and `name?` are removed."""
    for call, form in program.forms_of(Kind.LINE_MAGIC, Kind.HELP, Kind.AUTOCALL):
        if program.installs.is_install(call) or call in program.tokens_to_fill_in:
            continue
        is_alone = program.alone(call) is not None
        code = _code_of_line(program, call, form)
        steers = is_alone and (form.name in _STEERING or form.name in ENV_MAGICS or form.kind is Kind.HELP)
        comment = trailing_comment(form.text or form.source) if is_alone else ""
        shown = f"%{form if not (code or steers) else form.name}" if form.kind is Kind.LINE_MAGIC else form.source
        if code:
            yield Finding(call, f"{shown} {_IN_PYTHON}", Replace(call, f"{code}  {comment}".rstrip()))
        else:
            edit = left_out(program, call, comment)
            yield Finding(call, f"{shown} {_LEFT_OUT if steers else _UNKNOWN}", edit, todo=not steers)


def _code_of_line(program: Program, call: cst.Call, form: Syntax) -> str:
    """Return the Python code for a magic; "" if it only controls or shows the notebook, or if there is none."""
    is_bound = program.tree.bound_at(call)
    if form.name in ENV_MAGICS:
        name, value, _ = assignment(form.text) or ("", "", "")
        shown = "" if program.alone(call) else f'os.environ["{form.text}"]' if form.text else "dict(os.environ)"
        return f'os.environ["{name}"] = {parse(value, is_bound).expression}' if name else shown
    if form.name in ("cd", "pushd"):
        folder = form.text.removeprefix("-q ").strip().strip("'\"") or "~"
        name = folder.strip("{$}")
        path = name if folder != name and is_bound(name) else parse(folder, is_bound).expression
        path = f"os.path.expanduser({path})" if folder.startswith("~") else path
        return "" if folder.startswith("-") else f"os.chdir({path})"
    return "os.getcwd()" if form.name == "pwd" and program.alone(call) is None else ""


@rule("DDP305")
def shell_command(program: Program) -> Findings:
    """`!command` and `%mkdir` become `subprocess.run`, in one process of each machine before training."""
    for call, form in program.forms_of(Kind.SHELL):
        is_login = variable_of_command(form.command) is not None
        if not (program.installs.covers(call) or is_login or kills_job(form.command)):
            yield from _found(program, call, form.command)


def _found(program: Program, call: cst.Call, command: str) -> Findings:
    """Yield findings on a shell command."""
    is_bound, placement = program.tree.bound_at(call), program.placement
    text = rerun(without_installs(command))
    for name in undefined(text, is_bound):
        problem = f"{name!r} is never defined, so the shell gets {{{name}}} as it stands: define it above"
        yield todo(call, problem)
    shown = f"!{textwrap.shorten(text, 60, placeholder='...')}"
    message = f"{shown} works in a notebook only; the script runs it with subprocess"
    statement, parsed = program.alone(call), parse(text, is_bound)
    if statement is None:  # the notebook uses its output
        alone = only_shows(text) or not program.execution.runs(call) or placement.runs_alone(call)
        share = () if alone else placement.shared(call)
        edits = (Replace(call, parsed.lines), *share)
        if alone or share:
            yield Finding(call, message, *edits)
        else:
            yield todo(call, f"{message}, in all processes at once: put it on a line of its own", *edits)
    elif why := _needless(program, call, text):
        edit = Remove(statement, keep_comment=False, comments_above=True)
        yield Finding(call, f"{shown} {why}; the script leaves it out", edit)
    else:
        run = Replace(statement, f"{parsed.run}  {trailing_comment(command)}".rstrip())
        place = placement.on_main_process if only_shows(text) else placement.once
        ends_others = program.execution.does(call) & Does.KILL and program.execution.runs(call, Phase.DURING)
        yield Finding(call, message, run, *(() if ends_others else place(statement)))


def _needless(program: Program, call: cst.Call, text: str) -> str:
    """Return why a script leaves a command out; "" if it does not."""
    if not without_comment(text):
        return "runs nothing"
    if never_ends(text):
        return "runs until a person stops it"
    if is_of_its_shell(text):
        return "changes nothing but its own shell, which ends"
    before = program.training.last is not None and not program.execution.runs(call, Phase.AFTER)
    return "only shows something" if before and only_shows(text) else ""


_AWAIT = "await outside a function works in a notebook only; the script runs it with asyncio.run"
_ASYNC = (
    "async for and async with outside a function work in a notebook only, so there is no script: move them into an"
    " async function and run it with asyncio.run"
)


@rule("DDP314")
def await_outside_function(program: Program) -> Findings:
    """`await x` at module level becomes `asyncio.run(x)`."""
    tree = program.tree
    numbers = count(1)
    for node in tree.of(cst.Await):
        if tree.function(node) is not None or tree.around(node, cst.Await) is not None:
            continue
        call, edits = node.expression, list[Edit]()
        code = f"asyncio.run({tree.text(call)})"
        is_plain = isinstance(call, cst.Call) and not tree.qualified(call.func).startswith("asyncio.")
        if not is_plain or len(tree.within(node, cst.Await)) > 1:  # it needs a running loop
            name = program.name(f"run_async_{next(numbers)}")
            body = f"async def {name}():\n    return {tree.text(node)}\n"
            code, edits = f"asyncio.run({name}())", [InsertBefore(tree.statement(node), body)]
        yield Finding(node, _AWAIT, *edits, Replace(node, code))
    for keyword in tree.of(cst.Asynchronous):
        owner = tree.parents[keyword]
        if not isinstance(owner, cst.FunctionDef) and tree.function(owner) is None:
            yield Finding(owner, _ASYNC, severity=Severity.ERROR)


_NAMES = ("get_ipython", "IPython.get_ipython", "IPython.core.getipython.get_ipython")


@rule("DDP315")
def ipython_object(program: Program) -> Findings:
    """`get_ipython()` becomes None; a line that asks it for something gets a `TODO`."""
    tree = program.tree
    for call in tree.of(cst.Call):
        if tree.qualified(call.func) in _NAMES and not call.args and not program.installs.covers(call):
            asks = isinstance(tree.parents[call], (cst.Attribute, cst.Subscript))
            so = ", so this fails: write what it does in Python" if asks else ""
            yield Finding(call, f"get_ipython() is None in a script{so}", Replace(call, "None"), todo=asks)


_FOLDER = "IPython imports from the folder it is in, a script from its own: add sys.path.insert(0, os.getcwd()) below"


@rule("DDP321", Severity.WARNING)
def import_from_changed_folder(program: Program) -> Findings:
    """After `%cd` and `os.chdir`, imports that may be from the folder get a warning."""
    tree, sources = program.tree, [cell.source for cell in program.code_cells]
    changes = [call for call, form in program.forms_of(Kind.LINE_MAGIC) if form.name in ("cd", "pushd")]
    changes += program.execution.calls("os.chdir")
    unknown = [
        tree.start(line)
        for line, name in imported_packages(tree)
        if name not in ON_COLAB | ON_INDEX and not is_published(name, sources)
    ]
    for call in changes if "sys.path" not in program.text else ():
        if tree.function(call) is None and tree.is_live(call) and any(at > tree.start(call) for at in unknown):
            yield Finding(call, _FOLDER)
