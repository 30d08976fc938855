"""What in a notebook may make a file or a folder: its calls and commands, with the names that each is given."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import libcst as cst

from nb2ddp.facts.effects import FILE_MAGICS, NOTEBOOK_MAGICS, PLACE, Does
from nb2ddp.facts.environment import ENV_MAGICS
from nb2ddp.facts.flow import owner_of
from nb2ddp.facts.hosted import CURRENT, READERS, folders_of, targets, written_by
from nb2ddp.facts.shell import only_shows, parts, unwrapped
from nb2ddp.facts.texts import filled, held, spelled
from nb2ddp.notebook.magics import Kind, Syntax
from nb2ddp.syntax.tree import Tree, method

if TYPE_CHECKING:
    from nb2ddp.facts.execution import Execution

#: Commands that write what they name, or nothing beside the script.
_PLAIN = re.compile(
    r"(sudo\s+)?((python3?\s+-m\s+)?pip3?|uv|conda|apt(-get)?|git\s+(clone|config|lfs\s+install)|wget|curl|mkdir|rm|cp|mv"
    r"|export|source|sleep|kill|pkill|ollama|hf|huggingface-cli|wandb|echo|touch|sh|bash|exit|true)\b(?![^|]*\*)"
)
_WORD = re.compile(r"(?:~?/|\$)?[\w.*-]+(?:/[\w.*-]+)*")
#: The libraries whose keywords are settings, but for those of a place.
_TOLD = re.compile(r"(unsloth|transformers|peft|trl)\..*")
#: What gives, shows or removes what it is given, and writes nothing of that name.
_HARMLESS = re.compile(
    r"os\.path\.\w+|pathlib\.\w*Path|str|len|print|os\.(remove|unlink|rmdir)|shutil\.rmtree|nltk\.download|load_dotenv"
    r"|(.*\.)?(json|pickle|yaml|joblib|dill)\.(safe_)?dump|(.*\.)?\w*login|(.*\.)?(split|join|replace|append|format)"
)


@dataclass(frozen=True)
class Maker:
    """A call that makes files, or may.

    Attributes:
        call: the call.
        paths: what it surely writes, as the notebook names it.
        names: what else it may write, as patterns.
        is_open: it may write what no name tells.
    """

    call: cst.Call
    paths: tuple[str, ...]
    names: tuple[str, ...]
    is_open: bool

    def may_make(self, path: str) -> bool:
        """Whether it may make this file or folder, one that it lies in, or one in it."""
        return self.is_open or any(_meets(name, path) for name in (*self.paths, *self.names))


def makers(execution: Execution) -> list[Maker]:
    """Every call of a notebook that makes files, or may."""
    found = (_maker(execution, call) for call in execution.calls())
    return [maker for maker in found if maker.paths or maker.names or maker.is_open]


def _maker(execution: Execution, call: cst.Call) -> Maker:
    tree, form = execution.tree, execution.source.form(call)
    runs = form is None or form.kind is Kind.SHELL or form.body is not None or form.name == "run"
    command = filled(tree, execution.effects.command(call)) if runs else ""
    folders = folders_of(call)
    given = [*(targets(tree, call) if execution.does(call) & Does.ACT else ()), *folders]
    program = _spelled_command(tree, call) if form is None and execution.does(call) & Does.RUN else ""
    paths = [*written_by(command), *written_by(program), *(text for target in given for text in _texts(tree, target))]
    if form is not None and form.name in FILE_MAGICS:
        paths = form.text.split()[-1:]
    names = _names(execution, call, form, command)
    in_folders = [text for folder in folders for text in spelled(tree, folder)]
    return Maker(call, tuple(paths), (*(names or ()), *in_folders), names is None)


def _spelled_command(tree: Tree, call: cst.Call) -> str:
    """What Python starts, with what the names in it stand for: `["git", "clone", url, str(folder)]`, an f-string."""
    command = tree.value(call.args[0].value) if call.args else call
    given = [each.value for each in command.elements] if isinstance(command, (cst.List, cst.Tuple)) else [command]
    return " ".join(text for each in given for text in spelled(tree, each))


def _texts(tree: Tree, node: cst.BaseExpression) -> list[str]:
    """The paths that an expression names, as far as the code tells, and the texts in it."""
    value = tree.value(node)
    whole = [text for text in spelled(tree, node) if not text.startswith("*")]
    if isinstance(value, cst.FormattedString):
        return [*whole, filled(tree, "".join(map(tree.text, value.parts)))]
    return [*whole, *tree.texts(value)]


def _names(execution: Execution, call: cst.Call, form: Syntax | None, command: str) -> tuple[str, ...] | None:
    """What a call may write, by the names that it is given; None where nothing tells."""
    if form is None:
        return _of_program(execution, call) if execution.does(call) & Does.RUN else _of_call(execution, call)
    if form.name == "cd":
        return () if form.text.strip("/ ") in [each.strip("/") for each in CURRENT] else None
    if form.name in FILE_MAGICS:
        return tuple(form.text.split()[-1:])
    return _of_command(command) if command and form.name not in NOTEBOOK_MAGICS | ENV_MAGICS else ()


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
    if isinstance(tree.definition(call.func), cst.FunctionDef):
        return ()  # what it calls is asked itself
    is_told = does & Does.TELL and isinstance(call.func, cst.Attribute)  # `write` of the notebook's own may do more
    if _HARMLESS.fullmatch(name) or is_told or does & (Does.TEST | Does.LIST):
        return ()
    if READERS.fullmatch(last) and not does & Does.ACT:
        return ()
    sets = _TOLD.fullmatch(name) is not None and not does & Does.ACT
    told = [each for each in call.args if not sets or each.keyword is None or PLACE.fullmatch(each.keyword.value)]
    given = [each.value for each in told[: 1 if name == "open" else None]]
    if name.startswith("shutil.") or last == "extractall":
        places = given[0 if last == "extractall" else 1 :] or [call]
        return _known([text for place in places for text in spelled(tree, place)])
    owner = owner_of(call) if does & Does.ACT else None
    if owner is not None and tree.maker(held(tree, owner)).startswith("pathlib."):
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
    return is_around or written.startswith(f"{read}/") or ("*" in read and fnmatchcase(written, read))
