"""Which statements of a notebook only serve to install packages."""

from __future__ import annotations

import bisect
import re
from functools import cached_property

import libcst as cst

from nb2ddp.facts.loading import is_load
from nb2ddp.facts.shell import is_install
from nb2ddp.notebook.magics import Kind
from nb2ddp.syntax.cells import Source
from nb2ddp.syntax.tree import Tree, small_statements

_INSTALL_MAGICS = frozenset({"pip", "conda", "mamba", "micromamba", "uv"})
#: Tests that are true in Colab alone, or false there alone; a script does not run in Colab.
_COLAB = re.compile(r"""["']COLAB_["']\s+in\b|["']google\.colab["']\s+in\b|\b(IN_COLAB|is_colab)\b""")
_NOT_COLAB = re.compile(
    r"""["']COLAB_["']\s+not\s+in\b|["']google\.colab["']\s+not\s+in\b|\bnot\s+(IN_COLAB|is_colab)\b"""
)
#: Calls without an effect beyond their value, besides those of a class's or module's own name.
_READING = re.compile(
    r"(re|importlib|platform|sys|shutil\.which|torch|numpy|packaging|os\.environ\.(get|keys)|os\.getenv|os\.path"
    r"|json\.loads?|urllib\.request\.(urlopen|Request)|requests\.get"
    r"|subprocess\.(check_output|getoutput)|str|int|float|bool|len|tuple|list|dict|set|sorted|next|any|all|min|max|map"
    r"|zip|filter|range|enumerate|isinstance|hasattr|getattr|print|type|repr)(\.\w+)*"
)

_READING_METHODS = frozenset(
    "count decode encode endswith find findall format get group groupdict groups index items join keys lower lstrip"
    " match partition read removeprefix removesuffix replace rsplit rstrip search split splitlines startswith strip"
    " sub title upper values version".split()
)


