"""Run the store through which the processes of a job find each other, as torchrun does: `agent PORT`."""

from __future__ import annotations

import sys
import threading


def main() -> int:
    """Run the store until this process is killed.

    Raises:
        torch.distributed.DistNetworkError: the port is taken.
    """
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", int(sys.argv[2]), is_master=True, wait_for_workers=False)
    threading.Event().wait()
    del store
    return 0
