"""Write and read the line that marks a file of nb2ddp: how it was written, from what, and whether it was edited since.

    #   convert again: nb2ddp ../finetune.ipynb train.py  # nb2ddp 0.1.0, sha256:0123456789abcdef

A shell can run the command unchanged, in the script's folder. The line has no time and no absolute path: the same
conversion gives the same bytes. A notebook has no comments: there it is a line of the metadata.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from nb2ddp import __version__
from nb2ddp.options import Options, arguments
from nb2ddp.script.launch import CONFIG_NAME, path_word

#: The placeholder for a notebook whose name does not fit in a comment, or in a file for several notebooks.
_SOME_NOTEBOOK = "NOTEBOOK.ipynb"
#: References that name no notebook: the one of standard input, and the placeholder.
NO_NOTEBOOK = ("-", _SOME_NOTEBOOK)
#: A comment in the file that the scripts of one folder share.
_SHARED = f"# All scripts in this folder use this file: {_SOME_NOTEBOOK} stands for the notebook of any of them.\n"
_NUMBER = "# --num_processes on the command line overrides the number in this file.\n"
_DIGITS = 16
_LINE = re.compile(
    rf'^(?:#   |  "nb2ddp": ")convert again: (?P<command>.*)'
    rf'  (?:# |\()nb2ddp (?P<version>\S+), sha256:(?P<digest>[0-9a-f]{{{_DIGITS}}})\)?(?:",)?\n',  # "(": of old scripts
    re.MULTILINE,
)


@dataclass(frozen=True)
class Stamp:
    """The line `convert again:` of a file."""

    command: str  #: the command that writes the file again
    version: str  #: of nb2ddp
    digest: str  #: of the file as it was written
    is_intact: bool  #: the file is still as it was written

    @property
    def notebook(self) -> str:
        """The notebook's path from the file's folder; `-` if the line names none."""
        try:
            return shlex.split(self.command)[1]
        except (ValueError, IndexError):
            return "-"


def sign_all(files: Mapping[str, str], reference: str, script_name: str, options: Options) -> dict[str, str]:
    """Add the line to the files of a conversion.

    Args:
        files: the script and the files next to it, by name.
        reference: the notebook's path from the script's folder.
        script_name: the script's file name.
        options: the options of the conversion. The file that the scripts of one folder share names only those that
            affect it, and no notebook.
    """
    notebook = reference if reference.isprintable() else _SOME_NOTEBOOK
    words = ["nb2ddp", path_word(notebook) if notebook != "-" else notebook, path_word(script_name)]
    own = shlex.join([*words, *arguments(options, leave_out=("gpus",) if options.split_model else ())])
    shared = shlex.join(["nb2ddp", _SOME_NOTEBOOK, *arguments(options.launch, leave_out=("launcher",))])
    above = _SHARED + _NUMBER * (options.launch.processes > 1)
    return {
        name: sign(above + text, shared) if name == CONFIG_NAME else sign(text, own) for name, text in files.items()
    }


def sign(text: str, command: str) -> str:
    """Add the line to a file, below the comments that it begins with.

    Args:
        text: the content of a notebook, or of a file in a language whose comments begin with `#`.
        command: the command that writes it again, on one line.
    """

    def signed(digest: str) -> str:
        line = f"convert again: {command}  # nb2ddp {__version__}, sha256:{digest}"
        return _insert(text, f'  "nb2ddp": {json.dumps(line)},\n' if text.startswith("{") else f"#   {line}\n")

    return signed(_digest(signed("0" * _DIGITS)))


def read(text: str) -> Stamp | None:
    """Return the line of a file as a `Stamp`; None for a file without one."""
    match = _LINE.search(text)
    if match is None:
        return None
    start, end = match.span("digest")
    digest = _digest(text[:start] + "0" * _DIGITS + text[end:])
    command = json.loads(f'"{match["command"]}"') if text.startswith("{") else match["command"]
    return Stamp(command, match["version"], match["digest"], digest == match["digest"])


def line(text: str) -> str:
    """Return the line of a file, with its line end; empty for a file without one."""
    match = _LINE.search(text)
    return match[0] if match else ""


def unsigned(text: str) -> str:
    """Return a file without its line."""
    return _LINE.sub("", text, count=1)


def copy(signed: str, text: str) -> str:
    """Return a file with the line of another."""
    return _insert(text, line(signed))


def _insert(text: str, line: str) -> str:
    head = re.search(r'\n "metadata": \{\n', text) if text.startswith("{") else re.match(r"(?:#[^\n]*\n)*", text)
    end = head.end() if head else 0
    return text[:end] + line + text[end:]


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]
