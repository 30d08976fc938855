"""The environment of the versions that most public notebooks pin, made as `--versions notebook` makes one.

`python -m tests.pinned` makes it, or finds it in the cache folder, and says where it is.
"""

from __future__ import annotations

import sys

from nb2ddp.rehearsal.environments import LIBRARIES, Environment, Wanted, made
from nb2ddp.versions import pins


def environment() -> Environment:
    """The environment.

    Raises:
        nb2ddp.rehearsal.uv.UvError: uv is not there, or no index answers.
    """
    wanted = Wanted((*pins("pinned"), "soundfile"))
    return made(wanted, LIBRARIES, "the notebooks' pins", lambda text: print(text, file=sys.stderr))


if __name__ == "__main__":
    print(environment().python)
