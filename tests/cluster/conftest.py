"""What the tests on clusters share."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.hub import build

from . import slurm
from .job import train_alone
from .slurm import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.runner import Run


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "cluster: trains on a cluster that is started on this host (minutes; needs root and the e2e extra)"
    )


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny hub, built once; a job gets a copy."""
    pytest.importorskip("unsloth", reason="the e2e extra is not installed")
    return build(tmp_path_factory.mktemp("hub"))


@pytest.fixture(scope="session")
def alone(hub: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The fixture trained by one process."""
    result = train_alone(hub, tmp_path_factory.mktemp("alone"))
    assert list(result.problems()) == []
    return result


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
