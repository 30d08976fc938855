"""How long a notebook's processes may wait for each other."""

from __future__ import annotations

from nb2ddp.facts.loading import loads
from nb2ddp.facts.program import Program
from nb2ddp.syntax.arguments import passed

#: Seconds: long enough for downloads and data preparation by one process before training.
WAIT_SECONDS = 7200


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
