"""What stands before all imports of a script."""

import os
import sys


def refuse_several_processes() -> None:
    """End where a launcher starts several processes: this script's one process spreads its model over all GPUs."""
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        sys.exit(
            f"This script is one process that spreads its model over all GPUs; start it with: python {sys.argv[0]}"
        )


def use_hash_seed(seed: int) -> None:
    """Start Python again with this hash seed: without one each process orders sets in its own way."""
    if "PYTHONHASHSEED" not in os.environ:  # Python reads it when it starts
        os.environ["PYTHONHASHSEED"] = str(seed)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
