"""Share the imports of rehearsals: in a test run the same processes start the processes of all rehearsals."""

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


class Shared(Parent):
    """A starter that keeps running when a rehearsal closes it."""

    def close(self) -> None:
        """Do nothing: the next rehearsal uses the starter."""


@pytest.fixture(autouse=True, scope="session")
def _shared_starters() -> Iterator[None]:
    """Give each rehearsal the same two starters, in turn; it closes them before the next one asks."""
    made = defaultdict[str, list[Shared]](list)

    def shared(environment: Mapping[str, str], python: str) -> Shared:
        two = made[python]
        if len(two) < 2:  # with another home: a rehearsal kills processes whose home is below its folder
            two.append(Shared({**environment, "HOME": os.environ["HOME"]}, python))
        two.reverse()
        return two[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearse, "Parent", shared)
        yield
    for each in chain(*made.values()):
        Parent.close(each)
