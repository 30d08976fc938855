"""Code that runs before the imports of a script."""

import os
import sys


def refuse_several_processes() -> None:
    """Exit if a launcher starts several processes: this script trains as one process, on all GPUs."""
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        sys.exit(
            f"This script is one process that spreads its model over all GPUs; start it with: python {sys.argv[0]}"
        )


def see_one_gpu() -> None:
    """Let a process that runs alone see one GPU: a Trainer would train on all, with a larger batch."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
