"""The parts of a script's setup block that not every script has."""

from __future__ import annotations

from enum import Enum, auto


class Part(Enum):
    """What rewritten code relies on, and `templates/setup.py.j2` writes where it does."""

    ASYNCIO = auto()  #: the module is imported
    CONTEXTLIB = auto()  #: the module is imported
    SUBPROCESS = auto()  #: the module is imported
    HASH_SEED = auto()  #: strings have the same hash in every process
    SEED = auto()  #: random numbers are the same in every process
    WANDB = auto()  #: Weights & Biases has one run, not one a process
    PARTIAL_STATE = auto()  #: accelerate's `PartialState` is imported
    WAIT = auto()  #: the process group is there, and waits as long as one process may work alone
    RUN_ONCE = auto()  #: `run_once`, which hands what one process of a machine found to the others
    WHOLE_JOB = auto()  #: ... or what the main process found to all
    SAME_DRAWS = auto()  #: `same_draws`, with which a reward draws alike in every process, from ...
    DRAWS_RANDOM = auto()  #: ... `random`,
    DRAWS_NUMPY = auto()  #: ... NumPy,
    DRAWS_TORCH = auto()  #: ... torch
    SERVER = auto()  #: a vLLM server is sent the weights of the trained model, adapters merged
    ENGINE = auto()  #: a vLLM engine keeps the process group until the script ends
    SPLIT_BATCH = auto()  #: `split_batch`, for samples
    COMPLETIONS = auto()  #: `split_batch` takes completions too, in groups of one prompt
    GPU_MEMORY = auto()  #: `split_batch` makes per-device batches as large as the GPU's memory allows
    KEPT_BATCH = auto()  #: ... but not above the notebook's own where it is told so
    MACHINES = auto()  #: several machines compare what they see
