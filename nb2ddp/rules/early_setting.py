"""DDP105: what the notebook sets before it imports Unsloth is set before the setup block does."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.ipython import Kind
from nb2ddp.program import Finding, Program
from nb2ddp.rule import Example, Rule
from nb2ddp.rules.env_magic import assignment
from nb2ddp.rules.rank_variables import LAUNCHER_VARIABLES, environ_key


def find(program: Program) -> Iterator[Finding]:
    for node, name, _ in _settings(program):
        yield Finding(node, f"{name} would be set after Unsloth is imported", fixed=True)


def settings(program: Program) -> dict[str, str]:
    """Environment variables with plain values that the notebook sets before its own import of Unsloth."""
    return {name: value for _, name, value in _settings(program)}


def _settings(program: Program) -> list[tuple[cst.CSTNode, str, str]]:
    tree = program.tree
    imports = [
        tree.start(statement)
        for kind in (cst.Import, cst.ImportFrom)
        for statement in tree.of(kind)
        if "unsloth" in tree.text(statement).split() or "unsloth." in tree.text(statement)
    ]
    first = min(imports, default=0)
    found: list[tuple[cst.CSTNode, str, str]] = []
    for statement in tree.of(cst.Assign):
        name = environ_key(tree, statement.targets[0].target)
        value = tree.literal(statement.value)
        if isinstance(name, str) and isinstance(value, str):
            found.append((statement, name, value))
    for call, form in program.forms_of(Kind.LINE_MAGIC):
        pair = assignment(form.text) if form.name in ("env", "set_env") else None
        if pair is not None and not {"$", "{"} & set(pair[1]):
            found.append((call, pair[0], pair[1]))
    return sorted(
        (
            (node, name, value)
            for node, name, value in found
            if tree.start(node) < first
            and name not in LAUNCHER_VARIABLES
            and tree.parents[tree.statement(node)] is tree.module
            and not program.installs.covers(node)
        ),
        key=lambda item: tree.start(item[0]),
    )


RULE = Rule(
    code="DDP105",
    name="setting-after-import",
    summary="Environment variables that the notebook sets before it imports Unsloth are set in the setup block too.",
    why="Unsloth and torch read many of them when they are imported, such as UNSLOTH_VLLM_STANDBY, and the setup block "
    "imports Unsloth before the notebook does.",
    find=find,
    examples=(
        Example('import os\nos.environ["UNSLOTH_VLLM_STANDBY"] = "1"\nfrom unsloth import FastModel\n', reported=True),
        Example('from unsloth import FastLanguageModel\nimport os\nos.environ["TOKENIZERS_PARALLELISM"] = "false"\n'),
    ),
)
