"""Find, configure and run uv (https://docs.astral.sh/uv/), which resolves and installs packages."""

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

#: An option of pip -> uv's environment variable with the same meaning, and the separator of its values.
_AS_PIP = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
}
#: The index of builds of torch that need no GPU. The builds for each GPU are next to it.
_TORCH_INDEX = "https://download.pytorch.org/whl/cpu"


class UvError(Exception):
    """uv is not installed, or one of its commands failed. The message is one sentence."""


def found() -> str | None:
    """Return uv's path: of this environment, of the uv that started this program, or the first on PATH; else None."""
    if importlib.util.find_spec("uv") is not None:
        import uv

        return str(uv.find_uv_bin())
    return os.environ.get("UV") or shutil.which("uv")


def program() -> str:
    """Return the path of uv.

    Raises:
        UvError: uv is not installed.
    """
    uv = found()
    if uv is None:
        raise UvError("uv makes an environment with these versions, but it is not installed: pip install uv")
    return uv


@cache
def settings() -> Mapping[str, str]:
    """Return uv's environment variables: with the options of the user's pip, unless uv has its own configuration.

    If several indexes have a package, pip and uv choose differently. With pip's options, uv chooses as pip does.
    """
    environment = dict(os.environ)
    homes = (os.environ.get("XDG_CONFIG_HOME", "~/.config"), "/etc")
    files = [Path(home, "uv", "uv.toml").expanduser() for home in homes]
    if any(name.startswith(("UV_INDEX", "UV_DEFAULT_INDEX")) for name in environment) or any(map(Path.is_file, files)):
        return environment
    for key, value in _pip().items():
        if key in _AS_PIP and _AS_PIP[key][0] not in environment:
            name, between = _AS_PIP[key]
            environment[name] = between.join(value.split())
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", **environment}


def _pip() -> dict[str, str]:
    """Return pip's options from its configuration files and environment variables."""
    pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else [shutil.which("pip") or "pip3"]
    try:
        listed = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=False).stdout
    except OSError:
        listed = ""
    lines = re.findall(r"(?m)^(?:global|install|:env:)\.([\w-]+)=(.*)$", listed)
    options = {key: str(ast.literal_eval(value)) for key, value in lines}
    variables = {key: os.environ.get(f"PIP_{key.replace('-', '_').upper()}") for key in _AS_PIP}
    return options | {key: value for key, value in variables.items() if value}


@cache
def torch(backend: str = "cpu") -> tuple[str, ...]:
    """Return options that take torch from the index of its builds for a backend; none if the index does not answer.

    Args:
        backend: "cpu", or "auto" for the backend of this machine's GPU.
    """
    if "UV_TORCH_BACKEND" in os.environ or not upstream.answers(_TORCH_INDEX):
        return ()
    return ("--torch-backend", backend)


def resolved(
    lines: Sequence[str], folder: Path, *, python: str, overrides: Sequence[str] = (), excluded: Sequence[str] = ()
) -> str:
    """Return the exact versions of all packages that these requirements need, as a requirements file.

    Args:
        lines: the lines of a requirements file.
        folder: the folder for scratch files.
        python: an interpreter, or a version.
        overrides: requirements that replace all others for these packages.
        excluded: packages that are never installed.

    Raises:
        UvError: no versions meet all requirements, or no index answers.
    """
    files = {"requirements.in": lines, "overrides.txt": overrides, "excluded.txt": excluded}
    for name, content in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in content), encoding="utf-8")
    given = [str(folder / "requirements.in"), "--overrides", str(folder / "overrides.txt")]
    given += ["--excludes", str(folder / "excluded.txt"), "--python", python, "--emit-index-url", "--emit-find-links"]
    return _run("pip", "compile", *given, *torch(), "--quiet", "--no-header", "--no-annotate")


def install(lock: Path, folder: Path, *, python: str, is_shown: bool) -> None:
    """Create an environment in a new folder with the packages that `resolved` returned, and no others.

    Args:
        lock: a file with the text that `resolved` returned.
        folder: the folder of the environment.
        python: an interpreter, or a version.
        is_shown: whether uv shows its progress on standard error.

    Raises:
        UvError: the environment cannot be created.
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
        errors = [line.strip() for line in (done.stderr or "").splitlines() if line.strip()]
        raise UvError(" ".join(errors) or f"uv {' '.join(command[:2])} failed, with code {done.returncode}")
    return done.stdout
