"""What shell commands do: one lexer and one table for the whole package."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import lru_cache
from itertools import dropwhile, pairwise
from pathlib import PurePosixPath

#: Comments, each after a blank; and texts in quotes, which may contain text that looks like a comment.
_COMMENT = re.compile(r"""('[^']*'|"(?:\\.|[^"\\])*")|(?:^|(?<=\s))#.*""", re.MULTILINE)
#: A here-document: the input of a command, up to the word that ends it.
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1(.*)\n(?:.*\n)*?\s*\2[ \t]*(?=\n|\Z)")
_CASE_LABEL = re.compile(r"^\s*\(?[^\s()=]+\)(?=\s)", re.MULTILINE)
#: A command substitution: `$(which python)`.
_SUBSTITUTION = re.compile(r"""\$\((?:[^()'"]|'[^']*'|"[^"]*"|\([^()]*\))*\)""")
#: Words that may precede a program.
_BEFORE = re.compile(r"sudo|time|nohup|exec|then|do|else|if|elif|!|[{}]|\w+=.*", re.DOTALL)
#: Options for the file or folder that a command writes.
_OUTPUT = r"-[Oopd]|--(local-dir|output|outfile|outdir|directory-prefix|path)"
#: Separators of commands.
_JOINS = re.compile(r"[;&|()\n]+")
#: A redirection, with its file. Unlike in a shell, `transformers>=4.50` without quotes is one word.
_REDIRECTION = re.compile(
    r"""('[^']*'|"(?:\\.|[^"\\])*")|(?<!\S)(?:\d*|&)([<>]+)[^\S\n]*(&?)("[^"]*"|'[^']*'|[^\s;|&()]*)"""
)
#: Prefix of a word that is the target of a redirection.
_TO = "\0"
#: Separators of whole command lines.
_SEPARATOR = re.compile(r"(?:\s|\\\n)*(&&|\|\||;)\s*")
#: Commands that end all programs that they find, no matter who started them; and programs of a job among those.
_KILLING = re.compile(r"\b(pkill|killall)\s|\bfuser\s(.*\s)?-\w*k|\bxargs\s(.*\s)?kill\b|\bkill\s(-\S+\s+)*[$`]")
_OF_THE_JOB = re.compile(
    r"\b(pkill|killall)\b.*\b(python[\d.]*|accelerate|torchrun)\b|/dev/nvidia|nvidia-smi|grep python"
)

