"""Share what rehearsals import: the processes that start those of one rehearsal start those of all of a test run."""

from __future__ import annotations

import os
from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING

import pytest

from nb2ddp.rehearsal import rehearse
from nb2ddp.rehearsal.processes import Parent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Shared:
    """A starter that stays when a rehearsal closes it."""

    def __init__(self, starter: Parent) -> None:
        self.start, self.end = starter.start, starter.close

    def close(self) -> None:
        """Do nothing: the next rehearsal uses it."""


@pytest.fixture(autouse=True, scope="session")
def _shared_starters() -> Iterator[None]:
    """Each rehearsal closes the two that it asked for before the next one asks."""
    made = defaultdict[str, list[Shared]](list)

    def shared(environment: Mapping[str, str], python: str) -> Shared:
        if len(made[python]) < 2:
            outside = {
                **environment,
                "HOME": os.environ["HOME"],
            }  # a rehearsal kills what has its home below its folder
            made[python].append(Shared(Parent(outside, python)))
            return made[python][-1]
        made[python].reverse()
        return made[python][0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearse, "Parent", shared)
        yield
    for each in chain(*made.values()):
        each.end()
