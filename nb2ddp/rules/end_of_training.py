"""DDP401: after the last training, the main process goes on alone."""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.edits import InsertAfter
from nb2ddp.program import Finding, Program
from nb2ddp.rule import Example, Rule
from nb2ddp.templates import render


def find(program: Program) -> Iterator[Finding]:
    last = program.training.last
    if last is None or "destroy_process_group" in program.tree.source:
        return
    event = program.training.events[-1]
    yield Finding(
        event,
        "every process would run the rest of the notebook: print, generate, save",
        edits=(
            InsertAfter(
                last,
                render("end_of_training.py.j2", is_main_process=program.name("is_main_process")).rstrip("\n"),
            ),
        ),
        needs=frozenset({"end"}),
    )


RULE = Rule(
    code="DDP401",
    name="every-process-goes-on",
    summary="After the last training the processes wait for each other, the process group is closed, and all processes "
    "but the main one end.",
    why="Otherwise every process generates, and all write the same files at once. transformers never closes the group "
    "(transformers issue 48874). It is closed after the last call that needs all processes, found by statement: train, "
    "evaluate or predict.",
    find=find,
    examples=(
        Example(
            """\
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
model.save_pretrained("lora")
""",
            """\
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()

# %% Training is over: the main process runs the rest of the notebook alone
from accelerate import PartialState

PartialState().wait_for_everyone()
PartialState().destroy_process_group()
if not is_main_process:
    sys.exit()
model.save_pretrained("lora")
""",
        ),
        Example("model.train()\n"),
    ),
)
