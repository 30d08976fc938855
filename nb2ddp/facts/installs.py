"""The lines of a notebook that install packages, and the code that only these lines need."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence, Set
from functools import cache, cached_property
from typing import TYPE_CHECKING

import libcst as cst

from nb2ddp.facts.commands import is_install
from nb2ddp.facts.effects import Does, Effects, only_looks
from nb2ddp.facts.flow import first_import, reached
from nb2ddp.notebook.magics import Kind
from nb2ddp.syntax.cells import Source
from nb2ddp.syntax.tree import Regions, Tree, grouped, remembered, small_statements

if TYPE_CHECKING:
    from nb2ddp.facts.environment import Setting

#: Calls with which a running notebook loads other packages after an install; a script starts with the right ones.
_RELOADS = re.compile(
    r"sys\.modules\.(pop|clear)|importlib\.(reload|invalidate_caches)|site\.main|pkg_resources\..*reload"
)
_RESTARTS = re.compile(r"os\._exit|IPython\..*\.do_shutdown")
#: Tests that are true only in Colab or, with `not`, false only there; a script does not run in Colab.
_COLAB = re.compile(r"""["'](?:COLAB_|google\.colab)["']\s+(not\s+)?in\b|\b(not\s+)?(?:IN_COLAB|is_colab)\b""")
#: A magic of a package manager, with or without its percent sign.
_MAGIC = re.compile(r"%?(pip|conda|mamba|micromamba|uv)\b")
_LINE = (cst.SimpleStatementLine, cst.SimpleStatementSuite)
_COMPOUND = (cst.If, cst.Try, cst.For, cst.While, cst.With)
#: Returns whether nodes of a class are statements: small ones, or compound ones.
_is_part = cache(lambda kind: issubclass(kind, (cst.BaseSmallStatement, cst.BaseCompoundStatement)))
#: The part of a compound statement that runs before its suites.
_HEADS = {cst.If: "test", cst.While: "test", cst.For: "iter"}
#: A plain print that announces what a removed line did.
_ANNOUNCES = re.compile(r"""print\(\s*(["'])(?:(?!\1).)*\b(?i:install|download|mount)(?:(?!\1).)*\1\s*\)\s*""")


class Installs:
    """The installs of a notebook, and the code that only they need.

    A statement is left out of the script if it installs; if it only binds names, at least one of which an install reads
    and none of which other code reads; or if nothing is left in it. An install stays if other code uses its result.

    Args:
        source: the notebook's code.
        effects: the effects of its calls.
        early: the settings that it makes before it imports Unsloth.
    """

    def __init__(self, source: Source, effects: Effects, early: Sequence[Setting]) -> None:
        self._source = source
        self._effects = effects
        self._tree = source.tree
        #: Statements whose work the setup block does.
        self._moved = frozenset(each.node for each in early if each.moves)

    def is_install(self, call: cst.Call) -> bool:
        """Return whether a command or Python call installs packages, and its result decides nothing else."""
        form = self._source.form(call)
        if form is not None and form.kind is Kind.CELL_MAGIC:
            is_script = form.name in ("bash", "sh", "script", "!", "sx", "system")
            return is_script and is_install(form.body or "")
        is_magic = form is not None and _MAGIC.match(form.source)
        if not is_magic and not is_install(self._effects.command(call) or self._handed(call)):
            return False
        enclosing = self._part(call)
        if isinstance(enclosing, cst.Assign):
            return all(self._only_mentions(use, plain=True, checks=True) for use in self._tree.bound_uses(enclosing))
        return not isinstance(enclosing, (*_COMPOUND, cst.Return)) or self._does_nothing(
            enclosing, binds=False, tells=True, ends=True
        )

    def _handed(self, call: cst.Call) -> str:
        """Return the command that a call passes to a user-defined function that runs it; empty if there is none."""
        tree, function = self._tree, self._tree.definition(call.func)
        calls = tree.within(function, cst.Call) if isinstance(function, cst.FunctionDef) else []
        runs = any(self._effects.of(each) & Does.RUN for each in calls)
        return " ".join(text for each in call.args for text in tree.texts(tree.value(each.value))) if runs else ""

    @cached_property
    def statements(self) -> frozenset[cst.CSTNode]:
        """The statements to leave out of the script."""
        return frozenset(node for node in self._removed if not isinstance(node, cst.ImportAlias))

    @cached_property
    def imports(self) -> dict[cst.Import | cst.ImportFrom, list[cst.ImportAlias]]:
        """The imports of which the script needs only a part, with that part."""
        found = {self._tree.parents[node] for node in self._removed if isinstance(node, cst.ImportAlias)}
        left = self._tree.in_order(found - self._removed)
        return {each: [alias for alias in each.names if alias not in self._removed] for each in left}  # type: ignore

    @cached_property
    def installing(self) -> frozenset[cst.CSTNode]:
        """Those of these statements that install, or make the running notebook load what was installed."""
        tree = self._tree
        calls = [call for call in tree.of(cst.Call) if self.is_install(call)]
        cells = set(map(self._cell, calls))
        reloads = [call for call in tree.of(cst.Call) if _RELOADS.fullmatch(tree.qualified(call.func))]
        purges = [node for node in tree.of(cst.Del) if tree.text(node.target).startswith("sys.modules[")]
        first = first_import(tree)
        again = [node for node in (*reloads, *purges) if self._cell(node) in cells or tree.start(node) < first]
        found = [*map(self._part, [*calls, *filter(self._restarts, tree.of(cst.Call)), *again])]
        return frozenset([*found, *(small for part in found for small in announcements(tree, part))])

    @cached_property
    def cells(self) -> frozenset[int]:
        """The cells in which something installs."""
        return frozenset(self._cell(node) for node in self.installing if self._tree.is_live(node))

    @cached_property
    def emptied(self) -> frozenset[int]:
        """The cells in which only comments remain."""
        return frozenset(cell for cell, lines in self._by_cell.items() if self.statements.issuperset(lines))

    @cached_property
    def _by_cell(self) -> dict[int, list[cst.CSTNode]]:
        """The lines of each cell, without those that stand for cell magics above code: `%%capture`."""
        above = {
            self._tree.statement(call) for call, form in self._source.forms_of(Kind.CELL_MAGIC) if form.body is None
        }
        return grouped((self._cell(line), line) for line in self._tree.module.body if line not in above)

    def covers(self, node: cst.CSTNode) -> bool:
        """Return whether a node is inside one of these statements."""
        return self._tree.start(node) in self._covered

    @cached_property
    def _covered(self) -> Regions:
        return Regions(map(self._tree.span, self.statements))

    def _cell(self, node: cst.CSTNode) -> int:
        return self._source.cell_at(self._tree.start(node)).number

    def _restarts(self, call: cst.Call) -> bool:
        name = self._tree.qualified(call.func)
        ends = name == "os.kill" and "os.getpid()" in self._tree.text(call)
        return ends or bool(_RESTARTS.fullmatch(name)) or self._tree.text(call.func).endswith("kernel.do_shutdown")

    def _part(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the innermost statement around a node: a small one, or a compound one for a node in its head."""
        while not _is_part(type(node)):
            node = self._tree.parents[node]
        return node

    # -- code that only installs need -----------------------------------------------------------------------

    @cached_property
    def _removed(self) -> set[cst.CSTNode]:
        """The nodes to leave out, imported names included: those that only installs need, directly or indirectly.

        Each round puts back, all at once, the nodes that remaining code needs. So the order of the set does not matter,
        and nodes that read each other are left out together.
        """
        removed = set(
            reached(
                [*self.installing, *self._idle, *self._unused],
                lambda node: [*self._mentions(node), *filter(self._may_go, self._around(node))],
            )
        )
        while True:
            stays = removed - self.installing.union(*map(self._mentions, removed))
            back = {node for node in stays if not self._goes(node, removed)}
            if not back:
                return removed
            removed -= back

    def _around(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the statements around a node, and the bindings of the names that it reads with those around them."""
        yield from self._above(node)
        for name in self._names(node):
            for binding in self._tree.bindings(name):
                part = self._part(binding.node)
                yield from self._tree.within(part, cst.ImportAlias) if binding.imported else ()
                yield part
                yield from self._above(part)

    def _above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        return (each for each in self._tree.ancestors(node) if _is_part(type(each)) or type(each) in _LINE)

    def _names(self, node: cst.CSTNode) -> set[str]:
        """Return the names that a node reads, including those that IPython fills in."""
        names = {name.value for name in self._tree.within(node, cst.Name)}
        forms = [form for call in self._tree.within(node, cst.Call) if (form := self._source.form(call)) is not None]
        return names.union(*(re.findall(r"[{$](\w+)", form.text) for form in forms))

    @remembered
    def _may_go(self, node: cst.CSTNode) -> bool:
        """Return whether a node has no known effect, apart from its parts, except to bind names."""
        tree = self._tree
        if type(node) is cst.ImportAlias:
            may = "unsloth" not in tree.text(tree.parents[node])
        elif type(node) in (cst.FunctionDef, *_COMPOUND, *_LINE, cst.Import, cst.ImportFrom):
            return True
        else:
            may = (
                isinstance(node, cst.ClassDef)
                or self._only_binds(node)
                or self._does_nothing(node, binds=False, tells=True, ends=True)
            )
        return may and tree.around(node, cst.Try) is None  # in a `try` it matters whether a line fails

    def _goes(self, node: cst.CSTNode, removed: set[cst.CSTNode]) -> bool:
        """Return whether a node serves only nodes that are left out."""
        if isinstance(node, _LINE):
            return removed.issuperset(small_statements(node))
        if isinstance(node, _COMPOUND):
            return self._is_empty(node, removed)
        if isinstance(node, (cst.Import, cst.ImportFrom)):
            return not isinstance(node.names, cst.ImportStar) and removed.issuperset(node.names)
        if isinstance(node, cst.FunctionDef) and self._only_installs(node, removed):
            return True
        if not (isinstance(node, (cst.FunctionDef, cst.ClassDef, cst.ImportAlias, cst.Pass)) or self._only_binds(node)):
            return False
        is_rest = node in self._unused and removed.issuperset(self._by_cell[self._cell(node)])
        return self._is_dead(node, removed) and (is_rest or node in self._idle or self._serves(node, removed))

    @cached_property
    def _idle(self) -> set[cst.CSTNode]:
        """The unused results in cells that only install and bind names."""
        found: list[cst.CSTNode] = []
        for cell in self.cells:
            lines = [small for line in self._by_cell[cell] for small in small_statements(line)]
            if all(line in self.installing or self._may_go(line) for line in lines):
                found += [line for line in lines if isinstance(line, cst.Assign) and self._tree.within(line, cst.Call)]
        return {line for line in found if not self._users(line)}

    @cached_property
    def _unused(self) -> set[cst.CSTNode]:
        """Each `pass` outside of blocks, and unused imports of the standard library, in cells that install.

        They are left out with all other lines of their cell.
        """
        tree = self._tree
        found: list[cst.CSTNode] = [each for each in tree.of(cst.Pass) if tree.parents[each] in tree.module.body]
        for line in tree.live(cst.Import):
            found += [alias for alias in line.names if alias.evaluated_name.split(".")[0] in sys.stdlib_module_names]
        return {each for each in found if self._cell(each) in self.cells and not self._users(each)}

    def _is_dead(self, node: cst.CSTNode, removed: set[cst.CSTNode]) -> bool:
        """Return whether no remaining code reads what a statement binds, except to report it."""
        return all(self._is_in(user, removed | self._mentions(node)) for user in self._users(node))

    def _serves(self, node: cst.CSTNode, removed: set[cst.CSTNode]) -> bool:
        """Return whether a node that is left out reads what a statement binds."""
        return any(self._is_in(user, removed) for user in self._users(node))

    def _is_in(self, user: cst.CSTNode, removed: set[cst.CSTNode]) -> bool:
        return any(above in removed or above in self._moved for above in self._tree.ancestors(user))

    @remembered
    def _users(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """Return the nodes outside a statement, IPython forms included, that may read what it binds."""
        tree = self._tree
        start, end = tree.span(node)
        users = [user for name in tree.binds(node) for user in self._readers(name, node)]
        if isinstance(node, cst.For):  # a new binding of the loop variable hides this one
            counting = {name.value for name in tree.within(node.target, cst.Name)}
            users = [
                user for user in users if getattr(user, "value", "") not in counting or tree.definition(user) is node
            ]
        return [user for user in users if not start <= tree.start(user) < end]

    def _readers(self, name: str, node: cst.CSTNode) -> list[cst.CSTNode]:
        """Return the nodes, IPython forms included, that may read a name that a statement binds."""
        tree, end, filled = self._tree, self._tree.span(node)[1], re.compile(rf"[{{$]{name}\b")
        later = (each.offset for each in tree.bindings(name) if each.offset >= end and tree.is_top_level(each.node))
        last = next(later, len(tree.source))
        forms = self._source.forms_of(Kind.SHELL, Kind.LINE_MAGIC)
        calls = [call for call, form in forms if filled.search(form.text) and tree.start(call) <= last]
        return [*tree.readers(name, node), *calls]

    # -- code that only reports -----------------------------------------------------------------------------

    @remembered
    def _mentions(self, node: cst.CSTNode) -> set[cst.CSTNode]:
        """Return the statements that only report what a statement binds, or add to it.

        They test it and print, purge modules, or check whether an install succeeded. A plain print stays.
        """
        users, checks = self._users(node), node in self.installing
        if isinstance(node, cst.FunctionDef):  # it may become empty
            installs = any(node in self._tree.ancestors(each) for each in self.installing)
            calls = [self._tree.call_of(user) for user in users] if installs else []
            return {self._part(call) for call in calls if call and self._source.alone(call)}
        if isinstance(node, (cst.ImportAlias, cst.Import, cst.ImportFrom, cst.ClassDef)):
            return set()
        plain = checks or "sys.modules" in self._tree.text(node)
        return {self._part(user) for user in users if self._only_mentions(user, plain=plain, checks=checks)}

    def _only_mentions(self, user: cst.CSTNode, *, plain: bool, checks: bool) -> bool:
        owner, part = self._tree.parents[user], self._part(user)
        call = self._tree.call_of(owner) if isinstance(owner, cst.Attribute) else None
        if call is not None and self._source.alone(call) is part and self._effects.of(call) is Does.CHANGE:
            return all(self._looks(each.value) for each in call.args)  # `packages.append("trl")`
        return (plain or isinstance(part, cst.If)) and self._does_nothing(part, binds=False, tells=True, ends=checks)

    def _does_nothing(
        self,
        node: cst.CSTNode,
        removed: Set[cst.CSTNode] = frozenset(),
        *,
        binds: bool,
        tells: bool,
        ends: bool = False,
    ) -> bool:
        """Return whether a statement is left out, or has no effects but those allowed.

        Args:
            node: the statement.
            removed: the nodes to leave out.
            binds: whether it may bind plain names.
            tells: whether it may print.
            ends: whether it may end the notebook.
        """
        inner = _lines(node) if isinstance(node, _COMPOUND) else small_statements(node)
        match node:
            case _ if node in removed or isinstance(node, cst.Pass):
                return True
            case cst.BaseCompoundStatement() | cst.SimpleStatementLine() | cst.SimpleStatementSuite():
                plain = bool(inner) and all(map(self._looks, _tests(node)))
                return plain and all(
                    self._does_nothing(each, removed, binds=binds, tells=tells, ends=ends) for each in inner
                )
            case cst.Raise() | cst.Assert():
                return ends
            case cst.Expr(value=cst.Call() as call) if not self._looks(call):
                stops = ends and self._tree.qualified(call.func) in ("exit", "quit", "sys.exit")
                plain = all(self._looks(each.value) for each in call.args)
                return tells and plain and (stops or self._effects.of(call) is Does.TELL)
            case cst.Expr():
                return tells and self._looks(node.value)
            case cst.Import() | cst.ImportFrom():
                return binds and not isinstance(node.names, cst.ImportStar)
        return binds and self._only_binds(node)

    def _looks(self, node: cst.BaseExpression) -> bool:
        return only_looks(self._effects, node)

    # -- what is left empty ---------------------------------------------------------------------------------

    def _only_binds(self, node: cst.CSTNode) -> bool:
        """Return whether a statement binds plain names and has no other effect."""
        if isinstance(node, cst.Assert):  # `assert (found := ...)`
            return bool(self._tree.binds(node)) and all(map(self._looks, self._tree.within(node, cst.Call)))
        if not isinstance(node, (cst.Assign, cst.AnnAssign, cst.AugAssign)):
            return False
        parts = (cst.Attribute, cst.Subscript)
        plain = not any(isinstance(target, parts) for target in self._tree.targets(node))
        return plain and (node.value is None or self._looks(node.value))

    def _is_empty(self, node: cst.CSTNode, removed: set[cst.CSTNode]) -> bool:
        """Return whether only code that serves installs remains in a compound statement."""
        tree = self._tree
        if tree.scope(node) is not tree.module and tree.binds(node):
            return False
        lines = _lines(node)
        if isinstance(node, cst.Try) and removed.issuperset(node.body.body):
            lines = [line for line in lines if tree.around(line, cst.ExceptHandler) is None]  # nothing can fail there
        serves = self._serves(node, removed)
        inside = reached(lines, _lines)
        return (
            (serves or not removed.isdisjoint(inside))
            and all(self._looks(test) for test in _tests(node))
            and all(self._does_nothing(line, removed, binds=True, tells=serves) for line in lines)
            and self._is_dead(node, removed)
        )

    def _only_installs(self, function: cst.FunctionDef, removed: set[cst.CSTNode]) -> bool:
        """Return whether only reports remain in a function, and each use of it is a call in a separate statement."""
        lines = list(function.body.body)
        if not any(line in removed for line in lines) or self._tree.scope(function) is not self._tree.module:
            return False
        calls = [self._tree.call_of(use) for use in self._tree.loads(function.name.value)]
        alone = all(call and self._source.alone(call) for call in calls)
        return alone and all(self._does_nothing(line, removed, binds=False, tells=True) for line in lines)


def announcements(tree: Tree, node: cst.CSTNode) -> list[cst.BaseSmallStatement]:
    """Return the prints directly above and below a statement that announce an install, a download or a mount."""
    line = tree.statement(node)
    block = list(getattr(tree.parents[line], "body", ()))
    place = block.index(line) if line in block else len(block)
    beside = [*block[max(place - 1, 0) : place], *block[place + 1 : place + 2]]
    return [small for each in beside if _ANNOUNCES.fullmatch(tree.text(each)) for small in small_statements(each)]


def colab_branch(tree: Tree, statement: cst.If) -> cst.CSTNode | None:
    """Return the branch of a test that only Colab takes; None for any other test."""
    asked = _COLAB.search(tree.text(statement.test)) or _COLAB.search(tree.text(tree.value(statement.test)))
    if asked is None:
        return None
    return statement.orelse if any(asked.groups()) else statement.body


def _parts(statement: cst.CSTNode) -> list[cst.CSTNode]:
    """Return a compound statement with its `elif`, `else`, `except` and `finally`."""

    def further(part: cst.CSTNode) -> Iterator[cst.CSTNode]:
        parts = (*getattr(part, "handlers", ()), getattr(part, "orelse", None), getattr(part, "finalbody", None))
        return filter(None, parts)

    return reached([statement] if isinstance(statement, _COMPOUND) else [], further)


def _lines(statement: cst.CSTNode) -> list[cst.CSTNode]:
    """Return the lines in all suites of a compound statement; a suite on the line of its colon is one line."""
    suites = [part.body for part in _parts(statement)]  # type: ignore[attr-defined]
    return [line for suite in suites for line in (suite.body if isinstance(suite, cst.IndentedBlock) else [suite])]


def _tests(statement: cst.CSTNode) -> list[cst.BaseExpression]:
    """Return the expressions that decide which lines of a compound statement run, and how often."""
    return [getattr(part, head) for part in _parts(statement) if (head := _HEADS.get(type(part)))]
