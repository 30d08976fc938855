"""Files and folders that a notebook reads and writes, if its code names them.

They are those of Colab, Kaggle and Drive, those of the user's machine, and those that calls and commands write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import libcst as cst

from nb2ddp.facts.commands import commands, only_shows, written_by
from nb2ddp.facts.effects import ENV_MAGICS, FILE_MAGICS, NOTEBOOK_MAGICS, PLACE, Does
from nb2ddp.facts.flow import argument_of, called_as, is_unconditional, receiver, stops
from nb2ddp.facts.hosted import hosted_name
from nb2ddp.facts.values import filled, resolved, texts_of
from nb2ddp.notebook.magics import Kind
from nb2ddp.syntax.tree import Tree, argument, method

if TYPE_CHECKING:
    from nb2ddp.facts.execution import Execution

#: Kaggle's folders, relative to the folder in which its notebooks run.
_BESIDE_KAGGLE = re.compile(r"\.\./(?=(working|input)/)")
#: Drive in the folder in which Colab's notebooks run, and the call that mounts it there.
_BESIDE_COLAB = re.compile(r"(\./)?(?=drive/My ?Drive(/|$))")
_MOUNTS = re.compile(r"\.mount\(\s*['\"]/content/drive/?['\"]")
#: Words in a test of where the notebook runs.
_PLACES = re.compile(r"(?i)colab|kaggle")
#: Folders of Colab and Kaggle; the current folder is the first, or Kaggle's working folder.
_PATH = re.compile(r"/(content|kaggle)(?![^/])")
_WRITABLE = re.compile(r"(/content/g?drive|/content|/kaggle/working)/.")
CURRENT = ("/content", "/kaggle/working")
#: Folders that exist on Colab or Kaggle from the start.
_THERE = re.compile(r"/(content(/g?drive(/My ?Drive)?)?|kaggle(/(input|working))?)/?")
_SHELL_PATH = re.compile(
    r"(?<=')(?:{0})/[^'\n]*(?=')|(?<=\")(?:{0})/[^\"\n]*(?=\")"
    r"|(?<![\w.:/-])(?:{0})(?:/(?:\\.|[^\s\\'\";|&)])*)?(?![\w-])".format(
        r"/(?:content|kaggle)|(?:\./)?drive/My(?:\\? )?Drive"
    )
)
#: Functions that return the path that they get.
_PATHS = ("pathlib.Path", "str", "os.path.expanduser")
#: Functions that copy or move their first argument to the second.
_MOVERS = ("shutil.", "os.rename", "os.replace")
#: Keywords for files and folders to write to.
WRITTEN = re.compile(r"(output|save|logging|log|cache|local|export|extract)_(dir|folder|path|directory|file)")
_UPLOADS = re.compile(r"upload_(large_)?(file|folder)")
#: Functions that read their arguments, or fail.
READERS = re.compile(
    r"open|imread|read_\w+|load(?!_dotenv)\w*|from_\w+|listdir|scandir|copy\w*|ZipFile|Image|Document|[A-Z]\w*(Reader|Loader)"
)
_WORD = re.compile(r"(?:~?/|\$)?[\w.*-]+(?:/[\w.*-]+)*")
#: Libraries whose keywords are settings, except those for a place.
_SETTINGS = re.compile(r"(unsloth|transformers|peft|trl)\..*")
#: Functions that return, show or remove their arguments, and write no file of that name.
_HARMLESS = re.compile(
    r"os\.path\.\w+|pathlib\.\w*Path|str|len|print|os\.(remove|unlink|rmdir)|shutil\.rmtree|nltk\.download|load_dotenv"
    r"|(.*\.)?(json|pickle|yaml|joblib|dill)\.(safe_)?dump|(.*\.)?\w*login|(.*\.)?(split|join|replace|append|format)"
)
#: An absolute path outside the folders of Colab, Kaggle and the system.
_ABSOLUTE = re.compile(
    r"/(?!(content|kaggle|bin|dev(?!/shm/)|etc|lib\w*|opt|proc|run|sbin|sys|tmp|usr|var)\b)\w.*|~/(?!\.).+|[A-Za-z]:[\\/].+"
)
#: A file of rows, pictures or sound; a folder; a folder that cannot be a name on the Hub.
_FILE = re.compile(
    r"(\.{1,2}/)*[^\W_][^\n:?\"<>|]*\.(csv|tsv|jsonl?|ndjson|parquet|arrow|feather|txt|xlsx?|pkl|pickle|np[yz]|h5|xml|pdf"
    r"|docx|pptx|zip|gz|png|jpe?g|webp|bmp|wav|mp3|flac|ogg|m4a|mp4|ya?ml)"
)
_FOLDER = re.compile(r"(\.{1,2}/)*[^\W_][^\n:?\"<>|]*")
_MODEL = re.compile(r"\.{1,2}/[^\W_].*|[^\n:]*\bcheckpoint-\d+/?")
#: A name without an owner, and such names that the Hub has.
_NO_OWNER = re.compile(r"[\w.-]+")
_OF_THE_HUB = re.compile(
    r"(distil)?(gpt2|bert|roberta|albert|xlnet|t5|xlm|camembert|flaubert|bart|pegasus|openai-gpt|transfo-xl|ctrl)\b.*"
)
_MODEL_LIBRARIES = ("unsloth.", "transformers.", "peft.")
#: Formats with which `load_dataset` reads files.
_FORMATS = frozenset("arrow audiofolder csv imagefolder json pandas parquet text webdataset xml".split())
#: Keywords for files and folders to read.
_GIVEN = re.compile(r"(\w+_)?(path|files?|dir|folder|filename|buffer|model_name)|io|fp")
#: Methods that read the path that is their receiver.
_READING = re.compile(r"read_(text|bytes)|open|iterdir")
#: Methods that load an adapter from a folder.
_ADAPTER = re.compile(r"load_(adapter|lora\w*)")


# -- what the notebook writes ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Maker:
    """A call that writes files, or may.

    Attributes:
        call: the call.
        names: the paths that it writes, as the notebook names them, with `*` for unknown parts.
        is_sure: it certainly writes these.
        is_open: it may write files of unknown names.
    """

    call: cst.Call
    names: tuple[str, ...] = ()
    is_sure: bool = False
    is_open: bool = False

    def may_make(self, path: str) -> bool:
        """Return whether it may write a path, a folder around it, or a path in it."""
        return self.is_open or any(_meets(name, path) for name in self.names)


def makers(execution: Execution) -> Iterator[Maker]:
    """Yield all calls of a notebook that write files, or may."""
    for call in execution.calls():
        form = execution.source.form(call)
        if form is not None and form.name in FILE_MAGICS:
            yield Maker(call, tuple(form.text.split()[-1:]), is_sure=True)
        elif form is not None and form.name == "cd":
            yield Maker(call, is_open=form.text.strip("/ ") not in [each.strip("/") for each in CURRENT])
        elif form is not None or execution.does(call) & Does.RUN:
            if form is None or form.name not in NOTEBOOK_MAGICS | ENV_MAGICS:
                yield from _of_command(call, filled(execution.tree, _command(execution, call)))
        else:
            yield _of_call(execution, call)
        folders = [each.value for each in call.args if each.keyword and WRITTEN.fullmatch(each.keyword.value)]
        texts = [text for folder in folders for text in texts_of(execution.tree, folder)]
        yield Maker(call, tuple(texts), is_sure=True)


def _command(execution: Execution, call: cst.Call) -> str:
    """Return the command that a call runs, with the parts of a list resolved: `["git", "clone", url, str(folder)]`."""
    if execution.source.form(call) is not None or not call.args:
        return execution.effects.command(call)
    command = execution.tree.value(call.args[0].value)
    parts = [each.value for each in command.elements] if isinstance(command, (cst.List, cst.Tuple)) else [command]
    return " ".join(text for part in parts for text in texts_of(execution.tree, part))


def _of_command(call: cst.Call, command: str) -> Iterator[Maker]:
    """Yield what a command writes, and its words if it writes only what it names; other programs may write any file."""
    yield Maker(call, tuple(written_by(command)), is_sure=True)
    acting = [each for each in commands(command) if not only_shows(" ".join(each.words))]
    words = [word for each in acting for word in (*each.words, each.redirect)]
    known = all(each.does in ("plain", "install", "decide") for each in acting) and not {".", "./"} & set(words)
    names = _WORD.findall(" ".join(words).replace(".git", " ")) if known else []
    yield Maker(call, tuple(names), is_open=not known)


def _of_call(execution: Execution, call: cst.Call) -> Maker:
    """Return what a call writes: the texts in its arguments; one that writes an unnamed file may write any file."""
    tree, name, does = execution.tree, execution.tree.qualified(call.func), execution.does(call)
    if isinstance(tree.definition(call.func), cst.FunctionDef):
        return Maker(call)  # its own calls are checked separately
    last = called_as(tree, call)
    acts, tells = bool(does & Does.ACT), does & Does.TELL and isinstance(call.func, cst.Attribute)
    if _HARMLESS.fullmatch(name) or tells or does & (Does.TEST | Does.LIST) or (READERS.fullmatch(last) and not acts):
        return Maker(call)
    sets = _SETTINGS.fullmatch(name) is not None
    named = [each for each in call.args if not sets or each.keyword is None or PLACE.fullmatch(each.keyword.value)]
    given = targets(tree, call)[: 1 if name == "open" else None] if acts else [each.value for each in named]
    texts = [text for each in given for text in texts_of(tree, each) if re.search(r"\w", text)]
    is_open = name == "os.chdir" or (bool(does & (Does.WRITE | Does.FETCH)) and not texts)
    return Maker(call, tuple(texts), is_sure=acts, is_open=is_open)


def _meets(name: str, path: str) -> bool:
    """Return whether a written name is a path, a folder around it, a path in it, or a path with the same last name."""
    written, read = (str(PurePosixPath(each)) for each in (name, path))
    above = [read, *map(str, PurePosixPath(read).parents)][:-1]
    last = PurePosixPath(written).name
    names = [PurePosixPath(each).name for each in above] if re.search(r"\w", last) else []
    is_around = any(fnmatchcase(each, written) for each in above) or any(fnmatchcase(name, last) for name in names)
    return is_around or written.startswith(f"{read}/") or ("*" in read and fnmatchcase(written, read))


# -- paths of Colab, Kaggle and Drive -------------------------------------------------------------------


@dataclass(frozen=True)
class HostedPath:
    """A path of Colab or Kaggle that the notebook reads and does not make.

    Attributes:
        text: the path as the notebook writes it.
        node: the node that contains it.
        is_made: the notebook makes it in the current folder, if that is the one of Colab or Kaggle.
    """

    text: str
    node: cst.BaseExpression
    is_made: bool


def hosted_paths(execution: Execution, made: Made) -> Iterator[HostedPath]:
    """Yield the hosted paths that the notebook reads; none that it makes, compares, or only tries."""
    for node, text, written in _paths(execution):
        uses = path_uses(execution.tree, node)
        is_made = made.has(text, node)
        is_made = is_made or (_BESIDE_COLAB.match(written) is not None and made.has_here(text))
        is_idle = all(_is_reported(execution, use) or is_only_tried(execution, use) for use in uses)
        if not is_made and not is_idle and is_missed(execution, uses):
            yield HostedPath(written, node, made.has_here(text))


def written_there(execution: Execution, made: Made) -> Iterator[tuple[str, cst.BaseExpression]]:
    """Yield the folders of Colab, Kaggle and Drive below which the notebook writes, with the nodes that name them."""
    for node, text, _ in _paths(execution):
        is_bound = execution.tree.around(node, cst.Assign) is not None  # a root of paths: `OUT = "/kaggle/working"`
        is_kept = is_bound and not _is_given(execution, node, Does.TEST)
        is_target = made.has(text, node)
        written = [text] * is_target + made.below(text) * is_kept
        folders = dict.fromkeys(folder[1] for path in written if (folder := _WRITABLE.match(path)) is not None)
        yield from ((folder, node) for folder in folders)


def targets(tree: Tree, call: cst.Call) -> list[cst.BaseExpression]:
    """Return the paths to which a call writes."""
    given, path = [each.value for each in call.args], receiver(call)
    if reads_first(tree, call):
        return given[1:2] if tree.qualified(call.func).startswith(_MOVERS) else []
    if path is not None and tree.constructor(resolved(tree, path)).startswith("pathlib."):
        given.append(path)
    return given


def theirs(tree: Tree, text: str) -> str:
    """Return an absolute path: `/kaggle/input/a` for Kaggle's `../input/a`, one in Drive for `drive/MyDrive/a`."""
    if _BESIDE_COLAB.match(text) and _MOUNTS.search(tree.source):
        return _BESIDE_COLAB.sub("/content/", text, 1)
    return _BESIDE_KAGGLE.sub("/kaggle/", text, 1) if _BESIDE_KAGGLE.match(text) and "/kaggle/" in tree.source else text


