"""Inline script metadata: the packages that a Python file asks for.

https://packaging.python.org/en/latest/specifications/inline-script-metadata/
"""

from __future__ import annotations

import re
import sys
from typing import Any

from nb2ddp.notebook.ipynb import Metadata
from nb2ddp.results import NotebookError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: The standard's own expression.
BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")


def read_metadata(text: str) -> Metadata:
    """Read the `script` block of a Python file; a file without one needs nothing.

    Raises:
        NotebookError: there are two, or what the block holds is not what the standard asks for.
    """
    blocks = [match["content"] for match in BLOCK.finditer(text) if match["type"] == "script"]
    if not blocks:
        return Metadata()
    if len(blocks) > 1:
        raise NotebookError("there are two `# /// script` headers: keep one")
    content = "".join(line[2:] if line.startswith("# ") else line[1:] for line in blocks[0].splitlines(keepends=True))
    try:
        table: dict[str, Any] = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise NotebookError(f"the `# /// script` header is not TOML ({error}): correct it") from None
    dependencies, python = table.get("dependencies", []), table.get("requires-python", "")
    if not isinstance(dependencies, list) or not all(isinstance(each, str) for each in dependencies):
        raise NotebookError("`dependencies` of the `# /// script` header must be a list of strings")
    if not isinstance(python, str):
        raise NotebookError("`requires-python` of the `# /// script` header must be a string")
    return Metadata(tuple(dependencies), python)
