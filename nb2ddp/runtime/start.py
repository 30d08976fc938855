"""What stands before all imports of a script."""

import os
import sys


def use_hash_seed(seed: int) -> None:
    """Start Python again with this hash seed: without one each process orders sets in its own way."""
    if "PYTHONHASHSEED" not in os.environ:  # Python reads it when it starts
        os.environ["PYTHONHASHSEED"] = str(seed)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