_PYTHON = r"(\S*python[\d.]*|\{sys\.executable\})"
_PIP = rf"({_PYTHON} -m )?(uv )?pip3?(\.\d+)?"
#: Folders of packages and of files made from them; Unsloth's compiled code belongs to the running job.
_CACHES = r"((site|dist)-packages|__pycache__|\.cache/(pip|uv)|/usr/local|unsloth_compiled_cache)"
#: What commands do, by their first words. The first pattern that matches decides.
_DOES = {
    # installs or removes packages, or removes files made from them
    "install": rf"{_PIP} (-\S+ )*(install|uninstall|download|cache)|pip3?-autoremove"
    r"|uv (add|sync|venv|python|self|remove)|ldconfig|kill -9"
    r"|(conda|mamba|micromamba) (-\S+ )*(install|update|create|env|remove|uninstall|clean)"
    r"|(apt|apt-get|aptitude|dpkg|yum|dnf|brew|apk) (\S+ )*(install|add|update|upgrade|\w*remove|purge|-i)"
    r"|(npm|pnpm|yarn) (install|i|ci|add|remove|uninstall|rm)"
    rf"|find .*{_CACHES}|rm( -\S+| \S*{_CACHES}\S*)*$",
    # runs until a person stops it
    "endless": r"(nvidia|rocm)-smi (.* )?(-l|-lms|--loop|dmon|pmon)|watch|tail (-\S+ )*(-\w*[fF]|--follow)"
    r"|htop|nvtop|gpustat .*-i|top(?! -\w*[bn])|while (true|:)|ping (?!.*-c)",
    # serves until it is stopped
    "serve": rf"({_PYTHON} -m )?((vllm|ollama) serve|uvicorn|gunicorn|streamlit run|flask run|llama-server|tensorboard"
    r"|http\.server|text-generation-launcher|sglang\.launch_server)(?!.*--(help|version)\b)",
    # reads and prints, or does so with the output of another command
    "show": r"nvidia-smi|ls|pwd|cat|head|tail|df|du|free|lscpu|nproc|uname|which|whoami|date|wc|file|tree|echo|ps|top"
    rf"|printenv|env$|nvcc|{_PIP} (list|show|freeze|check|--version|-V)|{_PYTHON} (--version|-V)"
    r"|(conda|mamba|micromamba) (-\S+ )*(list|info|search)",
    "filter": r"[ef]?grep|sort(?!.* -o)|uniq|awk|sed(?!.* -\w*i)|cut|tr|column|less|more",
    # changes the shell that runs it, for the commands that follow; or reads a script that does so
    "shell": r"cd|export|unset|alias|ulimit",
    "source": r"(source|\.) \S+$",
    # tests and decides, around an install
    "decide": r"command -v|set|printf|exit|return|test|true|false|:|if|fi|elif|else|then|case|esac|for|while|do|done"
    r"|local|trap|source|\.|python[\d.]* -c?|wait|shift|read|[{}]|\w+=.*|\[.*",
    # writes only the files that it names, or nothing next to the script
    "plain": r"mkdir|git (clone|config|lfs install)|cp|mv|wget|curl|(python3? -m )?pip3?|uv|conda|apt(-get)?|rm|sleep"
    r"|ollama|hf|huggingface-cli|wandb|touch|sh|bash|true",
}
#: Commands that print, and those that only change the shell for them.
_SHOWING = frozenset({"show", "filter", "shell", "source"})
#: The words, options aside, that are files or folders to which a command writes.
_TARGETS = {
    r"mkdir|wget|curl": slice(None),
    r"git clone|cp|mv|kaggle (datasets|competitions) download": slice(-1, None),
    r"zip": slice(1),
    r"\S*quantize": slice(1, 2),
}


@dataclass(frozen=True)
class Command:
    """One command of a command line.

    Attributes:
        words: its words without quotes, starting with the program.
        redirect: the file to which its output is redirected; empty for none.
        background: the shell does not wait for it.
    """

    words: tuple[str, ...]
    redirect: str = ""
    background: bool = False

    @property
    def does(self) -> str:
        """What the command does, by the table above; empty if unknown."""
        return next((does for does, pattern in _DOES.items() if _begins(pattern, " ".join(self.words))), "")

    @property
    def writes(self) -> list[str]:
        """The files and folders to which the command writes."""
        text, is_output = " ".join(self.words), re.compile(r"-d" if self.words[0] == "unzip" else _OUTPUT)
        words = [part for word in self.words for part in (word.split("=", 1) if word.startswith("--") else [word])]
        plain = [word for word in self.words[1:] if not word.startswith("-")]
        chosen = plain[next((part for pattern, part in _TARGETS.items() if _begins(pattern, text)), slice(0))]
        found = [self.redirect, *(value for name, value in pairwise(words) if is_output.fullmatch(name))]
        found += [f"{PurePosixPath(each).name}.zip" if text.startswith("kaggle ") else _local(each) for each in chosen]
        return [each for each in found if each]


def _local(word: str) -> str:
    """Return the local name of a file or repository that an address names; any other word unchanged."""
    is_address = "://" in word or word.endswith(".git")
    return PurePosixPath(word.partition("?")[0]).name.removesuffix(".git") if is_address else word


