"""Parse a Python file that is a notebook."""

from __future__ import annotations

import ast
import warnings

from nb2ddp.results import NotebookError


def parse_python(text: str, what: str) -> ast.Module:
    """Parse a Python file as the Python that runs here does.

    Args:
        text: the file's content.
        what: the kind of notebook, for the error.

    Raises:
        NotebookError: it is not Python, with the line of the file.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a string, which is the author's
            return ast.parse(text)
    except SyntaxError as fault:
        error = NotebookError(f"not a {what}: not Python ({fault.msg})")
        error.file_line = fault.lineno or 1
        error.line_text = [*text.split("\n"), ""][error.file_line - 1]
    except (ValueError, RecursionError) as fault:
        error = NotebookError(f"not a {what}: not Python ({fault})")
    raise error
