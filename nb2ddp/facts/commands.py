"""What shell commands do: one lexer, and one table for all who ask."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import lru_cache
from itertools import dropwhile, pairwise
from pathlib import PurePosixPath

#: Comments, each behind a blank; texts in quotes, which may hold what looks like one.
_COMMENT = re.compile(r"""('[^']*'|"(?:\\.|[^"\\])*")|(?:^|(?<=\s))#.*""", re.MULTILINE)
#: What a command is given to read, up to a word that ends it.
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1(.*)\n(?:.*\n)*?\s*\2[ \t]*(?=\n|\Z)")
_CASE_LABEL = re.compile(r"^\s*\(?[^\s()=]+\)(?=\s)", re.MULTILINE)
#: What a command has another one say: `$(which python)`.
_SUBSTITUTION = re.compile(r"""\$\((?:[^()'"]|'[^']*'|"[^"]*"|\([^()]*\))*\)""")
#: What may stand before a program.
_BEFORE = re.compile(r"sudo|time|nohup|exec|then|do|else|if|elif|!|[{}]|\w+=.*", re.DOTALL)
#: Options for what is written.
_OUTPUT = r"-[Oopd]|--(local-dir|output|outfile|outdir|directory-prefix|path)"
#: What joins commands.
_JOINS = re.compile(r"[;&|()\n]+")
#: A redirection, with its file. Unlike in a shell, `transformers>=4.50` without quotes is one word.
_REDIRECTION = re.compile(
    r"""('[^']*'|"(?:\\.|[^"\\])*")|(?<!\S)(?:\d*|&)([<>]+)[^\S\n]*(&?)("[^"]*"|'[^']*'|[^\s;|&()]*)"""
)
#: Marks the word that is a file to which output goes.
_TO = "\0"
#: What joins whole command lines.
_SEPARATOR = re.compile(r"(?:\s|\\\n)*(&&|\|\||;)\s*")
#: What ends programs that it finds, whoever has started them, and what is among these programs.
_KILLING = re.compile(r"\b(pkill|killall)\s|\bfuser\s(.*\s)?-\w*k|\bxargs\s(.*\s)?kill\b|\bkill\s(-\S+\s+)*[$`]")
_OF_THE_JOB = re.compile(
    r"\b(pkill|killall)\b.*\b(python[\d.]*|accelerate|torchrun)\b|/dev/nvidia|nvidia-smi|grep python"
)

