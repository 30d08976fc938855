"""Functions for several machines. Each replaces the function of the same name for one machine."""

import os
import sys
from typing import Any

import torch
from accelerate.utils import gather_object

from nb2ddp.runtime.process import is_main_process


def compare_folders() -> None:
    """Warn if the machines use different working directories."""
    folders = sorted(set(gather_object([os.getcwd()])))
    if len(folders) > 1 and is_main_process:
        print("The machines work in different folders:", ", ".join(folders), file=sys.stderr)


def smallest_gpu(default: float) -> Any:
    """Return the bytes of memory of the smallest GPU of all machines; a machine without one counts as `default`."""
    gpus = [torch.cuda.get_device_properties(n).total_memory for n in range(torch.cuda.device_count())]
    return min(gather_object([min(gpus, default=default)]))
