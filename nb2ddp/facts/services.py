"""Calls of services, and the answers that can be sent to other processes."""

from __future__ import annotations

import re
from typing import cast

import libcst as cst

from nb2ddp.facts.flow import argument_of, reached
from nb2ddp.syntax.arguments import entry
from nb2ddp.syntax.environ import environ_key
from nb2ddp.syntax.tree import Tree, keyword

#: A class: what it makes may ask later.
_CLASS = re.compile(r"(.*\.)?[A-Z]\w*")
#: Where a client stands that nothing asks.
_IDLE = (cst.Assign, cst.AnnAssign, cst.WithItem, cst.Expr, cst.If, cst.Comparison)
#: What gives an open connection, which no other process can take.
_CONNECTIONS = re.compile(r"urllib\.request\.urlopen|aiohttp\.(ClientSession|request)|(requests|httpx)\.stream")

#: The variable that says which GPUs a program sees.
_GPUS = "CUDA_VISIBLE_DEVICES"


def questions(tree: Tree, call: cst.Call) -> list[cst.Call]:
    """The calls that ask a service, where a call makes a client: through it, or through what it is handed to.

    The call itself where it makes none, or where the client is handed to what may ask, unseen.
    """
    if not _CLASS.fullmatch(tree.qualified(call.func)):
        return [call]
    ends = list[cst.CSTNode]()

    def kept(client: cst.CSTNode) -> list[cst.CSTNode]:
        """Where a client goes on: to the uses of what it is bound to, and to what a class makes of it."""
        # also one that a condition chooses: `OpenAI() if key else None`
        above = tree.parents[tree.extended(client, cst.IfExp, cst.BooleanOperation)]
        user = argument_of(tree, client)
        if isinstance(above, (cst.Assign, cst.AnnAssign, cst.WithItem)) and (uses := tree.kept_uses(above)):
            return uses
        if user is not None and _CLASS.fullmatch(tree.qualified(user.func)):
            return [user]
        ends.append(above)
        return []

    clients = reached(list[cst.CSTNode]([call]), kept)
    asking = tree.in_order(filter(None, [called_on(tree, client) for client in clients]))
    return asking or ([] if all(isinstance(end, _IDLE) for end in ends) else [call])


def gpus_of(tree: Tree, call: cst.Call, command: str) -> list[str]:
    """Return the numbers of GPUs, but the first, that a call gives to the program it starts, by `CUDA_VISIBLE_DEVICES`.

    Args:
        tree: the notebook's code.
        call: what starts a program.
        command: the program's command line.
    """
    given = re.findall(rf"\b{_GPUS}=[\"']?([\d,]+)", command)
    if (env := keyword(call, "env")) is not None:
        found, mapping = entry(tree, env.value, _GPUS), tree.qualified(env.value)
        values = [found.value] if found is not None else []
        values += [
            each.value for each in tree.of(cst.Assign) if environ_key(tree, each.targets[0].target, mapping) == _GPUS
        ]
        given += [str(tree.literal(value)) for value in values]
    return [number for each in given for number in each.split(",") if re.fullmatch(r"[1-9]\d*", number)]


def is_client(tree: Tree, node: cst.CSTNode) -> bool:
    """True for what makes a client or opens a connection, which no other process can take."""
    name = tree.qualified(node.func) if isinstance(node, cst.Call) else ""
    return bool(_CONNECTIONS.fullmatch(name) or _CLASS.fullmatch(name))


def called_on(tree: Tree, value: cst.CSTNode) -> cst.Call | None:
    """The call of a method of a value, or of something in it: `value.chat.create(...)`."""
    top = tree.extended(value, cst.Attribute)
    return None if top is value else tree.call_of(top)


def answer(tree: Tree, call: cst.Call) -> cst.BaseExpression | None:
    """What of a question's answer other processes can be given: `get(url).json()`; None where they can take nothing.

    They cannot take an open connection, nor what is still awaited.
    """
    top = cast(cst.BaseExpression, tree.extended(call, cst.Attribute, cst.Subscript, cst.Call))
    above = tree.parents[top]
    streams = keyword(call, "stream") is not None or (top is call and is_client(tree, call))
    waits = isinstance(above, cst.Await) or bool(tree.within(top, cst.Await))
    unused = isinstance(above, (cst.Expr, cst.WithItem))
    return None if streams or waits or unused else top
