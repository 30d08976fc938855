"""uv (https://docs.astral.sh/uv/): where it is, what it is told, and what it resolves and installs."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from nb2ddp.rehearsal import upstream

#: What pip is told -> what tells uv the same, and what separates several values there.
_AS_PIP = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
}
#: Where builds of torch are that need no GPU, beside those for each GPU.
_TORCH_INDEX = "https://download.pytorch.org/whl/cpu"


class UvError(Exception):
    """uv is not there, or cannot do what it is asked for: in one sentence."""


def found() -> str | None:
    """The program: that which has started this one, that of this environment, or the first on the path."""
    if importlib.util.find_spec("uv") is not None:
        import uv

        return str(uv.find_uv_bin())
    return os.environ.get("UV") or shutil.which("uv")


def program() -> str:
    """The program.

    Raises:
        UvError: there is none.
    """
    uv = found()
    if uv is None:
        raise UvError("uv makes an environment with these versions, but it is not installed: pip install uv")
    return uv


@cache
def settings() -> Mapping[str, str]:
    """The environment in which uv runs: it is told what this user's pip is told, unless uv has its own configuration.

    pip and uv differ in which index they take a package from, where several have it: here it is as with pip.
    """
    told = dict(os.environ)
    homes = (os.environ.get("XDG_CONFIG_HOME", "~/.config"), "/etc")
    files = [Path(home, "uv", "uv.toml").expanduser() for home in homes]
    if any(name.startswith(("UV_INDEX", "UV_DEFAULT_INDEX")) for name in told) or any(map(Path.is_file, files)):
        return told
    for key, value in _pip().items():
        if key in _AS_PIP and _AS_PIP[key][0] not in told:
            name, between = _AS_PIP[key]
            told[name] = between.join(value.split())
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", **told}


def _pip() -> dict[str, str]:
    """What pip is told by its files and variables."""
    pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else [shutil.which("pip") or "pip3"]
    try:
        listed = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=False).stdout
    except OSError:
        listed = ""
    lines = re.findall(r"(?m)^(?:global|install|:env:)\.([\w-]+)=(.*)$", listed)
    told = {key: str(ast.literal_eval(value)) for key, value in lines}
    variables = {key: os.environ.get(f"PIP_{key.replace('-', '_').upper()}") for key in _AS_PIP}
    return told | {key: value for key, value in variables.items() if value}


@cache
def torch(backend: str = "cpu") -> tuple[str, ...]:
    """Options that take torch from where its builds for a backend are; none where that place does not answer.

    Args:
        backend: "cpu", or "auto" for that of this machine's GPU.
    """
    if "UV_TORCH_BACKEND" in os.environ or not upstream.answers(_TORCH_INDEX):
        return ()
    return ("--torch-backend", backend)


def resolved(
    lines: Sequence[str], folder: Path, *, python: str, overrides: Sequence[str] = (), excluded: Sequence[str] = ()
) -> str:
    """Exact versions of all packages that these requirements need, as a requirements file.

    Args:
        lines: of a requirements file.
        folder: where scratch files are written.
        python: an interpreter, or a version.
        overrides: requirements in place of all others of these packages.
        excluded: packages that nothing gets.

    Raises:
        UvError: there is no such set of versions, or no index answers.
    """
    files = {"requirements.in": lines, "overrides.txt": overrides, "excluded.txt": excluded}
    for name, content in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in content), encoding="utf-8")
    given = [str(folder / "requirements.in"), "--overrides", str(folder / "overrides.txt")]
    given += ["--excludes", str(folder / "excluded.txt"), "--python", python, "--emit-index-url", "--emit-find-links"]
    return _run("pip", "compile", *given, *torch(), "--quiet", "--no-header", "--no-annotate")


def install(lock: Path, folder: Path, *, python: str, is_shown: bool) -> None:
    """Make an environment in a new folder with what `resolved` has given, and nothing else.

    Args:
        lock: a file of that text.
        folder: of the environment.
        python: an interpreter, or a version.
        is_shown: uv shows its progress on standard error.

    Raises:
        UvError: it cannot be made.
    """
    _run("venv", "--quiet", "--relocatable", "--python", python, str(folder))
    into = ["--python", str(folder), "--no-deps", "--requirements", str(lock)]
    _run("pip", "install", *into, *torch(), is_shown=is_shown)


def _run(*command: str, is_shown: bool = False) -> str:
    heard = None if is_shown else subprocess.PIPE
    done = subprocess.run(
        [program(), *command], env=settings(), stdout=subprocess.PIPE, stderr=heard, text=True, check=False
    )
    if done.returncode:
        said = [line.strip() for line in (done.stderr or "").splitlines() if line.strip()]
        raise UvError(" ".join(said) or f"uv {' '.join(command[:2])} failed, with code {done.returncode}")
    return done.stdout