def _paths(execution: Execution) -> Iterator[tuple[cst.BaseExpression, str, str]]:
    """Yield hosted paths, except those only tried: strings, f-strings, words of shell commands.

    Each comes as its node, the absolute path, and the path as written.
    """
    tree = execution.tree
    plain = [each for each in tree.of(cst.SimpleString) if "/" in each.value]
    paths: list[tuple[cst.BaseExpression, str]] = [(each, tree.content(each)) for each in plain]
    formatted = [each for each in tree.of(cst.FormattedString) if each.parts]
    paths += [(each, "".join(map(tree.text, each.parts))) for each in formatted]
    for call, form in execution.source.forms_of(Kind.SHELL, Kind.LINE_MAGIC, Kind.CELL_MAGIC):
        is_shown = isinstance(tree.parents[call], cst.Expr) and only_shows(form.command)
        if form.name not in FILE_MAGICS and not is_shown:
            found = _SHELL_PATH.findall(f"{form.text}\n{form.body or ''}")
            paths += [(call, re.sub(r"\\(.)", r"\1", path)) for path in found]
    for node, written in sorted(paths, key=lambda path: tree.start(path[0])):
        dropped, text = not tree.is_live(node) or execution.is_install(node), theirs(tree, written)
        if _PATH.match(text) and not dropped and not is_only_tried(execution, node):
            yield node, text, written


