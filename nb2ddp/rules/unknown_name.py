"""DDP005: names that the notebook uses and never defines, or defines only later."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.execution import Phase
from nb2ddp.facts.program import Program
from nb2ddp.notebook.magics import Kind
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.tree import Tree


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    seen: set[str] = set()
    certain = not _defines_unseen(program)
    marked: set[cst.CSTNode] = set()
    for name in sorted(set(tree.names_read)):
        for use in tree.loads(name):
            if name in seen or isinstance(tree.parents[use], cst.Expr) or not program.names.is_unknown(use):
                continue
            seen.add(name)
            fails = certain and not _is_caught(tree, use) and bool(program.execution.phase(use))
            lost = f"{_lost(program, use)}; define it above" if fails else _PERHAPS
            line = tree.statement(use)
            yield Finding(use, f"{name!r} {_said(tree, use)}: {lost}", todo=fails and line not in marked)
            marked.add(line)


_PERHAPS = (
    "where this runs, the script stops, unless a `try` goes on or something else defines it; look whether it does"
)


def _said(tree: Tree, use: cst.Name) -> str:
    bindings = tree.bindings(use.value)
    if any(tree.span(each.node)[0] <= tree.start(use) < tree.span(each.node)[1] for each in bindings):
        return "has no value yet where its first one is made of it"
    return "is defined only further down (the cells are out of order)" if bindings else "is never defined"


def _defines_unseen(program: Program) -> bool:
    """True where names may come from what is run as text, or from another notebook."""
    magics = any(form.name in ("run", "store", "load") for _, form in program.forms_of(Kind.LINE_MAGIC))
    return magics or any(program.execution.calls(name) for name in ("exec", "globals", "locals", "vars"))


def _is_caught(tree: Tree, use: cst.Name) -> bool:
    """True below a `try` that goes on without the name."""
    return any(isinstance(above, cst.Try) and above.handlers for above in tree.ancestors(use))


def _lost(program: Program, use: cst.Name) -> str:
    """What the script would not come to, once it stops at a name."""
    execution = program.execution
    if program.tree.function(use) is not None:
        return "the script stops where this runs"
    if not execution.is_after_training(use):
        return "the script stops here, before training"
    saves = execution.calls(does=Does.SAVE, phase=Phase.AFTER)
    if saves and program.tree.start(saves[0]) > program.tree.start(use):
        return "the script stops here, after training and before it saves the model"
    return "the script stops here, after training"


RULE = Rule(
    code="DDP005",
    name="unknown-name",
    summary="A name that the notebook never defines, or defines only further down, gets a `TODO` that says what the"
    " script does not come to.",
    why="A notebook's kernel may still know it from a cell that is gone or was run earlier. A script starts with"
    " nothing.",
    find=find,
    severity=Severity.WARNING,
    examples=(
        Example(
            "trainer = SFTTrainer(model)\ntrainer.train()\n# %%\nupload(trainer)\ntrainer.save_pretrained(folder)\n",
            """\
# TODO[nb2ddp] DDP005: 'SFTTrainer' is never defined: the script stops here, before training; define it above
trainer = SFTTrainer(model)
trainer.train()
# %%
# TODO[nb2ddp] DDP005: 'upload' is never defined: the script stops here, after training and before it \
saves the model; define it above
upload(trainer)
# TODO[nb2ddp] DDP005: 'folder' is never defined: the script stops here, after training; define it above
trainer.save_pretrained(folder)
""",
        ),
        Example(
            "rows = rows.filter(len)\ntry:\n    settings\nexcept NameError:\n    settings = {}\n",
            "# TODO[nb2ddp] DDP005: 'rows' has no value yet where its first one is made of it: the script stops here,"
            " before training; define it above\n"
            "rows = rows.filter(len)\ntry:\n    settings\nexcept NameError:\n    settings = {}\n",
        ),
        Example("import os\nrows = [row for row in os.listdir()]\nprint(len(rows))\n"),
        Example("def more(n):\n    return more(n - 1) + last\nlast = 1\nfor i in [1]:\n    last = last + i\n"),
    ),
)
