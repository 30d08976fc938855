"""The settings of the hub's client in environment variables of this machine (huggingface_hub, constants.py)."""

from __future__ import annotations

import os
from pathlib import Path


def is_offline() -> bool:
    """Return whether access to the hub is turned off."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON")


def home() -> Path:
    """Return the folder of this user's token and cache."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("HF_HOME") or Path(caches, "huggingface")).expanduser()


def cache() -> Path:
    """Return the folder of downloaded repositories."""
    return Path(os.environ.get("HF_HUB_CACHE") or home() / "hub").expanduser()