def path_uses(tree: Tree, node: cst.BaseExpression) -> list[cst.CSTNode]:
    """Return the uses of a path: the node itself, or the uses of its name; `Path(...)` around a path is the path."""

    def path(node: cst.CSTNode) -> cst.Call | None:
        call = argument_of(tree, node)
        return call if call is not None and tree.qualified(call.func) in _PATHS else None

    whole = tree.followed(node, path)[-1]
    bound = tree.parents[whole]
    return [*tree.bound_uses(bound)] or [whole] if isinstance(bound, (cst.Assign, cst.Param)) else [whole]


def is_only_tried(execution: Execution, node: cst.CSTNode) -> bool:
    """Return whether a path is only compared or tried: one of several, in a `try`, in a branch for Colab or Kaggle.

    A `try` that raises does not count. No other machine takes a branch for Colab or Kaggle.
    """
    tree, inner = execution.tree, node
    for above in tree.ancestors(node):
        match above:
            case cst.Call() if hosted_name(tree, above) is not None:
                return True  # `drive.mount("/content/drive")`, which is removed
            case cst.Comparison() | cst.BooleanOperation():
                return True
            case cst.Try() if inner is above.body and not tree.within(above, cst.Raise):
                return True
            case cst.List() | cst.Tuple() | cst.Set():
                texts = [text for text in tree.texts(above) if "/" in text]
                if not all(map(_PATH.match, texts)) or execution.has(tree.statement(above), Does.TEST | Does.LIST):
                    return True
            case cst.If() | cst.IfExp() if inner is not above.test:
                tests = tree.text(above.test), tree.text(tree.value(above.test))
                if isinstance(above, cst.IfExp) or any(map(_PLACES.search, tests)):
                    return True
        inner = above
    return False