_PYTHON = r"(\S*python[\d.]*|\{sys\.executable\})"
_PIP = rf"({_PYTHON} -m )?(uv )?pip3?(\.\d+)?"
#: Where packages and what is made of them are kept; Unsloth's compiled code belongs to the running job.
_CACHES = r"((site|dist)-packages|__pycache__|\.cache/(pip|uv)|/usr/local|unsloth_compiled_cache)"
#: What commands do, by how their words begin. The first that fits decides.
_DOES = {
    # installs or removes packages, or removes what is made of them
    "install": rf"{_PIP} (-\S+ )*(install|uninstall|download|cache)|pip3?-autoremove"
    r"|uv (add|sync|venv|python|self|remove)|ldconfig|kill -9"
    r"|(conda|mamba|micromamba) (-\S+ )*(install|update|create|env|remove|uninstall|clean)"
    r"|(apt|apt-get|aptitude|dpkg|yum|dnf|brew|apk) (\S+ )*(install|add|update|upgrade|\w*remove|purge|-i)"
    r"|(npm|pnpm|yarn) (install|i|ci|add|remove|uninstall|rm)"
    rf"|find .*{_CACHES}|rm( -\S+| \S*{_CACHES}\S*)*$",
    # goes on until a person stops it
    "endless": r"(nvidia|rocm)-smi (.* )?(-l|-lms|--loop|dmon|pmon)|watch|tail (-\S+ )*(-\w*[fF]|--follow)"
    r"|htop|nvtop|gpustat .*-i|top(?! -\w*[bn])|while (true|:)|ping (?!.*-c)",
    # serves until it is stopped
    "serve": rf"({_PYTHON} -m )?((vllm|ollama) serve|uvicorn|gunicorn|streamlit run|flask run|llama-server|tensorboard"
    r"|http\.server|text-generation-launcher|sglang\.launch_server)(?!.*--(help|version)\b)",
    # reads and prints, or does so with what another command prints
    "show": r"nvidia-smi|ls|pwd|cat|head|tail|df|du|free|lscpu|nproc|uname|which|whoami|date|wc|file|tree|echo|ps|top"
    rf"|printenv|env$|nvcc|{_PIP} (list|show|freeze|check|--version|-V)|{_PYTHON} (--version|-V)",
    "filter": r"[ef]?grep|sort(?!.* -o)|uniq|awk|sed(?!.* -\w*i)|cut|tr|column|less|more",
    # changes the shell that runs it, for the commands behind it; reads a script that does so
    "shell": r"cd|export|unset|alias|ulimit",
    "source": r"(source|\.) \S+$",
    # finds out and decides, around an install
    "decide": r"command -v|set|printf|exit|return|test|true|false|:|if|fi|elif|else|then|case|esac|for|while|do|done"
    r"|local|trap|source|\.|python[\d.]* -c?|wait|shift|read|[{}]|\w+=.*|\[.*",
    # writes what it names, or nothing beside the script
    "plain": r"mkdir|git (clone|config|lfs install)|cp|mv|wget|curl|(python3? -m )?pip3?|uv|conda|apt(-get)?|rm|sleep"
    r"|ollama|hf|huggingface-cli|wandb|touch|sh|bash|true",
}
#: What is printed, and what only the shell itself needs for it.
_SHOWING = frozenset({"show", "filter", "shell", "source"})
#: Which of their words beside options commands write to.
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
        words: its words, without quotes, from the program on.
        redirect: the file that its output goes to; empty for none.
        background: nobody waits for it.
    """

    words: tuple[str, ...]
    redirect: str = ""
    background: bool = False

    @property
    def does(self) -> str:
        """What it does, as the table above says; empty where that is unknown."""
        return next((does for does, pattern in _DOES.items() if _begins(pattern, " ".join(self.words))), "")

    @property
    def writes(self) -> list[str]:
        """The files and folders that it writes to."""
        text, is_output = " ".join(self.words), re.compile(r"-d" if self.words[0] == "unzip" else _OUTPUT)
        words = [part for word in self.words for part in (word.split("=", 1) if word.startswith("--") else [word])]
        plain = [word for word in self.words[1:] if not word.startswith("-")]
        chosen = plain[next((part for pattern, part in _TARGETS.items() if _begins(pattern, text)), slice(0))]
        found = [self.redirect, *(value for name, value in pairwise(words) if is_output.fullmatch(name))]
        found += [f"{PurePosixPath(each).name}.zip" if text.startswith("kaggle ") else _local(each) for each in chosen]
        return [each for each in found if each]


def _local(word: str) -> str:
    """Return the name under which a file of an address, or a repository, is kept; any other word as it is."""
    is_address = "://" in word or word.endswith(".git")
    return PurePosixPath(word.partition("?")[0]).name.removesuffix(".git") if is_address else word


@lru_cache(maxsize=8192)
def _begins(pattern: str, words: str) -> bool:
    """Return whether words begin as a pattern says."""
    return re.match(rf"(?:{pattern})(?=\s|$)", words, re.DOTALL) is not None


def without_comment(command: str) -> str:
    """Return a command line, or a script, without its comments."""
    return _COMMENT.sub(lambda match: match[1] or "", command).rstrip()


@lru_cache(maxsize=1024)
def commands(text: str) -> tuple[Command, ...]:
    """Return the commands of a command line, or of a shell's script; one for a text with an open quote.

    What another shell is given stands for itself: `ls` of `bash -c "ls"`.
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
    """Return a text in quotes as it is, and a redirection as a marked word for its file."""
    return match[1] or (f" {_TO}{match[4]}" if ">" in match[2] and not match[3] else " ")


def words(text: str) -> list[str]:
    """Return the words of a text as a shell reads them; split at blanks where a quote is left open."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _does(text: str) -> set[str]:
    """Return what the commands of a text do."""
    return {each.does for each in commands(text)}


def is_install(text: str) -> bool:
    """Return whether a command, or a script, installs packages, and otherwise only asks and decides how."""
    return "install" in (found := _does(text)) and found <= {"install", "decide", *_SHOWING}


def without_installs(command: str) -> str:
    """Return the rest of a command whose parts install packages among other things."""
    pieces = _SEPARATOR.split(without_comment(command))
    joined = zip(["", *pieces[1::2]], pieces[::2], strict=True)
    kept = [part for pair in joined if pair[1].strip() and not is_install(pair[1].strip("() ")) for part in pair][1:]
    return " ".join(kept).replace(" ;", ";")


def only_shows(text: str) -> bool:
    """Return whether a command reads and prints: no process need wait for it."""
    found = _does(text)
    return found <= _SHOWING and bool(not found or found & {"show", "filter"}) and not re.search(r">|\$\(|`", text)


def is_of_its_shell(text: str) -> bool:
    """Return whether a command only changes the shell that runs it, which then ends."""
    return _does(text) == {"shell"}


def never_ends(text: str) -> bool:
    """Return whether a command goes on until a person stops it."""
    return "endless" in _does(text)


def serves(text: str) -> bool:
    """Return whether a command serves until it is stopped, and is waited for."""
    return any(each.does == "serve" and not each.background for each in commands(text))


def kills(command: str) -> bool:
    """Return whether a command ends programs of the whole machine: `pkill -f server`, `kill $(lsof -t -i:8000)`."""
    return _KILLING.search(without_comment(command)) is not None


def kills_job(command: str) -> bool:
    """Return whether it ends every Python program, or all that use a GPU: a job of the script is among them."""
    return kills(command) and _OF_THE_JOB.search(command) is not None


def written_by(text: str) -> list[str]:
    """Return the files and folders that a command writes to, clones and downloads."""
    return [path for command in commands(text) for path in command.writes]
