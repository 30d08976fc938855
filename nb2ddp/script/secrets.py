"""The secrets that a script takes from its environment."""

from __future__ import annotations

import re

import libcst as cst

from nb2ddp.facts.environment import settings
from nb2ddp.facts.program import Program
from nb2ddp.syntax.environ import environ_key

_ASKS = re.compile(r"google\.colab\.userdata\.get|.*\bget_secret")
_READS = re.compile(r"os\.(environ\.get|getenv)")
#: What a shell can export.
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SECRET = re.compile(r"\w+_(KEY|TOKEN|SECRET|PASSWORD)")


def secrets(program: Program) -> list[str]:
    """The names of the secrets that a notebook's script asks for: the token for gated models first.

    Those that the notebook asks Colab or Kaggle for, those that it reads from the environment and does not set, and
    the key of Weights & Biases where it logs there.
    """
    tree = program.tree
    names = ["HF_TOKEN"]
    for call in tree.of(cst.Call):
        if call.args and isinstance(call.func, cst.Attribute):
            name, function = tree.literal(call.args[0].value), tree.qualified(call.func) or call.func.attr.value
            if isinstance(name, str) and (_ASKS.fullmatch(function) or (_READS.fullmatch(function) and _is_one(name))):
                names.append(name)
    read = [environ_key(tree, item) for item in tree.live(cst.Subscript)]
    names += [name for name in read if isinstance(name, str) and _is_one(name)]
    if any(True for _ in tree.imports("wandb")) or any("wandb" in tree.texts(each) for each in tree.given("report_to")):
        names.append("WANDB_API_KEY")
    own = {name for _, name, _ in settings(program)}
    return [name for name in dict.fromkeys(names) if name not in own and _NAME.fullmatch(name)]


def _is_one(name: str) -> bool:
    return _SECRET.fullmatch(name) is not None
