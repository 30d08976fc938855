"""Calls of services, and the answers that can be sent to other processes."""

from __future__ import annotations

import re
from typing import cast

import libcst as cst

from nb2ddp.facts.flow import argument_of, reached
from nb2ddp.syntax.arguments import entry
from nb2ddp.syntax.environ import environ_key
from nb2ddp.syntax.tree import Tree, keyword

#: A class: its objects may ask later.
_CLASS = re.compile(r"(.*\.)?[A-Z]\w*")
#: Nodes that take a client without asking it anything.
_IDLE = (cst.Assign, cst.AnnAssign, cst.WithItem, cst.Expr, cst.If, cst.Comparison)
#: Functions that return an open connection, which no other process can use.
_CONNECTIONS = re.compile(r"urllib\.request\.urlopen|aiohttp\.(ClientSession|request)|(requests|httpx)\.stream")

#: The variable that selects the GPUs that a program sees.
_GPUS = "CUDA_VISIBLE_DEVICES"


def questions(tree: Tree, call: cst.Call) -> list[cst.Call]:
    """Return the calls that ask a service through the client that a call makes, or through an object that takes it.

    Return the call itself if it makes no client, or if unknown code takes the client and may ask.
    """
    if not _CLASS.fullmatch(tree.qualified(call.func)):
        return [call]
    ends = list[cst.CSTNode]()

    def kept(client: cst.CSTNode) -> list[cst.CSTNode]:
        """Return the next places of a client: the uses of its name, or the object that a class makes with it."""
        # a condition may choose the client: `OpenAI() if key else None`
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
    """Return the numbers of the GPUs, except GPU 0, that a call gives its program through `CUDA_VISIBLE_DEVICES`.

    Args:
        tree: the notebook's code.
        call: the call that starts a program.
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
    """Return whether a node makes a client or opens a connection, which no other process can use."""
    name = tree.qualified(node.func) if isinstance(node, cst.Call) else ""
    return bool(_CONNECTIONS.fullmatch(name) or _CLASS.fullmatch(name))


def called_on(tree: Tree, value: cst.CSTNode) -> cst.Call | None:
    """Return the call of a method of a value, or of a part of it: `value.chat.create(...)`; None for none."""
    top = tree.extended(value, cst.Attribute)
    return None if top is value else tree.call_of(top)


def answer(tree: Tree, call: cst.Call) -> cst.BaseExpression | None:
    """Return the part of an answer that can be sent to other processes: `get(url).json()`; None for none.

    An open connection, or a result that is still awaited, cannot be sent.
    """
    top = cast(cst.BaseExpression, tree.extended(call, cst.Attribute, cst.Subscript, cst.Call))
    above = tree.parents[top]
    streams = keyword(call, "stream") is not None or (top is call and is_client(tree, call))
    waits = isinstance(above, cst.Await) or bool(tree.within(top, cst.Await))
    unused = isinstance(above, (cst.Expr, cst.WithItem))
    return None if streams or waits or unused else top
