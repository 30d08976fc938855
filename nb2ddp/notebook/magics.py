"""Find IPython syntax in a cell and replace it by ordinary nodes on the same lines.

IPython's finders locate the start of a form. `x = !ls -l` becomes `x = __ipython__(0)`, and a form of three lines
becomes a call of three lines, so every line of the masked source is a line of the cell. `%time` and similar magics are
replaced by the Python that they run.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from IPython.core.inputtransformer2 import (
    EscapedCommand,
    HelpEnd,
    MagicAssign,
    SystemAssign,
    assemble_continued_line,
    find_end_of_continued_line,
    make_tokens_by_line,
)

#: The function name that replaces IPython syntax while rules query the notebook.
PLACEHOLDER = "__ipython__"

_FINDERS = (HelpEnd, MagicAssign, SystemAssign, EscapedCommand)
#: Lines in which IPython's finders may see a form: it begins the line, follows a `=`, or ends in a question mark.
_MAY_HOLD_SYNTAX = re.compile(r"^\s*[!%?,;/]|=[\s\\]*[!%]|\?[\s\\]*(?:#.*)?$", re.MULTILINE)
_CELL_MAGIC = re.compile(r"%%(?P<name>\w[\w.-]*)(?P<arguments>.*)")
#: A string of a shell command, or an escaped character outside one.
_QUOTED = re.compile(r"""'[^']*'?|"(?:\\[\s\S]|[^"\\])*"?|\\[^\n]""")
#: Cell magics whose body is Python that runs in the notebook's own namespace.
PYTHON_CELL_MAGICS = frozenset({"capture", "time", "timeit", "prun", "memit", "debug", "snakeviz"})
#: Magics that run the Python on their line, and their options that take a value.
_TIMERS = {"time": "", "timeit": "nrp", "prun": "lsTD", "memit": "rt", "lprun": "fmDTu", "mprun": "fT"}
#: Line magics that are shell commands under their own names.
_COMMANDS = frozenset("cat conda cp head ldir lf lk ll ls lx mamba micromamba mkdir mv pip rm rmdir tail uv".split())
#: Line magics that a single-line cell may spell without `%`, if no variable has the name.
_AUTOMAGICS = frozenset(
    "alias cat cd clear conda cp history ldir less lf lk ll ls lx man matplotlib mkdir more mv pip popd pushd"
    " pwd reset rm rmdir uv who whos".split()
)
#: Further magics of this kind, but only with arguments: text after the bare name is never Python.
_AUTOMAGICS_WITH_ARGUMENTS = frozenset("config env load_ext reload_ext run set_env time timeit".split())
_AUTOMAGIC = re.compile(r"(?P<name>\w+)(?:[ \t]+(?P<arguments>[^=\s].*))?")


class Kind(Enum):
    """The forms of IPython syntax."""

    LINE_MAGIC = "line magic"  #: `%name arguments`
    CELL_MAGIC = "cell magic"  #: `%%name arguments`, with or without a body
    SHELL = "shell command"  #: `!command`, `!!command`, `%ls`, `%pip install` and the like
    HELP = "help"  #: `name?`, `?name`
    AUTOCALL = "autocall"  #: `/f x`, `,f x`, `;f x`


@dataclass(frozen=True)
class Syntax:
    """One IPython form.

    Attributes:
        kind: the kind of form.
        name: the magic's name without `%`; empty for other forms.
        text: the rest: arguments, command, or the object of a help request. Continued lines are joined.
        source: the form as the notebook writes it.
        body: the lines below a cell magic that are not Python; None for every other form.
    """

    kind: Kind
    name: str
    text: str
    source: str
    body: str | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.text}".strip()

    @property
    def command(self) -> str:
        """The shell command, with line breaks where the shell reads them as IPython does.

        Inside single quotes the shell would keep a backslash and a line break, which IPython replaces by a blank. In
        JSON, which ignores blanks, the break stays; other quotes end before it and begin again after it.
        """
        if not self.source.startswith("!") or "\\\n" not in self.source:
            return self.text
        kept = _QUOTED.sub(_breaking, self.source)
        return "\n".join(line.rstrip() for line in textwrap.dedent(kept.lstrip("!").strip()).split("\n"))


def _breaking(quoted: re.Match[str]) -> str:
    """Return a string whose line breaks the shell reads as IPython does."""
    if quoted[0][0] != "'":
        return quoted[0].replace("\\\n", " \\\n")
    is_json = quoted[0][1:].lstrip()[:1] in ("{", "[")
    return quoted[0].replace("\\\n", "\n" if is_json else " '\\\n'")


@dataclass(frozen=True)
class Masked:
    """A cell's source with `__ipython__(k)` in place of its k-th form; the same number of lines."""

    source: str
    forms: tuple[Syntax, ...]


