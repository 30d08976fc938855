"""The entry point of the command."""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType

_INTERRUPTED = b"Interrupted. Every file is as it was, or converted.\n"


def main() -> None:
    """Run the command; Ctrl-C ends it at any time with one line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a background job ignores Ctrl-C
        signal.signal(signal.SIGINT, _interrupted)
    gc.disable()  # while modules are imported and notebooks converted, nearly nothing is garbage
    from nb2ddp.cli.main import main as command

    command(prog_name="nb2ddp")


def _interrupted(_: int, frame: FrameType | None) -> None:
    """End with an exception, so that files are cleaned up. An import may replace the exception: there, exit at once."""
    os.write(2, _INTERRUPTED)
    while frame is not None:
        if "importlib" in frame.f_code.co_filename:
            os._exit(130)
        frame = frame.f_back
    sys.exit(130)


if __name__ == "__main__":
    main()
