"""The code that rules insert, for the setup block."""

from __future__ import annotations

from dataclasses import dataclass

#: What a notebook needs whose completions a vLLM server writes: lines at the end of the setup block.
SEND_WEIGHTS = "send_copies_of_weights()\nuse_one_stream()"
#: How the line begins that leaves GPUs to a server which the notebook starts there.
LEAVE_GPUS = 'os.environ.setdefault("CUDA_VISIBLE_DEVICES", '
#: How the lines begin that end the training. Processes wait there no longer than in any training.
END = "# %% Training is over"


@dataclass(frozen=True)
class Inserted:
    """The code that rules insert.

    Attributes:
        cells: pieces for the notebook's cells.
        first: lines of the setup block, above the imports of packages.
        last: lines at the end of the setup block.
    """

    cells: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
