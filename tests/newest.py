"""Report newer releases of Unsloth, or of the libraries that it allows: `python -m tests.newest [--write]`.

This queries the package index through pip (for Unsloth's own metadata) and uv (for the newest versions that fit it), so
a user's index, mirrors and links apply. With --write, it writes the new versions to `nb2ddp/versions.toml`. Exit code
1 means that there are newer versions.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from nb2ddp.rehearsal import uv
from nb2ddp.versions import FILE, tables

UNSLOTH = ("unsloth", "unsloth_zoo")


def metadata(folder: Path, requirement: str) -> tuple[str, list[str]]:
    """Return the version of the wheel that pip finds for a requirement, and the wheel's own requirements."""
    into = folder / requirement
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(into), requirement)
    subprocess.run(pip, check=True)
    (wheel,) = into.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        message = Parser().parsestr(archive.read(name).decode())
    return str(message["Version"]), list(message.get_all("Requires-Dist") or [])


def bounds(asked: Iterable[str], names: Iterable[str]) -> dict[str, str]:
    """Return the version bounds of these packages. All requirements for one package are joined."""
    found: dict[str, SpecifierSet] = {}
    for requirement in map(Requirement, asked):
        name = requirement.name.replace("-", "_")
        if name in names and "extra" not in str(requirement.marker or ""):
            found[name] = found.get(name, SpecifierSet()) & requirement.specifier
    return {name: in_order(found[name]) for name in sorted(found)}


def in_order(specifier: SpecifierSet) -> str:
    """Return bounds in the usual order: the lowest version, the excluded versions, the highest version."""
    rank = {">=": 0, ">": 0, "!=": 1, "<=": 2, "<": 2}
    parts = sorted(set(specifier), key=lambda part: (rank.get(part.operator, 3), part.version))
    return ",".join(map(str, parts))


def newest(unsloth: Mapping[str, str], allowed: Mapping[str, str]) -> dict[str, str]:
    """Return the newest version of each package that fits the bounds, and the versions of Unsloth."""
    wanted = "\n".join(f"{name}{allowed[name]}" for name in tables()["newest"] if name in allowed)
    command = (uv.program(), "pip", "compile", "--quiet", "--no-header", "--no-annotate", "-")
    done = subprocess.run(command, input=wanted, env=uv.settings(), text=True, stdout=subprocess.PIPE, check=True)
    found = dict(re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", done.stdout.replace("-", "_")))
    return {name: found[name] for name in tables()["newest"] if name in allowed} | dict(unsloth)


def written(table: str, values: Mapping[str, str], text: str) -> str:
    """Return the file's text with these values in a table."""
    lines = "".join(f'{name} = "{value}"\n' for name, value in sorted(values.items()))
    return re.sub(rf"(?m)^\[{table}\]\n(?:\w.*\n)+", lambda _: f"[{table}]\n{lines}", text)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        of_unsloth = {name: metadata(Path(folder), name) for name in UNSLOTH}
    unsloth = {name: version for name, (version, _) in of_unsloth.items()}
    allowed = bounds([line for _, lines in of_unsloth.values() for line in lines], tables()["allowed"])
    now = {"allowed": allowed, "newest": newest(unsloth, allowed)}
    changes = [
        f"{table}: {name} {tables()[table].get(name)} -> {value}"
        for table, values in now.items()
        for name, value in values.items()
        if tables()[table].get(name) != value
    ]
    print("\n".join(changes) or "these are the newest versions")
    if "--write" in sys.argv[1:]:
        text = FILE.read_text(encoding="utf-8")
        for table, values in now.items():
            text = written(table, values, text)
        FILE.write_text(text, encoding="utf-8")
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main())
