"""Where a notebook's trainers write checkpoints, and how long its processes may wait for each other."""

from __future__ import annotations

import libcst as cst

from nb2ddp.facts.loading import loads
from nb2ddp.facts.program import Program
from nb2ddp.notebook.magics import Kind
from nb2ddp.syntax.arguments import passed
from nb2ddp.syntax.tree import keyword

#: Seconds: long enough for downloads and data preparation by one process before training.
WAIT_SECONDS = 7200


def fresh_folders(program: Program) -> tuple[str, ...]:
    """The folders that a run fills with checkpoints of its own; none where it may go on from those of another run."""
    tree, training = program.tree, program.training
    resumed = [keyword(call, "resume_from_checkpoint") for call in training.calls]
    resumed_by_field = [passed(tree, call, "resume_from_checkpoint") for call in training.arguments]
    values = [given.value for given in (*resumed, *resumed_by_field) if given is not None]
    if any(tree.literal(value) not in (None, False) for value in values) or _changes_folder(program):
        return ()
    folders: list[str] = []
    for call in training.arguments:
        folder, strategy = passed(tree, call, "output_dir"), passed(tree, call, "save_strategy")
        name = tree.literal(folder.value) if folder is not None else None
        saves = strategy is None or tree.literal(strategy.value) != "no"
        if isinstance(name, str) and name and saves and name not in folders:
            folders.append(name)
    return tuple(folders)


def _changes_folder(program: Program) -> bool:
    """True where a path at the start of the script may be another one later."""
    calls = program.tree.of(cst.Call)
    return any(program.tree.qualified(call.func) == "os.chdir" for call in calls) or any(
        form.name == "cd" for _, form in program.forms_of(Kind.LINE_MAGIC)
    )


def wait_seconds(program: Program) -> int:
    """How long a process waits for the others: two hours, or what the notebook itself allows where that is longer.

    The first process group decides: `TrainingArguments` takes the one that is there, and `ddp_timeout` then has no
    effect (accelerate/state.py, `PartialState.__init__`; transformers/training_args.py, `_setup_devices`).
    """
    given = [passed(program.tree, call, "ddp_timeout") for call in program.training.arguments]
    values = [program.tree.literal(g.value) for g in given if g is not None]
    return max([WAIT_SECONDS, *(value for value in values if isinstance(value, int))])


def keeps_engine(program: Program) -> bool:
    """True where an in-process vLLM engine may still need the process group after training."""
    given = [passed(program.tree, call, "fast_inference") for call in loads(program.tree)]
    return any(g is not None and program.tree.literal(g.value) is not False for g in given)