def _is_reported(execution: Execution, use: cst.CSTNode) -> bool:
    """Return whether a path is only printed, listed to be printed, or written to."""
    if _is_given(execution, use, Does.TELL) or _is_listed(execution, use):
        return True
    call = argument_of(execution.tree, use)
    return call is not None and bool(execution.does(call) & Does.ACT) and not reads_first(execution.tree, call)


def _is_listed(execution: Execution, use: cst.CSTNode) -> bool:
    """Return whether a loop only prints the files of a folder, as the first cell of Kaggle's notebooks does."""
    tree, loop = execution.tree, execution.tree.around(use, cst.For)
    if loop is None or loop.iter not in tree.ancestors(use):
        return False
    calls = [call for call in tree.within(loop.body, cst.Call) if tree.qualified(call.func) != "os.path.join"]
    return bool(calls) and all(execution.does(call) is Does.TELL for call in calls)


def reads_first(tree: Tree, call: cst.Call) -> bool:
    """Return whether a call reads its first argument: it copies or uploads it, or runs a program with it."""
    name = tree.qualified(call.func)
    uploads = _UPLOADS.fullmatch(called_as(tree, call))
    return bool(uploads) or (name.startswith((*_MOVERS, "os.system", "subprocess.")) and name != "shutil.make_archive")


