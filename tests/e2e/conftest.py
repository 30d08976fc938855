"""What the end-to-end tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .hub import build

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny hub, built once; a run gets a copy."""
    return build(tmp_path_factory.mktemp("hub"))
