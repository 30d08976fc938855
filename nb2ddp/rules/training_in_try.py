"""DDP404: a training that one process may leave by an exception."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.placement import suppresses
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.tree import Tree

_EXIT = re.compile(r"(sys\.|os\._)?exit|quit")
_MESSAGE = (
    "where this fails on one process, the others wait for it until the job times out: let the exception end the script"
)


def find(program: Program) -> Iterator[Finding]:
    for call in dict.fromkeys([*program.training.calls, *program.training.events]):
        for above in program.tree.ancestors(call):
            if (isinstance(above, cst.Try) and _swallows(program, above, call)) or (
                isinstance(above, cst.With) and any(suppresses(program.tree, item) for item in above.items)
            ):
                yield Finding(call, _MESSAGE, todo=True)
                break


def _swallows(program: Program, statement: cst.Try, call: cst.CSTNode) -> bool:
    """True for a `try` around a call with a handler after which the script goes on."""
    inside = any(above is statement.body for above in program.tree.ancestors(call))
    return inside and not all(_ends(program.tree, handler) for handler in statement.handlers)


def _ends(tree: Tree, handler: cst.ExceptHandler) -> bool:
    """True for a handler that raises, or ends the process with a code by which the launcher ends the others."""
    if tree.within(handler, cst.Raise):
        return True
    exits = [call for call in tree.within(handler, cst.Call) if _EXIT.fullmatch(tree.qualified(call.func))]
    return any(call.args and tree.literal(call.args[0].value) not in (0, None) for call in exits)


RULE = Rule(
    code="DDP404",
    name="training-in-try",
    summary="`train()` inside a `try` that swallows exceptions gets a `TODO` above it.",
    why=(
        "If one rank leaves the training by an exception and continues, the others wait for it in the next "
        "collective. An exception that ends the script ends all processes."
    ),
    find=find,
    examples=(
        Example(
            "try:\n    trainer.train()\nexcept KeyboardInterrupt:\n    pass\n",
            "try:\n    # TODO[nb2ddp] DDP404: where this fails on one process, the others wait for it until"
            " the job times out: let the exception end the script\n    trainer.train()\n"
            "except KeyboardInterrupt:\n    pass\n",
        ),
        Example("try:\n    trainer.train()\nexcept Exception:\n    print('failed')\n    raise\n"),
        Example(
            "import sys\ntry:\n    trainer.train()\nexcept KeyboardInterrupt:\n    sys.exit(1)\n"
            "except RuntimeError as error:\n    sys.exit(f'failed: {error}')\n"
        ),
    ),
)
