"""DDP310: Colab's and Kaggle's services are removed; their secrets are read from the environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import libcst as cst

from nb2ddp.facts.effects import FILE_MAGICS
from nb2ddp.facts.hosted import HOSTED, SECRET, UPLOAD, HostedPath, hosted_name
from nb2ddp.facts.installs import announcements
from nb2ddp.facts.needs import secret_variable
from nb2ddp.facts.program import Program
from nb2ddp.notebook.magics import Kind
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import Edit, Remove, Replace
from nb2ddp.syntax.environ import sets_only
from nb2ddp.syntax.tree import Statement, Tree, small_statements

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