def is_missed(execution: Execution, uses: list[cst.CSTNode]) -> bool:
    """Return False if the notebook tests whether a path exists and continues without it; else True."""
    tests = [execution.tree.statement(use) for use in uses if _is_given(execution, use, Does.TEST)]
    return not tests or any(stops(execution.tree, test) for test in tests)


def _is_given(execution: Execution, use: cst.CSTNode, does: Does) -> bool:
    """Return whether a call with exactly this effect encloses a path in its statement."""
    above = execution.tree.inside_statement(use)
    return any(isinstance(call, cst.Call) and execution.does(call) is does for call in above)


class Made:
    """The paths that the notebook certainly makes: those that its calls and commands write, and those below them.

    Args:
        tree: the notebook's code.
        making: the calls that make files, or may.
    """

    def __init__(self, tree: Tree, making: list[Maker]) -> None:
        self.tree = tree
        names = {name.strip("'\"").rstrip("/") for maker in making if maker.is_sure for name in maker.names}
        paths = {name for name in names if name.strip("./ ") and not name.startswith("*")}
        self._filled = {path for path in paths if _THERE.fullmatch(path)}
        self._absolute = {path for path in paths if path.startswith("/")} - self._filled
        here = {str(PurePosixPath(path)) for path in paths if not path.startswith(("/", "~", "http"))}
        self._here = {f"{folder}/{path}" for folder in CURRENT for path in here}

    def below(self, folder: str) -> list[str]:
        """Return the paths in a folder that the notebook makes."""
        return sorted(path for path in self._absolute if path.startswith(f"{folder.rstrip('/')}/"))

    def has(self, text: str, node: cst.CSTNode) -> bool:
        """Return whether the notebook makes a path, a folder around it, or a file in it.

        For a command at `node`, also return True for an existing hosted folder into which the notebook writes.
        """
        path = filled(self.tree, text).rstrip("/")
        is_filled = isinstance(node, cst.Call) and path in self._filled and _WRITABLE.match(text) is not None
        return is_filled or _lies_in(path, self._absolute) or bool(self.below(path))

    def has_here(self, text: str) -> bool:
        """Return whether the notebook makes a path, or a folder around it, if it runs in Colab's or Kaggle's folder."""
        return _lies_in(text.rstrip("/"), self._here)


def _lies_in(path: str, folders: set[str]) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in folders)


