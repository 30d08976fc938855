"""DDP310: Colab's and Kaggle's services are removed; their secrets are read from the environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import libcst as cst

from nb2ddp.facts.effects import FILE_MAGICS
from nb2ddp.facts.hosted import HOSTED, SECRET, UPLOAD, HostedPath, hosted_name
from nb2ddp.facts.installs import announcements, colab_branch
from nb2ddp.facts.needs import secret_variable
from nb2ddp.facts.program import Program
from nb2ddp.notebook.magics import Kind
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import Edit, Handle, Remove, Replace
from nb2ddp.syntax.environ import sets_only
from nb2ddp.syntax.tree import Statement, Tree, small_statements

#: What a handler may be for that a missing package comes to.
_CATCHES = frozenset({"", "ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_VALUE = "{}(...) works on Colab or Kaggle only, so its value is None in the script: write the value{}"
_THEIRS = "is a path that only Colab or Kaggle has: name one on your machine"
_SEVERAL = "are paths that only Colab or Kaggle has: name those on your machine"
_UPLOADS = "uploads files into the notebook's folder; the script leaves it out: copy them into the job's folder"
_SERVICE = "works on Colab or Kaggle only; the script leaves it out"
_FOR_SHELL = "only serves `!` on Colab; the script leaves it out"
_WRITES = "writes to {}, which only Colab or Kaggle has: name a folder on your machine"
_UNMOUNTED = "writes to Colab's Drive, which no job mounts: mount it before the job, or name a folder on your machine"


@rule("DDP310")
def hosted_notebook_service(program: Program) -> Iterator[Finding]:
    tree, imports, handled = program.tree, [*_imports(program)], set[cst.CSTNode]()
    handles = [edit for each in imports for edit in each.edits if isinstance(edit, Handle)]
    tried = {node: edit for edit in handles for node in _dead(tree, edit)}
    for call in tree.of(cst.Call):
        name = hosted_name(tree, call)
        if name is None or not handled.isdisjoint(tree.ancestors(call)) or program.installs.covers(call):
            continue
        statement, gone = program.alone(call), next(filter(tried.get, tree.ancestors(call)), None)
        if gone is not None:
            if name == UPLOAD:
                yield Finding(call, f"{name}() {_UPLOADS}", (tried[gone],), severity=Severity.WARNING)
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
    yield from imports
    yield from _encoding(program)
    yield from _paths(program)


def _encoding(program: Program) -> Iterator[Finding]:
    """What has `!` work on Colab after a library set the locale: `locale.getpreferredencoding = lambda: "UTF-8"`."""
    tree = program.tree
    setting = [line for line in tree.setting("getpreferredencoding") if _says_utf8(tree, line.value)]
    lines = [line for line in setting if tree.qualified(line.targets[0].target) == "locale.getpreferredencoding"]
    gone = [*lines, *(made for line in lines if (made := tree.definition(line.value)) is not None)]
    if not lines or any(not _is_within(tree, use, gone) for use in tree.attributes("getpreferredencoding")):
        return
    for node in gone:
        edit = Remove(node, keep_comment=False, comments_above=True)  # type: ignore[arg-type]
        yield Finding(node, f"locale.getpreferredencoding {_FOR_SHELL}", (edit,))
    if all(_is_within(tree, use, gone) for use in tree.loads("locale")):
        for statement, _, kept in tree.imports("locale"):
            yield Finding(
                statement, f"the import {_FOR_SHELL}", (Replace(statement, kept) if kept else Remove(statement),)
            )


def _says_utf8(tree: Tree, value: cst.BaseExpression) -> bool:
    """True for a function, used here alone, that gives a text."""
    made = tree.definition(value)
    if isinstance(value, cst.Lambda):
        return isinstance(tree.literal(value.body), str)
    return isinstance(made, cst.FunctionDef) and tree.named(made) == [value]


def _is_within(tree: Tree, node: cst.CSTNode, others: Iterable[cst.CSTNode]) -> bool:
    return any(other in others for other in tree.ancestors(node))


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


def _is_for_colab(tree: Tree, node: cst.CSTNode) -> bool:
    """True below a test whether this is Colab, which the script answers with no."""
    around = [*tree.ancestors(node)]
    return any(colab_branch(tree, above) in around for above in around)


def _imports(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for statement, module, kept in tree.imports(*HOSTED):
        if program.installs.covers(statement):
            continue
        edit: Edit = Replace(statement, kept) if kept else Remove(statement, keep_comment=False, comments_above=True)
        edits = () if _is_for_colab(tree, statement) else tuple(_handled(tree, statement, kept))
        said = f"{module} works on Colab or Kaggle only; the script does without it"
        yield Finding(statement, said, edits or (edit,))


def _handled(tree: Tree, statement: cst.Import | cst.ImportFrom, kept: str) -> Iterator[Edit]:
    """Put what handles a failed import in the place of the `try` whose line it is; what only tells the error goes."""
    line, tried = tree.parents[statement], tree.around(statement, cst.Try)
    if tried is None or line not in (tried.body, *tried.body.body) or small_statements(line)[0] is not statement:
        return
    handler = next((each for each in tried.handlers if not _CATCHES.isdisjoint(_caught(tree, each))), None)
    if handler is None or _gives_secrets(tree, tried, handler) or _raises(tree, handler):
        return
    error, lines = tree.text(handler.name.name) if handler.name is not None else "", handler.body.body
    naming = [each for each in lines if error and error in map(tree.text, tree.within(each, cst.Name))]
    told = [each for each in naming if re.fullmatch(r"(?s)print\(.*\)", tree.text(each))]
    bound = [f'{error} = ImportError("not a hosted notebook")'] if told != naming else []
    yield Handle(line, handler, "\n".join(filter(None, [kept, *bound])))
    idle = [each for each in lines if tree.text(each) == "pass" or (each in told and not bound)]
    yield from (Remove(each, keep_comment=False) for each in idle)  # type: ignore[arg-type]


def _dead(tree: Tree, handle: Handle) -> Iterator[cst.CSTNode]:
    """What never runs of a `try` in whose place one of its handlers stands."""
    tried = cst.ensure_type(tree.parents[handle.handler], cst.Try)
    yield from (line for line in tried.body.body if tree.start(line) >= tree.start(handle.line))
    yield from (each for each in (*tried.handlers, tried.orelse) if each is not None and each is not handle.handler)


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
