"""Parse IPython shell commands, and write Python that does the same."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable
from dataclasses import dataclass

from IPython.utils.text import DollarFormatter

from nb2ddp.facts.commands import without_comment

_BRACED_NAME = re.compile(r"(?<![\w$@{])\{([A-Za-z_]\w*)\}(?!\})")
#: Programs that use braces.
_OWN_BRACES = re.compile(r"\b(awk|xargs|jq|parallel|fd)\b")
_UNZIP = re.compile(r"\bunzip((?:\s+-\w+)*)(?=\s+[^-\s])")
#: Syntax that bash understands and plain sh does not.
_BASH = re.compile(
    r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}|\[\[|(?:^|[;&|]\s*)source\s|<\(|&>|<<<|\$'|\|&|\bshopt\b|\bpipefail\b"
)


@dataclass(frozen=True)
class Run:
    """A shell command as Python: an expression for its text, and how to run it."""

    expression: str
    background: bool
    bash: bool

    @property
    def run(self) -> str:
        """The statement that runs the command as the notebook does: a failure does not stop the script."""
        return f"subprocess.{'Popen' if self.background else 'run'}({self._arguments})"

    @property
    def lines(self) -> str:
        """The expression for the lines that it prints."""
        return f"subprocess.run({self._arguments}, capture_output=True, text=True).stdout.splitlines()"

    @property
    def _arguments(self) -> str:
        return f"{self.expression}, shell=True" + (', executable="/bin/bash"' if self.bash else "")


def parse(command: str, is_bound: Callable[[str], bool]) -> Run:
    """Turn a command of the notebook into Python.

    `{name}` and `$name` are filled in if the notebook has bound the name, as IPython does. Any other brace or dollar
    belongs to the shell; then, as in IPython, nothing in the command is filled in.

    Args:
        command: the text for the shell.
        is_bound: returns whether the notebook has bound a name at the command.
    """
    text = without_comment(command)
    background = text.endswith("&") and not text.endswith("&&")
    if background:
        text = text[:-1].rstrip()
    return Run(_expression(text, is_bound), background, bool(_BASH.search(text)))


def undefined(command: str, is_bound: Callable[[str], bool]) -> list[str]:
    """Return the names in braces that are not bound, and that no shell reads there: `{HF_TOKEN}`."""
    if _OWN_BRACES.search(command):
        return []
    names = dict.fromkeys(match[1] for match in _BRACED_NAME.finditer(without_comment(command)))
    return [name for name in names if not is_bound(name) and not hasattr(builtins, name)]


def rerun(command: str) -> str:
    """Return a command that does not ask when it runs again: `unzip` would ask before it replaces a file."""
    return _UNZIP.sub(lambda match: match[0] if set("lnoptvzZ") & set(match[1]) else f"unzip -n{match[1]}", command)


def trailing_comment(command: str) -> str:
    """Return the `# comment` at the end of a one-line command; empty if there is none."""
    return "" if "\n" in command else command[len(without_comment(command)) :].strip()


def _expression(text: str, is_bound: Callable[[str], bool]) -> str:
    try:
        parsed = list(DollarFormatter().parse(text))
    except ValueError:  # a brace for the shell
        return quoted(text)
    names = [name for _, name, _, _ in parsed if name is not None]
    if not all(_is_filled(name, is_bound) for name in names) or any(
        "." in name and f"${name}" in text for name in names
    ):
        return quoted(text)  # as in IPython, one unknown name prevents all filling in; `$name.txt` is no attribute
    pieces: list[tuple[str, str | None]] = []
    for literal, name, spec, conversion in parsed:
        form = (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
        pieces.append((literal, None if name is None else name + form))
    return _fstring(pieces) if names else quoted("".join(literal for literal, _ in pieces))


def _fstring(pieces: list[tuple[str, str | None]]) -> str:
    body = ""
    for literal, inside in pieces:
        body += literal.replace("{", "{{").replace("}", "}}")
        body += "{" + inside + "}" if inside is not None else ""
    expressions = "".join(inside or "" for _, inside in pieces)
    quote = _quote(body)
    if not quote or "\\" in expressions:
        return " + ".join(
            repr(lit) if inside is None else f"{lit!r} + str({inside})" for lit, inside in pieces if lit or inside
        )
    return f"{'rf' if chr(92) in body else 'f'}{quote}{body}{quote}"


def _is_filled(inside: str, is_bound: Callable[[str], bool]) -> bool:
    """Return whether the notebook or Python binds all names of a Python expression."""
    try:
        expression = ast.parse(inside.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return False
    names = [node.id for node in ast.walk(expression) if isinstance(node, ast.Name)]
    return any(map(is_bound, names)) and all(is_bound(name) or hasattr(builtins, name) for name in names)


def quoted(text: str) -> str:
    """Return a plain Python string literal for a text, in the quotes that need the fewest escapes."""
    quote = _quote(text) if all(each.isprintable() or each in "\n\t" for each in text) else ""
    return f"{'r' if chr(92) in text else ''}{quote}{text}{quote}" if quote else repr(text)


def _quote(text: str) -> str:
    """Return quotes that a text fits between without an escape; empty if there are none."""
    quotes = ('"', "'", '"""', "'''") if text.isprintable() else ('"""', "'''")
    return next((q for q in quotes if q not in text and not text.endswith((q[0], "\\"))), "")
