"""How long a notebook's processes may wait for each other."""

from __future__ import annotations

import libcst as cst

from nb2ddp.facts.training import Training
from nb2ddp.syntax.arguments import constant
from nb2ddp.syntax.tree import Tree

#: Seconds: long enough for downloads and data preparation by one process before training.
WAIT_SECONDS = 7200


def wait_seconds(training: Training) -> int:
    """How long a process waits for the others: two hours, or what the notebook itself allows where that is longer.

    The first process group decides: `TrainingArguments` takes the one that is there, and `ddp_timeout` then has no
    effect (accelerate/state.py, `PartialState.__init__`; transformers/training_args.py, `_setup_devices`).
    """
    values = [constant(training.tree, call, "ddp_timeout") for call in training.arguments]
    return max([WAIT_SECONDS, *(value for value in values if isinstance(value, int))])


def starts_engine(tree: Tree, load: cst.Call) -> bool:
    """True where a load may start a vLLM engine in its process."""
    return constant(tree, load, "fast_inference") not in (None, False)
