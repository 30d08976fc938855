"""Run from a zip archive (PEP 441): unpack it first, because Python loads compiled modules only from files."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NoReturn


def run_unpacked(archive: Path) -> NoReturn:
    """Unpack an archive into the user's cache folder once, run its program, and exit with its code.

    Args:
        archive: a zip file with a `__main__.py`.
    """
    from nb2ddp.project.files import default_folder

    name = sha256(archive.read_bytes()).hexdigest()[:16]
    with tempfile.TemporaryDirectory(prefix="nb2ddp-") as scratch:
        try:
            program = _unpacked(archive, default_folder() / "zipapps" / name)
        except OSError:  # a folder that cannot be written
            program = _unpacked(archive, Path(scratch) / name)
        process = subprocess.Popen([sys.executable, str(program), *sys.argv[1:]])
        while True:
            with suppress(KeyboardInterrupt):  # the program has got it too, and ends by itself
                sys.exit(process.wait())


def _unpacked(archive: Path, folder: Path) -> Path:
    """Return the folder of an unpacked archive. It is renamed when complete: several may unpack at a time."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            zipfile.ZipFile(archive).extractall(Path(scratch, "whole"))
            with suppress(OSError):  # another process was faster
                Path(scratch, "whole").rename(folder)
    return folder
