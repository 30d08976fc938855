"""The code that rules insert, for the setup block."""

from __future__ import annotations

from dataclasses import dataclass

#: Lines at the end of the setup block, for a notebook whose completions a vLLM server generates.
SEND_WEIGHTS = "send_copies_of_weights()\nuse_one_stream()"
#: The beginning of the line that leaves GPUs to a server that the notebook starts there.
LEAVE_GPUS = 'os.environ.setdefault("CUDA_VISIBLE_DEVICES", '
#: The beginning of the lines that end the training. Processes wait no longer there than in any training.
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
