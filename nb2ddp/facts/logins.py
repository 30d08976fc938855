"""Calls that log in to a service, and their tokens."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from nb2ddp.syntax.tree import Tree, argument

#: The variables of the Hub's token and of the key of Weights & Biases.
HUB_TOKEN: Final = "HF_TOKEN"
TRACKER_KEY: Final = "WANDB_API_KEY"
#: The functions of a service, the keyword for its token, and the variable in which its library looks for one.
_LOGINS: Final = (
    (re.compile(r"(huggingface_hub(\.\w+)*\.)?(login|notebook_login|interpreter_login)"), "token", HUB_TOKEN),
    (re.compile(r"wandb(\.\w+)*\.login"), "key", TRACKER_KEY),
)
#: The variables that hold a token of the Hub or of Weights & Biases.
TOKEN_VARIABLE: Final = re.compile(r"HF_(HUB_)?TOKEN|HUGGING_?FACE\w*_TOKEN|WANDB_API_KEY")
#: What stands for a token in a command: `<token>`, `YOUR_TOKEN`, `hf_xxx`, `...`.
_NO_TOKEN: Final = r"[\"']?(?i:<|your|hf_?x+\b|x+\b|\*|\.\.\.)"
#: A text as services write tokens: long, of many different letters, with a digit or a capital inside.
_LIKE_A_TOKEN: Final = re.compile(r"(?=.*(\d|[a-z][A-Z]))(?!(?i:.*(token|your)))[\w.+=:-]{16,}")
#: Commands that ask for a token, or leave it to be filled in.
_COMMANDS: Final = (
    (re.compile(rf"(huggingface-cli|hf\s+auth|hf)\s+login\b(?!.*\s--token[\s=](?!{_NO_TOKEN}))"), HUB_TOKEN),
    (re.compile(rf"wandb\s+login\b(?!\s*(--\w+\s+)*(?!{_NO_TOKEN})[^\s-])"), TRACKER_KEY),
)


def _login(tree: Tree, node: cst.CSTNode) -> tuple[str, str] | None:
    """The keyword for the token, and the variable of its library, where a call logs in to a service."""
    name = tree.qualified(node.func) if isinstance(node, cst.Call) else ""
    return next(((given, variable) for pattern, given, variable in _LOGINS if pattern.fullmatch(name)), None)


def variable_of(tree: Tree, node: cst.CSTNode) -> str | None:
    """The variable in which a library looks for the token, where a call logs in to its service."""
    return None if (login := _login(tree, node)) is None else login[1]


def variable_of_command(command: str) -> str | None:
    """The same of a command that asks a person for the token."""
    return next((variable for pattern, variable in _COMMANDS if pattern.match(command.strip())), None)


def tokens(tree: Tree) -> list[cst.BaseExpression]:
    """The tokens that live calls log in with; a text that stands for one is none."""
    given = [token for call in tree.live(cst.Call) if (token := token_of(tree, call)) is not None]
    return [token for token in given if not stands_for_token(tree.literal(token))]


def stands_for_token(text: object) -> bool:
    """True for a text that is written where a token is to be filled in: `""`, `hf_xxx`, `YOUR_TOKEN`."""
    return isinstance(text, str) and (_LIKE_A_TOKEN.fullmatch(text) is None or len(set(text)) < 10)


def token_of(tree: Tree, call: cst.Call) -> cst.BaseExpression | None:
    """The token that a call logs in with; None for another call, and for one that asks a person."""
    login = _login(tree, call)
    found = None if login is None else argument(call, login[0], 0)
    return None if found is None or tree.literal(found.value) is None else found.value
