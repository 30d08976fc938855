"""What in a notebook may make a file or a folder: its calls and commands, with the names that each is given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import libcst as cst

from nb2ddp.facts.effects import FILE_MAGICS, NOTEBOOK_MAGICS, Does
from nb2ddp.facts.environment import ENV_MAGICS
from nb2ddp.facts.flow import owner_of
from nb2ddp.facts.hosted import CURRENT, READERS, WRITTEN
from nb2ddp.facts.shell import only_shows, parts, unwrapped
from nb2ddp.facts.texts import spelled
from nb2ddp.notebook.magics import Kind
from nb2ddp.syntax.tree import method

if TYPE_CHECKING:
    from nb2ddp.facts.execution import Execution

#: Commands that write what they name, or nothing beside the script.
_PLAIN = re.compile(
    r"(sudo\s+)?((python3?\s+-m\s+)?pip3?|uv|conda|apt(-get)?|git\s+(clone|config|lfs\s+install)|wget|curl|mkdir|rm|cp|mv"
    r"|export|source|sleep|kill|pkill|ollama|hf|huggingface-cli|wandb|echo|touch|sh|bash|exit|true)\b(?![^|]*\*)"
)
_WORD = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*")
#: What gives, shows or removes what it is given, and writes nothing of that name.
_HARMLESS = re.compile(
    r"os\.path\.\w+|pathlib\.\w*Path|str|len|print|os\.(remove|unlink|rmdir)|shutil\.rmtree|nltk\.download|load_dotenv"
    r"|(.*\.)?(json|pickle|yaml|joblib|dill)\.(safe_)?dump|(.*\.)?\w*login|(.*\.)?(split|join|replace|append|format)"
)


@dataclass(frozen=True)
class Maker:
    """A call that may make files.

    Attributes:
        call: the call.
        names: what it may write, as patterns; None where nothing tells.
    """

    call: cst.Call
    names: tuple[str, ...] | None

    def may_make(self, path: str) -> bool:
        """Whether it may make this file or folder, one that it lies in, or one in it."""
        return self.names is None or any(_meets(name, path) for name in self.names)


def makers(execution: Execution) -> list[Maker]:
    """Every call of a notebook that may make a file."""
    return [Maker(call, names) for call, names in _named(execution) if names != ()]


def _named(execution: Execution) -> Iterator[tuple[cst.Call, tuple[str, ...] | None]]:
    tree = execution.tree
    for call in execution.calls():
        form = execution.source.form(call)
        if form is not None and form.name == "cd":
            yield call, () if form.text.strip("/ ") in [each.strip("/") for each in CURRENT] else None
        elif form is not None and form.name in FILE_MAGICS:
            yield call, tuple(form.text.split()[-1:])
        elif form is not None and form.name in NOTEBOOK_MAGICS | ENV_MAGICS:
            yield call, ()
        elif form is not None:
            runs = form.kind is Kind.SHELL or form.body is not None or form.name == "run"
            yield call, _of_command(tree.filled(execution.effects.command(call))) if runs else ()
        elif execution.does(call) & Does.RUN:
            yield call, _of_program(execution, call)
        else:
            yield call, _of_call(execution, call)
        folders = [each.value for each in call.args if each.keyword and WRITTEN.fullmatch(each.keyword.value)]
        yield call, tuple(text for folder in folders for text in spelled(tree, folder))


def _of_program(execution: Execution, call: cst.Call) -> tuple[str, ...] | None:
    """What a program may write that Python starts: what it is given, through names too."""
    tree, command = execution.tree, execution.effects.command(call)
    given = [text for each in call.args for part in tree.made_of(each.value) for text in tree.texts(part)]
    return _of_command(" ".join([command, *given])) if command else None


def _of_command(command: str) -> tuple[str, ...] | None:
    """What a command may write: the words of what writes only what it names; None for any other program."""
    lines = [line.strip() for line in unwrapped(command).replace("\\\n", " ").splitlines()]
    acting = [line for line in lines if line and not line.startswith("#") and not only_shows(line)]
    plain = all(_PLAIN.match(part.strip()) or only_shows(part) for line in acting for part in parts(line))
    is_here = re.search(r"\b(clone|download|cp|mv)\b.*\s\./?(\s|$)", command)
    return tuple(_WORD.findall("\n".join(acting).replace(".git", " "))) if plain and not is_here else None


def _of_call(execution: Execution, call: cst.Call) -> tuple[str, ...] | None:
    """What a call may write: texts that it is given; None for one that writes a file whose name nothing tells."""
    tree, name, does = execution.tree, execution.tree.qualified(call.func), execution.does(call)
    last = method(call) or name.rsplit(".", 1)[-1]
    if name == "os.chdir":
        return None
    is_told = does & Does.TELL and isinstance(call.func, cst.Attribute)  # `write` of the notebook's own may do more
    if _HARMLESS.fullmatch(name) or is_told or does & (Does.TEST | Does.LIST):
        return ()
    if READERS.fullmatch(last) and not does & Does.ACT and not isinstance(tree.definition(call.func), cst.FunctionDef):
        return ()
    given = [each.value for each in call.args[: 1 if name == "open" else None]]
    if name.startswith("shutil.") or last == "extractall":
        places = given[0 if last == "extractall" else 1 :] or [call]
        return _known([text for place in places for text in spelled(tree, place)])
    if does & Does.ACT and (owner := owner_of(call)) is not None and tree.maker(owner).startswith("pathlib."):
        given.append(owner)
    texts = [text for value in given for text in spelled(tree, value)]
    named = [text for text in texts if re.search(r"\w", text)]
    return _known(texts) if does & (Does.WRITE | Does.FETCH) and not named else tuple(named)


def _known(names: list[str]) -> tuple[str, ...] | None:
    """The names, or None where one of them may be any."""
    return None if not names or any(not re.search(r"\w", name) for name in names) else tuple(names)


def _meets(name: str, path: str) -> bool:
    """Whether a written name is a path, one that it lies in, one in it, or another path of the same last name."""
    written, read = (str(PurePosixPath(each)) for each in (name, path))
    above = [read, *map(str, PurePosixPath(read).parents)][:-1]
    last = PurePosixPath(written).name
    names = [PurePosixPath(each).name for each in above] if re.search(r"\w", last) else []
    is_around = any(fnmatchcase(each, written) for each in above) or any(fnmatchcase(name, last) for name in names)
    return is_around or written.startswith(f"{read}/")
