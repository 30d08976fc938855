"""Fixtures and hooks that the tests on clusters share."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.jobs import Job, train_alone

from . import slurm
from .slurm import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests on clusters one after another, as they use the same network and the same daemons."""
    for item in items:
        if "cluster" in item.keywords:
            item.add_marker(pytest.mark.xdist_group("cluster"))


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The notebook trained by one process."""
    pytest.importorskip("transformers", reason="the e2e extra is not installed")
    return train_alone(tmp_path_factory.mktemp("alone") / "job")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if reason := slurm.missing():
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # short, for the path of a socket
    cluster = Cluster(folder)
    cluster.start()
    yield cluster
    cluster.stop()
    shutil.rmtree(folder)
