"""DDP105: Environment variables set before Unsloth is imported move to the setup block."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.environment import Setting, first_import, holder
from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import quoted
from nb2ddp.rules.rule import Finding, rule, without_names
from nb2ddp.syntax.edits import AddToSetup, Cut, Edit, Remove
from nb2ddp.syntax.environ import environ_key
from nb2ddp.syntax.tree import Tree

_IMPORTED = "os is imported only for variables that the setup block sets; the script leaves it out"


@rule("DDP105")
def setting_after_import(program: Program) -> Iterator[Finding]:
    tree, moved = program.tree, set[cst.CSTNode]()
    for setting in program.early_settings:
        node, small = setting.node, holder(program, setting.node)
        edits: tuple[Edit, ...] = ()
        if setting.moves and small is not None:
            moved.add(small)
            edits = (Remove(small, keep_comment=False), *_comments(tree, setting))
        said = f"{setting.name} must be set before Unsloth is imported; the script sets it above that import"
        yield Finding(node, said, edits, fixed=True)
    yield from _hidden(program)
    for statement in tree.of(cst.Import):
        others = [alias for alias in statement.names if tree.text(alias).rstrip(", ") != "os"]
        uses = tree.readers("os", statement) if len(others) < len(statement.names) else []
        if uses and all(moved.intersection(tree.ancestors(use)) for use in uses):
            edit = without_names(program, statement, others) if others else Remove(statement)
            yield Finding(statement, _IMPORTED, (edit,))


def _hidden(program: Program) -> Iterator[Finding]:
    """Modules that the notebook hides from Unsloth: `sys.modules["torchao"] = None`."""
    tree = program.tree
    for assign in tree.of(cst.Assign):
        name = environ_key(tree, assign.targets[0].target, "sys.modules")
        is_early = tree.start(assign) < first_import(tree) and tree.is_certain(assign)
        if isinstance(name, str) and is_early and tree.text(assign.value) == "None":
            said = f"{name} must be hidden before Unsloth is imported; the script hides it above that import"
            end = tree.span(assign)[1]
            beside = tree.source[end : tree.line_end(end)].strip(" ;")
            line = f"sys.modules[{quoted(name)}] = None  {beside if beside.startswith('#') else ''}".rstrip()
            hidden = AddToSetup(line, before_imports=True)
            yield Finding(assign, said, (Remove(assign, keep_comment=False, comments_above=True), hidden))


def _comments(tree: Tree, setting: Setting) -> Iterator[Cut]:
    """The lines of the comments that move with a setting, and the blank one above them."""
    if setting.comments:
        is_apart = tree.source[: setting.above].endswith("\n\n")
        yield Cut(setting.above - is_apart, tree.line_start(tree.start(setting.node)))