@lru_cache(maxsize=8192)
def _begins(pattern: str, words: str) -> bool:
    """Return whether a pattern matches the start of the words."""
    return re.match(rf"(?:{pattern})(?=\s|$)", words, re.DOTALL) is not None


def without_comment(command: str) -> str:
    """Return a command line, or a script, without its comments."""
    return _COMMENT.sub(lambda match: match[1] or "", command).rstrip()


@lru_cache(maxsize=1024)
def commands(text: str) -> tuple[Command, ...]:
    """Return the commands of a command line or a shell script; a single command for a text with an open quote.

    A command given to another shell replaces that shell: `ls` for `bash -c "ls"`.
    """
    text = _CASE_LABEL.sub("", _HEREDOC.sub(r"\3", without_comment(text).replace("\\\n", " ")))
    while (outer := _SUBSTITUTION.sub("$OUTPUT", text)) != text:
        text = outer
    text = _REDIRECTION.sub(_marked, text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    try:
        tokens = [*lexer, "\n"]
    except ValueError:
        return (Command(tuple(text.split())),)
    found, given, redirect = list[Command](), list[str](), ""
    for token in tokens:
        if token.startswith(_TO):
            redirect = token.removeprefix(_TO)
        elif not _JOINS.fullmatch(token):
            given.append(token)
        else:
            given = [*dropwhile(_BEFORE.fullmatch, given)] or given
            if len(given) > 2 and re.fullmatch(r"(ba|z)?sh -l?c", " ".join(given[:2])):
                found += commands(given[2])
            elif given:
                found.append(Command(tuple(given), redirect, token == "&"))
            given, redirect = [], ""
    return tuple(found)


def _marked(match: re.Match[str]) -> str:
    """Return a text in quotes unchanged, and a redirection as a marked word with its file."""
    return match[1] or (f" {_TO}{match[4]}" if ">" in match[2] and not match[3] else " ")


def words(text: str) -> list[str]:
    """Return the words of a text as a shell reads them; split at blanks if a quote is left open."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _does(text: str) -> set[str]:
    """Return what the commands of a text do."""
    return {each.does for each in commands(text)}


def is_install(text: str) -> bool:
    """Return whether a command or script installs packages, and otherwise only tests and decides how."""
    return "install" in (found := _does(text)) and found <= {"install", "decide", *_SHOWING}


def without_installs(command: str) -> str:
    """Return a command without those of its parts that install packages."""
    pieces = _SEPARATOR.split(without_comment(command))
    joined = zip(["", *pieces[1::2]], pieces[::2], strict=True)
    kept = [part for pair in joined if pair[1].strip() and not is_install(pair[1].strip("() ")) for part in pair][1:]
    return " ".join(kept).replace(" ;", ";")


def only_shows(text: str) -> bool:
    """Return whether a command only reads and prints, so that no process needs to wait for it."""
    found = _does(text)
    return found <= _SHOWING and bool(not found or found & {"show", "filter"}) and not re.search(r">|\$\(|`", text)


def is_of_its_shell(text: str) -> bool:
    """Return whether a command only changes the shell that runs it; that shell then ends."""
    return _does(text) == {"shell"}


def never_ends(text: str) -> bool:
    """Return whether a command runs until a person stops it."""
    return "endless" in _does(text)


def serves(text: str) -> bool:
    """Return whether a command serves until it is stopped, in the foreground."""
    return any(each.does == "serve" and not each.background for each in commands(text))


def kills(command: str) -> bool:
    """Return whether a command ends programs of the whole machine: `pkill -f server`, `kill $(lsof -t -i:8000)`."""
    return _KILLING.search(without_comment(command)) is not None


def kills_job(command: str) -> bool:
    """Return whether a command ends all Python programs, or all that use a GPU: these include a job of the script."""
    return kills(command) and _OF_THE_JOB.search(command) is not None


def written_by(text: str) -> list[str]:
    """Return the files and folders that a command writes, clones or downloads."""
    return [path for command in commands(text) for path in command.writes]
