"""The entry of the command."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn


def main() -> None:
    """Run the command; Ctrl-C ends it wherever it comes, as a file is replaced whole or not at all."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a job in the background ignores it
        signal.signal(signal.SIGINT, _interrupted)
    from nb2ddp.cli.main import main as command

    command(prog_name="nb2ddp")


def _interrupted(*_: object) -> NoReturn:
    print("Interrupted. Every file is as it was, or converted.", file=sys.stderr)
    sys.exit(130)


if __name__ == "__main__":
    main()
