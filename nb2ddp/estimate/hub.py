"""What the hub's client is told on this machine by variables of the environment (huggingface_hub, constants.py)."""

from __future__ import annotations

import os
from pathlib import Path


def is_offline() -> bool:
    """True where the hub may not be asked."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON")


def home() -> Path:
    """The folder of this user's token and cache."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("HF_HOME") or Path(caches, "huggingface")).expanduser()


def cache() -> Path:
    """The folder in which the repositories lie that were fetched."""
    return Path(os.environ.get("HF_HUB_CACHE") or home() / "hub").expanduser()