def mask(source: str, first: int = 0, bound: frozenset[str] = frozenset()) -> Masked:
    """Replace every IPython form of a cell by a call with the same number of lines.

    Args:
        source: the cell.
        first: the number of its first form.
        bound: names that the notebook binds; a single-line cell that begins with one is not an automagic.
    """
    forms: list[Syntax] = []
    lines = source.split("\n")

    def call(form: Syntax, height: int) -> str:
        forms.append(form)
        return f"{PLACEHOLDER}({first + len(forms) - 1}" + "\n" * (height - 1) + ")"

    done = 0  # lines that cell magics have used
    while (at := _first_code_line(lines, done)) is not None and (magic := _CELL_MAGIC.match(lines[at])):
        name, arguments = magic["name"], magic["arguments"].strip()
        if name in PYTHON_CELL_MAGICS:
            timed = _timed(name, arguments)
            lines[at] = timed or call(Syntax(Kind.CELL_MAGIC, name, arguments, lines[at].lstrip()), 1)
            done = at + 1
        else:
            body = "\n".join(lines[at + 1 :])
            form = Syntax(Kind.CELL_MAGIC, name, arguments, "\n".join(lines[at:]), body)
            lines[at:] = call(form, len(lines) - at).split("\n")
            done = len(lines)
    if automagic := _automagic(lines[done:], bound):
        at = next(i for i in range(done, len(lines)) if lines[i].strip())
        lines[at] = call(automagic, 1)
    elif _MAY_HOLD_SYNTAX.search("\n".join(lines[done:])):
        lines = _mask_lines(lines, call)
    return Masked("\n".join(lines), tuple(forms))


def _mask_lines(lines: list[str], call: Callable[[Syntax, int], str]) -> list[str]:
    """Replace line forms in order, since the code after a form may not tokenize before it is replaced."""
    text = [line + "\n" for line in lines]
    while forms := list(_forms(text)):
        for start, column, end, form in forms:
            before, height = text[start][:column], end - start + 1
            timed = _timed(form.name, form.text) if form.name == "time" or not before.strip() else ""
            masked = before + (timed + "\n" * (height - 1) if timed else call(form, height))
            text[start : end + 1] = [line + "\n" for line in masked.split("\n")]
    return [line[:-1] for line in text]


def _timed(name: str, text: str) -> str:
    """Return the Python that `%time` and similar magics run; empty if there is none."""
    valued = _TIMERS.get(name)
    if valued is None:
        return ""
    options = re.match(rf"(-({f'[{valued}]' if valued else '(?!)'}\s*\S+|-[\w-]+|\w+)\s*)*", text)
    code = text[options.end() if options else 0 :]
    return "" if code.startswith("#") else code


def _forms(text: list[str]) -> Iterator[tuple[int, int, int, Syntax]]:
    """Yield the first line and column, the last line and the syntax of each form, up to one that Python continues."""
    for tokens in make_tokens_by_line(text):
        forms = [form for finder in _FINDERS if (form := finder.find([tokens]))]
        if not forms:
            continue
        form = min(forms, key=lambda f: (f.start_line, f.start_col, f.priority))
        start, column = form.start_line, form.start_col
        if isinstance(form, HelpEnd):
            end = form.q_line
            source = "".join(text[start : end + 1])[column:-1]
            asked = source.split("#")[0].strip().rstrip("?")
            yield start, column, end, Syntax(Kind.HELP, "", asked.strip(), source)
        else:
            end = min(find_end_of_continued_line(text, start), len(text) - 1)
            line = assemble_continued_line([*text, "\n"], (start, column), end).strip()
            yield start, column, end, _parse(line, "".join(text[start : end + 1])[column:-1])
        if tokens[-1].end[0] > end + 1:
            return


def _parse(line: str, source: str) -> Syntax:
    if line.startswith("!"):
        return Syntax(Kind.SHELL, "", line.lstrip("!").strip(), source)
    if line.startswith("%"):
        name, _, arguments = line.lstrip("%").strip().partition(" ")
        return _line_magic(name, arguments, source)
    if line.startswith("?"):
        return Syntax(Kind.HELP, "", line.strip("? "), source)
    return Syntax(Kind.AUTOCALL, line[0], line[1:].strip(), source)


def _line_magic(name: str, arguments: str, source: str) -> Syntax:
    """Return a line magic, or the shell command that it runs."""
    text = arguments.strip()
    if name in _COMMANDS:
        text, name = f"{name} {text}".strip(), "system"
    if name in ("sx", "system"):
        return Syntax(Kind.SHELL, "", text, source)
    return Syntax(Kind.LINE_MAGIC, name, text, source)


def _first_code_line(lines: list[str], start: int) -> int | None:
    """Return the number of the first line with code, if any: Colab allows a title comment above a cell magic."""
    code = (number for number in range(start, len(lines)) if lines[number].partition("#")[0].strip())
    return next(code, None)


def _automagic(lines: list[str], bound: frozenset[str]) -> Syntax | None:
    code = [line.strip() for line in lines if line.strip()]
    if len(code) != 1:
        return None
    match = _AUTOMAGIC.fullmatch(code[0])
    if not match or match["name"] in bound:
        return None
    known = match["name"] in _AUTOMAGICS or (match["arguments"] and match["name"] in _AUTOMAGICS_WITH_ARGUMENTS)
    if not known or (match["arguments"] or " ")[0] in "([":
        return None
    return _line_magic(match["name"], match["arguments"] or "", code[0])