class Installs:
    """The installs of a notebook, and what nothing but them needs."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def is_install(self, call: cst.Call) -> bool:
        """True for an IPython form or a Python call that installs packages."""
        return _installs(self._source, call)

    @cached_property
    def statements(self) -> frozenset[cst.CSTNode]:
        """Statements to leave out of the script: the installs, and in their cells what nothing else needs."""
        return frozenset(_removed(self._source))

    def covers(self, node: cst.CSTNode) -> bool:
        """True for a node inside one of these statements."""
        start = self._source.tree.start(node)
        at = bisect.bisect_right(self._spans, start, key=lambda span: span[0]) - 1
        return at >= 0 and start < self._spans[at][1]

    @cached_property
    def _spans(self) -> list[tuple[int, int]]:
        """Where these statements stand, the outermost of those inside one another."""
        found: list[tuple[int, int]] = []
        for start, end in sorted(map(self._source.tree.span, self.statements), key=lambda span: (span[0], -span[1])):
            if not found or start >= found[-1][1]:
                found.append((start, end))
        return found


def _removed(source: Source) -> set[cst.CSTNode]:
    tree = source.tree
    calls = [call for call in tree.of(cst.Call) if _installs(source, call)]
    cells = {source.cell_at(tree.start(call)).number for call in calls if tree.is_live(call)}
    removed: set[cst.CSTNode] = {
        owner for call in calls if isinstance(owner := tree.parents[call], cst.Expr) or (owner := tree.statement(call))
    }
    busy = {source.cell_at(tree.start(call)).number for call in tree.of(cst.Call) if _is_work(tree, call)}
    candidates = [
        statement
        for statement in tree.module.body
        if (cell := source.cell_at(tree.start(statement)).number) in cells
        and (cell not in busy or (isinstance(statement, cst.If) and _local_branch(source, statement)))
    ]
    changed = True
    while changed:
        before = len(removed)
        for statement in reversed(candidates):
            _visit(source, statement, removed)
        changed = len(removed) > before
    return removed


def _is_work(tree: Tree, call: cst.Call) -> bool:
    """True for what no cell does that is there to install packages: it loads a model, or trains."""
    return is_load(tree, call) or (isinstance(call.func, cst.Attribute) and call.func.attr.value == "train")


def _visit(source: Source, statement: cst.CSTNode, removed: set[cst.CSTNode]) -> None:
    """Mark a statement, or the parts of it, that nothing outside the removed ones needs."""
    if statement in removed:
        return
    if isinstance(statement, (cst.SimpleStatementLine, cst.SimpleStatementSuite)):
        for small in reversed(small_statements(statement)):
            if small not in removed and _is_idle(source, small, removed):
                removed.add(small)
        if all(small in removed for small in small_statements(statement)):
            removed.add(statement)
        return
    if isinstance(statement, cst.If):
        branch = _local_branch(source, statement)
        if branch is not None:
            taken, dropped = branch
            if dropped is not None and not isinstance(dropped, cst.If):
                _drop(dropped, removed)
            if taken is None or _all_idle(source, taken, removed):
                removed.add(statement)
            return
    bodies = _bodies(statement)
    if bodies is None:
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)) and not _is_used(
            source, statement.name.value, removed
        ):
            removed.add(statement)
        return
    if isinstance(statement, cst.Try):
        handled = [_all_idle(source, body, removed) for body in bodies[1:]]
        if not all(handled):
            return  # what is tried decides whether they run
    idle = [_all_idle(source, body, removed) for body in bodies]  # each one, for what it marks
    if all(idle):
        removed.add(statement)


def _drop(node: cst.CSTNode, removed: set[cst.CSTNode]) -> None:
    body = getattr(node, "body", None)
    if isinstance(body, cst.IndentedBlock):
        removed.update(body.body)


def _all_idle(source: Source, body: cst.CSTNode, removed: set[cst.CSTNode]) -> bool:
    if isinstance(body, cst.SimpleStatementSuite):
        _visit(source, body, removed)
        return body in removed
    statements = cst.ensure_type(body, cst.IndentedBlock).body
    for statement in reversed(statements):
        _visit(source, statement, removed)
    return all(statement in removed for statement in statements)


def _bodies(statement: cst.CSTNode) -> list[cst.CSTNode] | None:
    """The suites of a compound statement whose own line has no effect; None for any other."""
    if isinstance(statement, cst.If):
        rest = statement.orelse
        if rest is None:
            return [statement.body]
        return [statement.body, *(_bodies(rest) or [])] if isinstance(rest, cst.If) else [statement.body, rest.body]
    if isinstance(statement, cst.Try):
        suites: list[cst.CSTNode] = [statement.body, *(handler.body for handler in statement.handlers)]
        suites += [part.body for part in (statement.orelse, statement.finalbody) if part is not None]
        return suites
    if isinstance(statement, (cst.For, cst.While)):
        return [statement.body]
    return None


def is_colab(test: str) -> bool | None:
    """What a test for Colab gives on another machine; None for any other test."""
    return True if _NOT_COLAB.search(test) else False if _COLAB.search(test) else None


def _local_branch(source: Source, statement: cst.If) -> tuple[cst.CSTNode | None, cst.CSTNode | None] | None:
    """The suite that runs outside Colab and the part that does not, where the test asks for Colab alone."""
    test = source.tree.text(statement.test)
    rest = statement.orelse
    if " or " in test or " and " in test:
        return None
    if _NOT_COLAB.search(test):
        return statement.body, rest
    if _COLAB.search(test):
        return (rest.body if isinstance(rest, cst.Else) else None), statement
    return None


def _is_idle(source: Source, statement: cst.BaseSmallStatement, removed: set[cst.CSTNode]) -> bool:
    """True for a statement whose only effect is to bind names that nothing else needs."""
    tree = source.tree
    if isinstance(statement, cst.Pass):
        return True
    if isinstance(statement, cst.Assert):
        return _is_reading(source, statement.test)
    if isinstance(statement, cst.Expr):
        return isinstance(statement.value, cst.BaseString) or (
            isinstance(statement.value, cst.Call)
            and tree.qualified(statement.value.func) == "print"
            and _is_reading(source, statement.value)
        )
    if isinstance(statement, (cst.Import, cst.ImportFrom)):
        if isinstance(statement.names, cst.ImportStar):
            return False
        names = [(alias.evaluated_alias or alias.evaluated_name.split(".")[0]) for alias in statement.names]
        heavy = any(alias.evaluated_name.startswith("unsloth") for alias in statement.names)
        return not heavy and not any(_is_used(source, name, removed) for name in names)
    if isinstance(statement, cst.Assign):
        targets = [target.target for target in statement.targets]
        bound = _plain_names(targets)
        return (
            bound is not None
            and _is_reading(source, statement.value)
            and not any(_is_used(source, name, removed) for name in bound)
        )
    return False


def _plain_names(targets: list[cst.BaseAssignTargetExpression]) -> list[str] | None:
    names: list[str] = []
    for target in targets:
        if isinstance(target, cst.Name):
            names.append(target.value)
        elif isinstance(target, (cst.Tuple, cst.List)) and all(isinstance(e.value, cst.Name) for e in target.elements):
            names += [cst.ensure_type(e.value, cst.Name).value for e in target.elements]
        else:
            return None
    return names


def _is_reading(source: Source, node: cst.CSTNode) -> bool:
    """True for an expression that calls nothing with an effect, as far as its names tell."""
    return all(_only_reads(source, call, ()) for call in source.tree.within(node, cst.Call))


def _only_reads(source: Source, call: cst.Call, inside: tuple[cst.CSTNode, ...]) -> bool:
    """True for a call without an effect: one that is known, or of a function of the notebook that makes only such."""
    tree = source.tree
    name = tree.qualified(call.func)
    if source.form(call) is not None:
        return False
    if _READING.fullmatch(name) or "subprocess.run" in name:
        return True
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value in _READING_METHODS
    binding = tree.binding(call.func) if isinstance(call.func, cst.Name) else None
    made = (binding.value or binding.node) if binding is not None else None
    if isinstance(made, cst.Param):
        return True  # given where the function is called
    if not isinstance(made, (cst.FunctionDef, cst.Lambda)) or made in inside:
        return False
    return all(_only_reads(source, each, (*inside, made)) for each in tree.within(made, cst.Call))


def _is_used(source: Source, name: str, removed: set[cst.CSTNode]) -> bool:
    """True where code that stays reads a name."""
    tree = source.tree
    return any(not any(a in removed for a in (use, *tree.ancestors(use))) for use in tree.loads(name)) or any(
        "{" + name in form.text or "$" + name in form.text
        for call, form in source.forms_of(Kind.SHELL, Kind.LINE_MAGIC)
        if not any(a in removed for a in tree.ancestors(call))
    )


def _installs(source: Source, call: cst.Call) -> bool:
    """True for an IPython form or a Python call that installs packages."""
    form = source.form(call)
    if form is not None:
        if form.kind is Kind.SHELL:
            return is_install(form.text)
        if form.kind is Kind.LINE_MAGIC:
            return form.name in _INSTALL_MAGICS
        if form.kind is Kind.CELL_MAGIC and form.body is not None and form.name in ("bash", "sh", "script"):
            lines = [line for line in _joined(form.body) if line and not line.startswith(("#", "set ", "echo "))]
            return bool(lines) and all(is_install(line) for line in lines)
        return False
    tree = source.tree
    name = tree.qualified(call.func)
    if name in ("os.system", "subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.Popen"):
        words = " ".join(
            str(string.evaluated_value)
            for string in tree.of(cst.SimpleString)
            if tree.start(call) <= tree.start(string) < tree.span(call)[1]
        )
        return is_install(words.removeprefix("-m "))
    return False


def _joined(body: str) -> list[str]:
    return [line.strip() for line in body.replace("\\\n", " ").split("\n")]
