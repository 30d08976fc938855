"""The secrets that a script takes from its environment."""

from __future__ import annotations

import re

from nb2ddp.facts.environment import settings
from nb2ddp.facts.needs import Kind
from nb2ddp.facts.program import Program

#: What a shell can export.
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def handed_on(program: Program) -> list[str]:
    """The names of the variables that a launcher hands on: the token for gated models, and what the job needs."""
    return list(dict.fromkeys(["HF_TOKEN", *secrets(program)]))


def secrets(program: Program) -> list[str]:
    """The names of the variables that a job needs.

    Beside those of the list (`Program.needs`) the key of Weights & Biases, where the notebook logs there.
    """
    tree = program.tree
    names = [need.name for need in program.needs if need.kind is Kind.VARIABLE]
    if any(True for _ in tree.imports("wandb")) or any("wandb" in tree.texts(each) for each in tree.given("report_to")):
        names.append("WANDB_API_KEY")
    own = {name for _, name, _ in settings(program)}
    return [name for name in dict.fromkeys(names) if name not in own and _NAME.fullmatch(name)]
