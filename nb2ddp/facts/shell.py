"""Parse IPython shell commands: what they run, and the Python that does the same."""

from __future__ import annotations

import ast
import builtins
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from IPython.utils.text import DollarFormatter

_PIP = r"(?:(?:\S*python[\d.]*|\{sys\.executable\})\s+-m\s+)?(?:uv\s+)?pip3?(?:\.\d+)?"
#: Where packages and what is made of them are kept; Unsloth's compiled code belongs to the running job.
_CACHES = r"(?:(?:site|dist)-packages|__pycache__|\.cache/(?:pip|uv)|/usr/local|unsloth_compiled_cache)"
_INSTALL = re.compile(
    rf"(?:sudo\s+(?:-\S+\s+)*)?(?:{_PIP}\s+(?:-\S+\s+)*(?:install|uninstall|download)\b"
    r"|pip3?-autoremove\b|uv\s+(?:add|sync|venv|python|self|remove)\b"
    r"|(?:conda|mamba|micromamba)\s+(?:-\S+\s+)*(?:install|update|create|env|remove|uninstall|clean)\b"
    r"|(?:apt|apt-get|aptitude|dpkg|yum|dnf|brew|apk)\s+(?:\S+\s+)*?(?:install|add|update|upgrade|\w*remove|purge|-i)\b"
    rf"|(?:npm|pnpm|yarn)\s+(?:install|i|ci|add|remove|uninstall|rm)\b|ldconfig\b|{_PIP}\s+cache\b|kill\s+-9\s"
    rf"|find\s[^|;&]*{_CACHES}|rm(?=\s.*{_CACHES})(?:\s+(?:-\S+|\d?>\S*|\S*{_CACHES}\S*))+\s*$)"
)
_REMOVED_CACHE = re.compile(rf"\s+\S*{_CACHES}\S*")
#: A command up to its comment, which stands behind a blank.
_BEFORE_COMMENT = re.compile(r"""(?:'[^']*'?|"[^"]*"?|[^'"#]|(?<=[^ \t])#)*""")
#: What stands beside an install and is of no use without it.
_IDLE = re.compile(r"(command -v|cd|which)\s|(true|:)$")
_SEPARATOR = re.compile(r"(?:\s|\\\n)*(&&|\|\||;)\s*")  # behind the end of a line that goes on, too
#: A command that another shell is given.
_GIVEN_TO_SHELL = re.compile(r"(?:ba|z)?sh\s+-l?c\s+(['\"]?)(?P<command>.*)\1", re.DOTALL)
#: Commands that only show something.
_SHOWING = re.compile(
    r"(?:nvidia-smi|ls|pwd|cat|head|tail|df|du|free|lscpu|nproc|uname|which|whoami|date|wc|file|tree|echo|ps|top"
    rf"|printenv|env(?=\s*$)|nvcc|{_PIP}\s+(?:list|show|freeze|check|--version|-V)|\S*python[\d.]*\s+(?:--version|-V))\b"
)
_FILTER = re.compile(r"(?:[ef]?grep|sort(?!.*\s-o)|uniq|awk|sed(?!.*\s-\w*i)|cut|tr|column|less|more)\b")
_BRACED_NAME = re.compile(r"(?<![\w$@{])\{([A-Za-z_]\w*)\}(?!\})")
#: Programs with braces of their own.
_OWN_BRACES = re.compile(r"\b(awk|xargs|jq|parallel|fd)\b")
_UNZIP = re.compile(r"\bunzip((?:\s+-\w+)*)(?=\s+[^-\s])")
#: Commands that watch something until a person stops them.
_ENDLESS = re.compile(
    r"(?:nvidia|rocm)-smi\s(?:.*\s)?(?:-l\b|-lms\b|--loop|dmon\b|pmon\b)|watch\s|tail\s+(?:-\S+\s+)*(?:-\w*[fF]\b|--follow)"
    r"|(?:htop|nvtop|gpustat\s.*-i|top(?!\s+-\w*[bn])|while\s+(?:true|:))\b|ping\s(?!.*-c)|yes\s*$"
)
#: What a shell keeps for the commands behind it.
_OF_ITS_SHELL = re.compile(r"(?:cd|export|unset|alias|ulimit)\b[^|&>]*$")
_SETS_VARIABLES = re.compile(r"(?:source|\.)\s+\S+$")
#: What ends programs that it finds, whoever has started them.
_KILLING = re.compile(r"\b(pkill|killall)\s|\bfuser\s(.*\s)?-\w*k|\bxargs\s(.*\s)?kill\b|\bkill\s(-\S+\s+)*[$`]")
_OF_THE_JOB = re.compile(
    r"\b(pkill|killall)\b.*\b(python[\d.]*|accelerate|torchrun)\b|/dev/nvidia|nvidia-smi|grep python"
)
#: Programs that serve until they are stopped.
_SERVING = re.compile(
    r"(\S*python[\d.]*\s+-m\s+)?((vllm|ollama)\s+serve|uvicorn|gunicorn|streamlit\s+run|flask\s+run|llama-server"
    r"|tensorboard|http\.server|text-generation-launcher|sglang\.launch_server)\b(?!.*--(help|version)\b)"
)
#: What bash understands and a plain sh does not.
_BASH = re.compile(
    r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}|\[\[|(?:^|[;&|]\s*)source\s|<\(|&>|<<<|\$'|\|&|\bshopt\b|\bpipefail\b"
)


@dataclass(frozen=True)
class Command:
    """A shell command as Python: an expression for its text, and how it is to be run."""

    expression: str
    background: bool
    bash: bool

    @property
    def run(self) -> str:
        """The statement that runs it, as the notebook does: a failing command does not stop the script."""
        return f"subprocess.{'Popen' if self.background else 'run'}({self._arguments})"

    @property
    def lines(self) -> str:
        """The expression for the lines it prints."""
        return f"subprocess.run({self._arguments}, capture_output=True, text=True).stdout.splitlines()"

    @property
    def _arguments(self) -> str:
        return f"{self.expression}, shell=True" + (', executable="/bin/bash"' if self.bash else "")


def without_comment(command: str) -> str:
    """Drop a trailing `# comment` of a magic or a shell command."""
    before = _BEFORE_COMMENT.match(command)
    return command if before is None or before[0] == command else before[0].rstrip()


def parts(command: str) -> list[str]:
    """The commands that `&&`, `||` and `;` join."""
    return [part for part in _SEPARATOR.split(without_comment(command))[::2] if part.strip()]


def is_install(command: str) -> bool:
    """True for a command, or several lines of them, that installs packages and does nothing else."""
    if "\n" in command.replace("\\\n", " ").strip():
        return is_install_script(command)
    pieces = [piece.strip("() ") for piece in parts(command.strip("() \n"))]
    others = [piece for piece in pieces if not _INSTALL.match(piece)]
    return len(others) < len(pieces) and all(_IDLE.match(piece) for piece in others)


#: What a shell script does around its installs: it finds out, says, and decides.
_AROUND = re.compile(
    r"(?:set|export|echo|printf|exit|return|test|true|false|if|fi|elif|else|then|case|esac|for|while|do|done|command|local"
    r"|trap|awk|grep|cut|sort|tr|sed\s(?!.*-i)|source|python[\d.]*\s+-c?(?=\s|Q)|wait|shift|read|:|\.)(?=\s|$)|\[|[A-Za-z_]\w*="
)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1(.*)\n(?:.*\n)*?\s*\2[ \t]*(?=\n|\Z)")
_CASE_LABEL = re.compile(r"(?m)^\s*\(?[^\s()=]+\)(?=\s)")
_LEADING = re.compile(r"(?:[\s({})!]|(?:then|do|else|if|elif|while|sudo|time)\s|\w+\(\))+")


def is_install_script(script: str) -> bool:
    """True for a shell script that installs packages, and otherwise only asks and decides how."""
    try:
        text = _CASE_LABEL.sub("", _unquoted(_HEREDOC.sub(r"\3", script.replace("\\\n", " "))))
    except (IndexError, ValueError):  # a quote that nothing closes
        return False
    found = False
    for piece in re.split(r"\n|;|&&|\|\|?|&(?!>)", text):
        words = _LEADING.sub("", piece + " ", count=1) if _LEADING.match(piece + " ") else piece
        if _INSTALL.match(words):
            found = True
        elif words.strip() and not _AROUND.match(words) and not _SHOWING.match(words):
            return False
    return found


def _unquoted(text: str) -> str:
    """A script without its comments, and with Q for what it quotes or has a command say."""
    parts, at = [], 0
    while at < len(text):
        end = _end_of_group(text, at)
        if end > at + 1:
            parts.append("Q")
        elif text[at] == "#" and (at == 0 or text[at - 1].isspace()):
            end = at + len(text[at:].split("\n", 1)[0])
        else:
            parts.append(text[at])
        at = end
    return "".join(parts)


def _end_of_group(text: str, at: int) -> int:
    """Where a quoted text or a substitution that begins at a place ends; else the next letter."""
    if text[at] == "\\":
        return at + 2
    if text[at] in "'`":
        return text.index(text[at], at + 1) + 1
    closing = '"' if text[at] == '"' else ")" if text.startswith("$(", at) else "}" if text.startswith("${", at) else ""
    if not closing:
        return at + 1
    at += 1 if closing == '"' else 2
    while text[at] != closing:
        plain = closing == '"' and text[at] == "'"  # a single quote in double ones is a letter
        at = at + 1 if plain else _end_of_group(text, at)
    return at + 1


def never_ends(command: str) -> bool:
    """True for a command that goes on until a person stops it."""
    return any(_ENDLESS.match(part) for part in parts(command.rstrip("& ")))


def kills(command: str) -> bool:
    """True for a command that ends programs of the whole machine: `pkill -f server`, `kill $(lsof -t -i:8000)`."""
    return _KILLING.search(without_comment(command)) is not None


def kills_job(command: str) -> bool:
    """True for a command that ends every Python program, or all that use a GPU: a job of the script is among them."""
    return kills(command) and _OF_THE_JOB.search(command) is not None


def serves(command: str) -> bool:
    """True for a command that serves until it is stopped, and is waited for."""
    last = command.rstrip()
    return not last.endswith("&") and any(_SERVING.match(part.removeprefix("nohup ")) for part in parts(last))


def is_of_its_shell(command: str) -> bool:
    """True for a command that only changes the shell that runs it, which then ends."""
    return bool(pieces := parts(command)) and all(map(_OF_ITS_SHELL.match, pieces))


def without_installs(command: str) -> str:
    """The rest of a command whose parts install packages, or remove their caches, among other things."""
    pieces = _SEPARATOR.split(without_comment(command))
    pieces = [
        _REMOVED_CACHE.sub("", piece) if piece.startswith("rm ") and not _INSTALL.match(piece) else piece
        for piece in pieces
    ]
    joined = zip(["", *pieces[1::2]], pieces[::2], strict=True)
    others = [pair for pair in joined if pair[1].strip() and not _INSTALL.match(pair[1].strip("() "))]
    kept = [part for pair in others for part in pair][1:]
    return "".join(part if part == ";" else f" {part}" for part in kept).strip().replace(" ;", ";")


def unwrapped(command: str) -> str:
    """The command that a shell of its own is given, `bash -c "ls"`; any other as it is."""
    given = _GIVEN_TO_SHELL.fullmatch(command.strip())
    return command if given is None else given["command"]


def words(command: str) -> list[str]:
    """The words of a command, without their quotes; split at blanks where a quote is left open."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


#: A quoted text, a comment, or a redirection. Unlike in a shell, `transformers>=4.50` without quotes is one word.
_NO_WORD = re.compile(r"""('[^']*'|"[^"]*")|(?<!\S)(?:#.*|(?:\d*|&)[<>]+[^\S\n]*&?[^\s;|&()]*)""")
_BETWEEN = frozenset(";&|()\n")


def commands(text: str) -> list[list[str]]:
    """Return the simple commands of a shell text as words, without quotes, redirections and comments."""
    found: list[list[str]] = [[]]
    plain = _NO_WORD.sub(r"\1", text.replace("\\\n", " "))
    lexer = shlex.shlex(plain, posix=True, punctuation_chars="".join(_BETWEEN))
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        for word in lexer:
            if _BETWEEN.issuperset(word):
                found.append([])
            else:
                found[-1].append(word)
    except ValueError:  # a quote that nothing closes
        found.pop()
    return list(filter(None, found))


def only_shows(command: str) -> bool:
    """True for a command that reads and prints: every process need not wait for it."""
    inner = unwrapped(command)
    shown = [part for part in parts(inner) if not (_OF_ITS_SHELL.match(part) or _SETS_VARIABLES.match(part))]
    pieces = [piece for part in shown for piece in re.split(r"\s*\|\s*", part)]
    all_show = all(_FILTER.match(piece) or _SHOWING.match(piece) for piece in pieces)
    return not re.search(r">|\$\(|`", inner) and bool(pieces or not parts(inner)) and all_show


def parse(command: str, is_bound: Callable[[str], bool]) -> Command:
    """Turn a command of the notebook into Python.

    `{name}` and `$name` are filled in where the notebook has bound the name, as IPython does; any other brace or
    dollar is the shell's own, and then, as in IPython, nothing of the command is filled in.

    Args:
        command: what the shell would be given.
        is_bound: true for a name that the notebook binds where the command stands.
    """
    text = without_comment(command)
    background = text.endswith("&") and not text.endswith("&&")
    if background:
        text = text[:-1].rstrip()
    return Command(_expression(text, is_bound), background, bool(_BASH.search(text)))


def undefined(command: str, is_bound: Callable[[str], bool]) -> list[str]:
    """Names in braces that nothing defines at a place, and that no shell reads there: `{HF_TOKEN}`."""
    if _OWN_BRACES.search(command):
        return []
    names = dict.fromkeys(match[1] for match in _BRACED_NAME.finditer(without_comment(command)))
    return [name for name in names if not is_bound(name) and not hasattr(builtins, name)]


def rerun(command: str) -> str:
    """A command that asks nobody when it runs a second time: `unzip` would, before it replaces a file."""
    return _UNZIP.sub(lambda match: match[0] if set("lnoptvzZ") & set(match[1]) else f"unzip -n{match[1]}", command)


def trailing_comment(command: str) -> str:
    """The `# comment` at the end of a command of one line; empty where there is none."""
    return "" if "\n" in command else command[len(without_comment(command)) :].strip()


def _expression(text: str, is_bound: Callable[[str], bool]) -> str:
    try:
        parsed = list(DollarFormatter().parse(text))
    except ValueError:  # a brace that is the shell's own
        return quoted(text)
    names = [name for _, name, _, _ in parsed if name is not None]
    if not all(_is_filled(name, is_bound) for name in names) or any(
        "." in name and f"${name}" in text for name in names
    ):
        return quoted(text)  # as IPython: where one is unknown, nothing is filled in; `$name.txt` has no such attribute
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
    literals = "".join(literal for literal, _ in pieces)
    quotes = ('"""', "'''") if "\n" in literals else ('"', "'", '"""', "'''")
    quote = next((q for q in quotes if q not in body and not (len(q) == 3 and body.endswith(q[0]))), None)
    if quote is None or "\\" in expressions:
        return " + ".join(
            repr(lit) if inside is None else f"{lit!r} + str({inside})" for lit, inside in pieces if lit or inside
        )
    prefix = "rf" if "\\" in literals else "f"
    return f"{prefix}{quote}{body}{quote}"


def _is_filled(inside: str, is_bound: Callable[[str], bool]) -> bool:
    """True for a Python expression all of whose names the notebook (or Python) binds."""
    try:
        expression = ast.parse(inside.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return False
    names = [node.id for node in ast.walk(expression) if isinstance(node, ast.Name)]
    return any(map(is_bound, names)) and all(is_bound(name) or hasattr(builtins, name) for name in names)


def quoted(text: str) -> str:
    """A plain Python string literal for a text, in the quotes that need the fewest escapes and read like the text."""
    if text.isprintable():
        quotes = [quote for quote in ('"', "'", '"""', "'''") if not text.startswith(quote[0])]
    else:
        quotes = ['"""', "'''"] if all(c.isprintable() or c in "\n\t" for c in text) else []
    fitting = (quote for quote in quotes if quote not in text and not text.endswith((quote[0], "\\")))
    quote = next(fitting, "")
    return f"{'r' if chr(92) in text else ''}{quote}{text}{quote}" if quote else repr(text)
