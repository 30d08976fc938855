"""Make the environment with the versions that most public notebooks pin, as `--versions notebook` makes one.

`python -m tests.pinned` makes it below `.venv-pinned`, if it does not exist yet, and prints the path of its Python.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nb2ddp.rehearsal.environments import LIBRARIES, Environment, Wanted, made
from nb2ddp.versions import pins

HOME = Path(__file__).resolve().parent.parent / ".venv-pinned"


def environment() -> Environment:
    """Make the environment, if it does not exist yet, and return it.

    Raises:
        nb2ddp.rehearsal.uv.UvError: uv is not installed, or no index answers.
    """
    wanted = Wanted(tuple(pins("pinned")))
    return made(wanted, LIBRARIES, "the notebooks' pins", lambda text: print(text, file=sys.stderr), folder=HOME)


if __name__ == "__main__":
    print(environment().python)
