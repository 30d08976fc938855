"""Calls that log in to a service, and their tokens: `logins.toml` lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

import libcst as cst

from nb2ddp import toml
from nb2ddp.facts.effects import Does, Effects
from nb2ddp.syntax.arguments import constant
from nb2ddp.syntax.environ import environ_key
from nb2ddp.syntax.tree import Tree, argument, keyword, method

#: The variables for the Hub's token and the key of Weights & Biases.
HUB_TOKEN = "HF_TOKEN"
TRACKER_KEY = "WANDB_API_KEY"
_TABLES = toml.tables(__file__)
_SERVICES: list[Mapping[str, str]] = _TABLES["service"]
#: The libraries of services, and the variables in which their clients look for a key.
_CLIENT_KEYS: Mapping[str, str] = _TABLES["clients"]
#: Returns the service to which a function of a name logs in; None if there is none.
_service = cache(lambda name: next((each for each in _SERVICES if re.fullmatch(each["login"], name)), None))
_CLIENT = re.compile(rf"({'|'.join(map(re.escape, _CLIENT_KEYS))})\.")
#: The variables that hold a token of the Hub or of Weights & Biases.
TOKEN_VARIABLE = re.compile(r"HF_(HUB_)?TOKEN|HUGGING_?FACE\w*_TOKEN|WANDB_API_KEY")
#: A text in the form of a token: long, of many different letters, with a digit or a capital inside.
_LIKE_A_TOKEN = re.compile(r"(?=.*(\d|[a-z][A-Z]))(?!(?i:.*(token|your)))[\w.+=:-]{16,}")


def login_of(tree: Tree, node: cst.CSTNode) -> tuple[str | None, cst.BaseExpression | None]:
    """Return the variable for the token of a login's service, and the token; None for no login, and for no token."""
    if not isinstance(node, cst.Call) or (service := _service(tree.qualified(node.func))) is None:
        return None, None
    given = argument(node, service["keyword"], 0)
    if given is None or tree.literal(given.value) is None:
        return service["variable"], None
    return service["variable"], given.value


def variable_of_command(command: str) -> str | None:
    """Return the variable for the token of a service, if a command asks a person for the token."""
    return next((each["variable"] for each in _SERVICES if re.match(each["command"], command.strip())), None)


def tokens(tree: Tree) -> list[cst.BaseExpression]:
    """Return the tokens with which live calls log in, without placeholders."""
    given = [login_of(tree, call)[1] for call in tree.live(cst.Call)]
    return [token for token in given if token is not None and not looks_like_placeholder(tree.literal(token))]


def looks_like_placeholder(text: object) -> bool:
    """Return whether a text is a placeholder for a token: `""`, `hf_xxx`, `YOUR_TOKEN`."""
    return isinstance(text, str) and (_LIKE_A_TOKEN.fullmatch(text) is None or len(set(text)) < 10)


def given_tokens(tree: Tree, effects: Effects) -> Iterator[tuple[cst.BaseExpression, str]]:
    """Yield the values passed as tokens to logins, uploads, clients of services, or variables, with the variables."""
    for call in tree.live(cst.Call):
        function = tree.qualified(call.func)
        client = _CLIENT.match(function)
        if client and (filled := keyword(call, "api_key")) is not None and keyword(call, "base_url") is None:
            yield filled.value, _CLIENT_KEYS[client[1]]
        variable, token = login_of(tree, call)
        if variable is not None and token is not None:
            yield token, variable
        elif function.startswith("huggingface_hub.") or (
            method(call).startswith("push_to_hub") and effects.of(call) & Does.SAVE
        ):
            yield from [(given.value, HUB_TOKEN) for given in call.args if given is keyword(call, "token")]
        elif constant(tree, call, "push_to_hub") is True:
            yield from [(given.value, HUB_TOKEN) for given in call.args if given is keyword(call, "hub_token")]
    for assign in tree.live(cst.Assign):
        key = environ_key(tree, assign.targets[0].target)
        is_open = tree.literal(assign.value) == "" and not isinstance(assign.value, cst.SimpleString)
        if isinstance(key, str) and TOKEN_VARIABLE.fullmatch(key) and not is_open:
            yield assign.value, key