# -- paths of the user's machine --------------------------------------------------------------------------


@dataclass(frozen=True)
class LocalPath:
    """A path that the notebook reads and does not make.

    Attributes:
        text: the path as the notebook writes it.
        node: the call that reads it.
    """

    text: str
    node: cst.Call

    @property
    def is_beside(self) -> bool:
        """Whether the path is relative to the script's folder."""
        return not _ABSOLUTE.fullmatch(self.text)


def local_paths(execution: Execution, making: list[Maker]) -> Iterator[LocalPath]:
    """Yield the paths that module-level code, or a function that it calls, always reads, and that no call may make.

    Args:
        execution: which process runs what, and when.
        making: the calls that may make files.
    """
    tree = execution.tree
    for call in execution.calls():
        last = called_as(tree, call)
        if not (READERS.fullmatch(last) or last == "iterdir"):
            continue
        runs = tree.run_from(call, tree.uses)
        is_sure = is_unconditional(tree, call, in_function=True) and any(is_unconditional(tree, run) for run in runs)
        if execution.does(call) & Does.ACT or not is_sure:
            continue
        end = max(map(tree.start, runs))
        earlier = [maker for maker in making if tree.start(maker.call) < end]
        for text, keyword in _given(tree, call):
            path = LocalPath(text.partition("*")[0].rpartition("/")[0] if "*" in text else text, call)
            is_read = theirs(tree, text) == text and _reads(tree, path, keyword, last)
            if is_read and not any(maker.may_make(text) for maker in earlier):
                named = text.removeprefix("./") if _FILE.fullmatch(text) else path.text
                yield LocalPath(named, call)  # `./m` cannot be a name on the Hub


def _given(tree: Tree, call: cst.Call) -> Iterator[tuple[str, str | None]]:
    """Yield the texts that a call may read, with keywords: None for the receiver, `path` for the first argument."""
    if (owner := receiver(call)) is not None and _READING.fullmatch(method(call)):
        yield from ((text, None) for text in texts_of(tree, owner))
    for position, passed in enumerate(call.args):
        value = tree.value(passed.value)
        listed = [each.value for each in value.elements] if isinstance(value, (cst.List, cst.Tuple, cst.Dict)) else []
        texts = [text for each in listed or [passed.value] for text in texts_of(tree, each)]
        yield from ((text, passed.keyword.value if passed.keyword else "" if position else "path") for text in texts)


def _reads(tree: Tree, path: LocalPath, keyword: str | None, last: str) -> bool:
    """Return whether a call reads one of its arguments, or its receiver, from the disk.

    Args:
        tree: the notebook's code.
        path: the path that may be read.
        keyword: the keyword of the argument, as yielded by `_given`.
        last: the name of the function or method.
    """
    call, name = path.node, tree.qualified(path.node.func)
    is_sure = not path.is_beside or _FILE.fullmatch(path.text) is not None
    is_on_disk = not path.is_beside or _MODEL.fullmatch(path.text) is not None
    if keyword is None:
        return is_sure or last == "iterdir"
    if not (is_sure or is_on_disk or _FOLDER.fullmatch(path.text)) or WRITTEN.fullmatch(keyword):
        return False
    if keyword and not _GIVEN.fullmatch(keyword):
        return False
    if last == "load_dataset":
        builder = argument(call, "path", 0)
        is_file_format = builder is not None and tree.literal(builder.value) in _FORMATS
        return is_file_format if keyword.startswith("data_") else is_on_disk
    if last == "from_pretrained" and name.startswith(_MODEL_LIBRARIES) and _NO_OWNER.fullmatch(path.text):
        return not _OF_THE_HUB.match(path.text)
    is_adapter = _ADAPTER.fullmatch(last) is not None
    if last.startswith("from_") or is_adapter:
        is_name = is_adapter and keyword == "path" and _NO_OWNER.fullmatch(path.text) is not None
        return is_sure or is_on_disk or is_name
    return is_sure or last in ("load_from_disk", "listdir", "scandir")
