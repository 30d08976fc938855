"""Which statements of a notebook only serve to install packages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

import libcst as cst

from nb2ddp.facts.effects import Does, Effects
from nb2ddp.facts.environment import Setting
from nb2ddp.facts.looking import only_looks
from nb2ddp.facts.shell import is_install, is_install_script
from nb2ddp.facts.training import Training
from nb2ddp.notebook.magics import Kind
from nb2ddp.syntax.cells import Source
from nb2ddp.syntax.tree import Tree, small_statements
from nb2ddp.syntax.walk import Regions

_INSTALL_MAGICS = frozenset({"pip", "conda", "mamba", "micromamba", "uv"})
#: What makes a running notebook take up other packages: a script starts with the right ones.
_RELOADS = re.compile(
    r"sys\.modules\.(pop|clear)|importlib\.(reload|invalidate_caches)|os\._exit|IPython\..*\.do_shutdown"
    r"|site\.main|pkg_resources\..*reload"
)
#: Tests that are true in Colab alone or, with a `not`, false there alone; a script does not run in Colab.
_COLAB = re.compile(r"""["'](?:COLAB_|google\.colab)["']\s+(not\s+)?in\b|\b(not\s+)?(?:IN_COLAB|is_colab)\b""")
_BODY = (cst.SimpleStatementLine, cst.SimpleStatementSuite)


class Installs:
    """The installs of a notebook, and what nothing but them needs.

    Args:
        source: the notebook's code.
        training: where it trains.
        effects: what its calls do.
        early: what it sets before it imports Unsloth.
    """

    def __init__(self, source: Source, training: Training, effects: Effects, early: Sequence[Setting]) -> None:
        self._source = source
        self._effects = effects
        self._tree = source.tree
        self._training = training
        #: Statements whose work the setup block does.
        self._moved = frozenset(each.node for each in early if each.moves)
        self._dropped = set[cst.CSTNode]()  # lines for Colab alone, which go whatever they do

    def is_install(self, call: cst.Call) -> bool:
        """True for an IPython form or a Python call that installs packages, and whose answer nothing asks for."""
        form = self._source.form(call)
        if form is not None and form.kind is Kind.LINE_MAGIC:
            return form.name in _INSTALL_MAGICS
        if form is not None and form.kind is Kind.CELL_MAGIC:
            is_script = form.name in ("bash", "sh", "script", "!", "sx", "system")
            return is_script and is_install_script(form.body or "")
        if not is_install(self._effects.command(call)):
            return False
        kept = self._tree.around(call, cst.Assign)
        return kept is None or not self._tree.bound_uses(kept)

    @cached_property
    def statements(self) -> frozenset[cst.CSTNode]:
        """Statements to leave out of the script: the installs, and in their cells what nothing else needs."""
        return frozenset(self._certain | self._unneeded)

    @cached_property
    def cells(self) -> frozenset[int]:
        """The cells of which nothing is left but comments."""
        lines = self._tree.module.body
        left = [line for line in lines if line not in self.statements and not self._is_capture(line)]
        return frozenset(self._cells - {self._source.cell_at(self._tree.start(line)).number for line in left})

    def _is_capture(self, line: cst.CSTNode) -> bool:
        """True for the line that stands for a `%%capture` or the like above code."""
        smalls = small_statements(line)
        form = self._source.form(smalls[0].value) if len(smalls) == 1 and isinstance(smalls[0], cst.Expr) else None
        return form is not None and form.kind is Kind.CELL_MAGIC and form.body is None

    def is_install_cell(self, number: int) -> bool:
        """True for a cell that does nothing but install, look, and set up what stays."""
        return number in self._cells - self._working

    def covers(self, node: cst.CSTNode) -> bool:
        """True for a node inside one of these statements."""
        return self._tree.start(node) in self._covered

    @cached_property
    def _covered(self) -> Regions:
        return Regions(map(self._tree.span, self.statements))

    # -- what installs --------------------------------------------------------------------------------------

    @cached_property
    def _certain(self) -> set[cst.CSTNode]:
        """Statements that install, or make the running notebook take up what was installed."""
        tree = self._tree
        calls = [call for call in tree.of(cst.Call) if self.is_install(call) or self._reloads(call)]
        found: set[cst.CSTNode] = set()
        for call in calls:
            owner = tree.parents[call]
            found.add(owner if isinstance(owner, cst.Expr) else tree.statement(call))
        found.update(node for node in tree.of(cst.Del) if tree.text(node.target).startswith("sys.modules["))
        for line in [tree.parents[node] for node in found]:
            if isinstance(line, _BODY) and all(small in found for small in small_statements(line)):
                found.add(line)
        return found

    def _reloads(self, call: cst.Call) -> bool:
        name = self._tree.qualified(call.func)
        restarts = name == "os.kill" and "os.getpid()" in self._tree.text(call)
        return restarts or bool(_RELOADS.fullmatch(name)) or self._tree.text(call.func).endswith("kernel.do_shutdown")

    # -- what nothing else needs ----------------------------------------------------------------------------

    @cached_property
    def _unneeded(self) -> set[cst.CSTNode]:
        """What can go with the installs: found by putting back, again and again, what the rest of the code reads."""
        gone: dict[cst.CSTNode, None] = {}  # in the notebook's order, the parts of each statement before it
        for statement in self._tree.module.body:
            if self._source.cell_at(self._tree.start(statement)).number in self._cells:
                self._collect(statement, gone)
        found: list[cst.CSTNode] | None = None
        while found != []:
            found = []
            for node in list(gone):  # the first import of a name stays, the second need not
                if self._is_needed(node, gone):
                    del gone[node]
                    found.append(node)
        return set(gone)

    @cached_property
    def imports(self) -> dict[cst.Import, list[cst.ImportAlias]]:
        """Imports of install cells that the script needs in part, with that part."""
        found: dict[cst.Import, list[cst.ImportAlias]] = {}
        for node in self._tree.of(cst.Import):
            is_install = self.is_install_cell(self._source.cell_at(self._tree.start(node)).number)
            if is_install and not self.covers(node) and self._tree.around(node, cst.Try) is None:
                kept = [alias for alias in node.names if self._is_read(_imported(alias), alias, self.statements)]
                if 0 < len(kept) < len(node.names):
                    found[node] = kept
        return found

    @cached_property
    def _cells(self) -> set[int]:
        tree = self._tree
        return {self._source.cell_at(tree.start(node)).number for node in self._certain if tree.is_live(node)}

    @cached_property
    def _working(self) -> set[int]:
        """Cells that do more than install and look, and those after training: these lose their installs alone."""
        tree = self._tree
        end = self._training.end if self._training.last is not None else len(tree.source)
        lines = [line for line in tree.module.body if tree.start(line) >= end]
        nodes = [*lines, *(call for call in tree.of(cst.Call) if self._works(call))]
        return {self._source.cell_at(tree.start(node)).number for node in nodes}

    def _works(self, call: cst.Call) -> bool:
        """True for what no install cell does: a call that may act on more than files, packages and settings."""
        tree = self._tree
        name = tree.qualified(call.func)
        return not (
            self._source.form(call) is not None
            or tree.function(call) is not None  # it counts where the function is called
            or not self._certain.isdisjoint((call, *tree.ancestors(call)))
            or self._effects.of(call) & (Does.ACT | Does.TELL)
            or name.startswith(("sys.path.", "os.", "site.", "warnings.", "logging."))
            or only_looks(self._effects, call)
        )

    def _collect(self, statement: cst.CSTNode, gone: dict[cst.CSTNode, None]) -> bool:
        """Add a statement, or those in it, that do nothing but look and bind names; True where that is all of it."""
        if statement in self._certain:
            return True
        if isinstance(statement, _BODY):
            smalls = [small for small in small_statements(statement) if small not in self._certain]
            idle = [small for small in smalls if self._is_idle(small)]
            whole = len(idle) == len(smalls)
            gone.update(dict.fromkeys([*idle, statement] if whole else idle))
            return whole
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            gone[statement] = None
            return True
        if not isinstance(statement, (cst.If, cst.Try, cst.For)):
            return False
        tree = self._tree
        head = {cst.If: "test", cst.For: "iter"}.get(type(statement))
        whole = head is None or only_looks(self._effects, getattr(statement, head))
        for suite in _suites(statement):
            lines = _lines(suite)
            if colab_branch(tree, statement) in (suite, *tree.ancestors(suite)):
                gone.update(dict.fromkeys(lines))
                self._dropped.update(lines)
            else:
                done = [self._collect(line, gone) for line in lines]
                whole = whole and all(done)
        if whole:
            gone[statement] = None
        return whole

    def _is_idle(self, statement: cst.BaseSmallStatement) -> bool:
        """True for a statement that only binds names, tells something, or checks what is installed."""
        tree = self._tree
        if isinstance(statement, cst.Expr):
            value = statement.value
            if isinstance(value, cst.Call) and tree.qualified(value.func) == "print":
                return all(only_looks(self._effects, each.value) for each in value.args)
            return only_looks(self._effects, value)
        if isinstance(statement, (cst.Import, cst.ImportFrom)):
            return not isinstance(statement.names, cst.ImportStar) and "unsloth" not in tree.text(statement)
        if isinstance(statement, cst.Assign):
            parts = (cst.Attribute, cst.Subscript)
            if any(tree.within(target, part) for target in statement.targets for part in parts):
                return False  # it changes what is there
            return only_looks(self._effects, statement.value)
        calls = [] if isinstance(statement, cst.Raise) else tree.within(statement, cst.Call)
        checks = isinstance(statement, (cst.Pass, cst.Raise, cst.Assert))
        return checks and all(only_looks(self._effects, call) for call in calls)

    def _is_needed(self, node: cst.CSTNode, gone: dict[cst.CSTNode, None]) -> bool:
        """True where code that stays reads what a statement binds, or where a part of the statement stays."""
        if node in self._dropped:
            return False
        goes = gone.keys() | self._certain
        if isinstance(node, _BODY):
            return any(small not in goes for small in small_statements(node))
        if isinstance(node, (cst.If, cst.Try, cst.For)):
            return any(line not in goes for suite in _suites(node) for line in _lines(suite))
        if isinstance(node, cst.Pass):
            return False
        if (tried := self._tree.around(node, cst.Try)) is not None and tried not in gone:
            return True  # whether it fails decides what runs
        names = self._tree.binds(node)
        if any(self._is_read(name, node, goes) for name in names):
            return True
        works = self._source.cell_at(self._tree.start(node)).number in self._working
        return works and not any(self._tree.loads(name) for name in names)

    def _is_read(self, name: str, node: cst.CSTNode, goes: set[cst.CSTNode] | frozenset[cst.CSTNode]) -> bool:
        """True where code that stays needs what a statement binds a name to."""
        tree, leaves = self._tree, goes | self._moved
        forms = self._source.forms_of(Kind.SHELL, Kind.LINE_MAGIC)
        users: list[cst.CSTNode] = [call for call, form in forms if re.search(rf"[{{$]{name}", form.text)]
        users += tree.readers(name, node)
        stays = any(not leaves.intersection(tree.ancestors(user)) for user in users)
        return stays and not self._is_bound_before(node, name, goes)

    def _is_bound_before(self, node: cst.CSTNode, name: str, goes: set[cst.CSTNode] | frozenset[cst.CSTNode]) -> bool:
        """True for an import of what an earlier line that stays imports too."""
        tree = self._tree
        own = [each for each in tree.bindings(name) if each.node in (node, tree.parents[node])]
        return bool(own and own[0].imported) and any(
            each.imported == own[0].imported
            and tree.is_certain(each.node)
            and not goes.intersection((each.node, *tree.ancestors(each.node)))
            for each in tree.bindings(name)
            if each.offset < own[0].offset
        )


def is_colab(test: str) -> bool | None:
    """What a test for Colab gives on another machine; None for any other test."""
    asked = _COLAB.search(test)
    return None if asked is None else any(asked.groups())


def colab_branch(tree: Tree, statement: cst.CSTNode) -> cst.CSTNode | None:
    """The branch of a test that Colab alone takes; None for any other statement."""
    if not isinstance(statement, cst.If):
        return None
    texts = [tree.text(each) for each in (statement.test, tree.value(statement.test))]
    answers = [is_colab(text) for text in texts if " or " not in text and " and " not in text]
    answer = next((each for each in answers if each is not None), None)
    return None if answer is None else statement.orelse if answer else statement.body


def _suites(statement: cst.CSTNode) -> Iterator[cst.IndentedBlock | cst.SimpleStatementSuite]:
    """The suites of a compound statement, those of `elif` and handlers too."""
    parts = [statement, *getattr(statement, "handlers", ())]
    parts += [getattr(statement, name, None) for name in ("orelse", "finalbody")]
    for part in parts:
        if isinstance(part, cst.If) and part is not statement:
            yield from _suites(part)
        elif part is not None:
            yield part.body


def _lines(suite: cst.IndentedBlock | cst.SimpleStatementSuite) -> Sequence[cst.CSTNode]:
    """The lines of a suite; the suite itself where it follows its colon on the same line."""
    return suite.body if isinstance(suite, cst.IndentedBlock) else [suite]


def _imported(alias: cst.ImportAlias) -> str:
    """The name that an import binds."""
    return alias.evaluated_alias or alias.evaluated_name.split(".")[0]
