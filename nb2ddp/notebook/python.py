"""Parse Python, and find the names that it defines and reads, without running it."""

from __future__ import annotations

import ast
import symtable
import warnings
from dataclasses import dataclass, replace

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
        line = fault.lineno or 1
        raise refusal(f"not a {what}: not Python ({fault.msg})", line, [*text.split("\n"), ""][line - 1]) from None
    except (ValueError, RecursionError) as fault:
        raise NotebookError(f"not a {what}: not Python ({fault})") from None


def refusal(message: str, line: int, text: str) -> NotebookError:
    """What is wrong with a line of the file, which says some text."""
    error = NotebookError(message)
    error.diagnostics = (replace(error.diagnostic, file_line=line, line_text=text),)
    return error


@dataclass(frozen=True)
class Names:
    """The names that a piece of code binds at its top level, and those that it takes from elsewhere.

    Attributes:
        defines: names that it binds and leaves bound.
        reads: names of elsewhere that it, or a function in it, looks up or deletes.
        late: names of its own that a function in it looks up whenever it is called.
    """

    defines: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()


def names(source: str) -> Names:
    """Return the names of some code; none if it is not Python."""
    try:
        tree, table = ast.parse(source), symtable.symtable(source, "cell", "exec")
    except SyntaxError:
        return Names()
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    stored = {name.id for name in nodes if isinstance(name.ctx, ast.Store)}
    deleted = {name.id for name in nodes if isinstance(name.ctx, ast.Del)} - stored
    caught = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name} - stored
    bound = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    own = bound - deleted - caught
    late = frozenset[str]().union(*map(_reads, table.get_children())) & own
    return Names(frozenset(own), (_reads(table) | deleted) - own - caught, late)


def _reads(table: symtable.SymbolTable) -> frozenset[str]:
    """Return the notebook's names that code, or a function in it, looks up."""
    is_top = table.get_type() == "module"
    own = {s.get_name() for s in table.get_symbols() if s.is_referenced() and (is_top or s.is_global())}
    return frozenset(own).union(*map(_reads, table.get_children()))
