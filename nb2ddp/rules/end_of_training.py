"""DDP401: After the last training the process group is closed, and only the main process continues."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.script.templates import render
from nb2ddp.syntax.edits import AddToSetup, Edit, InsertAfter
from nb2ddp.syntax.tree import Statement, Tree

_ENDS = "every process would run the rest of the notebook (print, generate, save); in the script the main process does"
_WAITING = ", and the others wait, as its vLLM engine may need them, until it ends"
_PATIENCE = (
    'os.environ.setdefault("UNSLOTH_DDP_TIMEOUT", "7200")  # seconds that processes wait for the main one at the end'
)


@rule("DDP401")
def every_process_goes_on(program: Program) -> Iterator[Finding]:
    last, tree = program.training.last, program.tree
    closed = "PartialState().destroy_process_group" in map(tree.text, tree.of(cst.Attribute))
    if last is None or closed:
        return
    message, template, edits = _ENDS, "end_of_training.py.j2", list[Edit]()
    if not program.closes_group:
        message, template = f"{_ENDS}{_WAITING}", "main_process_goes_on.py.j2"
        edits.append(AddToSetup(_PATIENCE, before_imports=True))
    text = render(
        template,
        variable=program.name("variable"),
        goes_on=tree.module.body[-1] is not last,
        asks=program.asks_when_alone,
    )
    yield Finding(program.training.events[-1], message, (_below(tree, last, text), *edits))


def _below(tree: Tree, last: Statement, text: str) -> InsertAfter:
    """The lines below a statement, with a blank one between them and code that follows."""
    end = tree.line_end(tree.span(last)[1])
    follows = tree.source[end : tree.line_end(end + 1)].strip()
    return InsertAfter(last, text.rstrip("\n") + ("\n" if follows else ""))
