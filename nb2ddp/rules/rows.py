"""DDP414: Before each training the ranks compare their rows; where they differ, all take the main process's.

What draws, orders, asks a model or reads the clock may give each rank other rows: some would be trained twice, others
never. So no rank trains before the contents are compared: all of a data set of datasets, a sample of 100 rows of a list
or of torch's data set. The rows of a stream are not compared.

A stream would lose rows too: accelerate 1.15 gives each rank whole files if there are as many as processes
(data_loader.py:1230), and the ranks part where one has fewer rows. The script lets each rank take its part of each
batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import InsertAbove

_SHARED = "each process may have prepared other rows; the script compares them, and takes the main process's"
_UNSEEN = "each process may train on other rows: write it as trainer.train(), so that the script can compare them"


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    if program.options.split_model:
        return
    for call in program.training.calls:
        owner, name = tree.member(call.func) or (call.args[0].value if call.args else call, "")
        if name in ("evaluate", "predict"):
            continue
        share, around = f"share_rows({tree.text(owner)})", tree.inside_statement(call)
        is_named = isinstance(owner, (cst.Name, cst.Attribute))
        if not is_named or any(isinstance(above, (cst.Lambda, cst.BaseComp)) for above in around):
            yield Finding(call, _UNSEEN, todo=True)
        elif all(tree.text(each) != share for each in tree.of(cst.Call)):
            yield Finding(call, _SHARED, (InsertAbove(tree.statement(call), share),))


_TRAINER = "from trl import SFTTrainer\ntrainer = SFTTrainer(model)\n"

RULE = Rule(
    name="rows-of-each-process",
    find=find,
    examples=(
        Example(
            _TRAINER + "# Go!\ntrainer_stats = trainer.train()\n",
            _TRAINER + "share_rows(trainer)\n# Go!\ntrainer_stats = trainer.train()\n",
        ),
        Example(
            "from unsloth import unsloth_train\n" + _TRAINER + "unsloth_train(trainer)\n",
            "from unsloth import unsloth_train\n" + _TRAINER + "share_rows(trainer)\nunsloth_train(trainer)\n",
        ),
        Example(
            "from trl import SFTTrainer\nSFTTrainer(model).train()\n",
            "from trl import SFTTrainer\n"
            "# TODO[nb2ddp] DDP414: each process may train on other rows: write it as trainer.train(), so that the "
            "script can compare them\nSFTTrainer(model).train()\n",
        ),
        Example(_TRAINER + "trainer.evaluate()\n"),
    ),
)
