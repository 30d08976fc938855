"""Services of Colab, Kaggle and Drive that a notebook uses: calls, secrets, paths."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import libcst as cst

from nb2ddp.facts.effects import FILE_MAGICS, Does
from nb2ddp.facts.flow import must_run, must_succeed, owner_of, stops, taker
from nb2ddp.facts.shell import only_shows, words
from nb2ddp.facts.texts import filled, held, passed, spelled
from nb2ddp.notebook.magics import Kind
from nb2ddp.syntax.tree import Tree, keyword, method

if TYPE_CHECKING:
    from nb2ddp.facts.execution import Execution
    from nb2ddp.facts.makers import Maker
    from nb2ddp.syntax.tree import Statement

#: Their packages.
HOSTED: Final = ("google.colab", "kaggle_secrets", "kaggle_web_client")
#: What has a person choose files, and saves them beside the notebook.
UPLOAD: Final = "google.colab.files.upload"
#: What gives a secret of theirs.
SECRET = re.compile(r"google\.colab\.userdata\.get|.*\.get_secret|kaggle_secrets\.UserSecretsClient\.get_secret")
#: A class of theirs, and what is made of it.
_HOSTED_CLASS = re.compile(rf"({'|'.join(map(re.escape, HOSTED))})\.(\w+\.)*[A-Z]")
#: Kaggle's folders, from the one in which its notebooks run.
_BESIDE_KAGGLE = re.compile(r"\.\./(?=(working|input)/)")
#: Drive in the folder in which Colab's notebooks run, and what puts it there.
_BESIDE_COLAB = re.compile(r"(\./)?(?=drive/My ?Drive(/|$))")
_MOUNTS = re.compile(r"\.mount\(\s*['\"]/content/drive/?['\"]")
#: What a test speaks of that asks where the notebook runs.
_PLACES = re.compile(r"(?i)colab|kaggle")
#: Folders of theirs; the current one is the first, or Kaggle's working folder.
_PATH = re.compile(r"/(content|kaggle)(?![^/])")
_WRITABLE = re.compile(r"(/content/g?drive|/content|/kaggle/working)/.")
CURRENT: Final = ("/content", "/kaggle/working")
#: Folders that are there on Colab or Kaggle before anything is put into them.
_THERE = re.compile(r"/(content(/g?drive(/My ?Drive)?)?|kaggle(/(input|working))?)/?")
_SHELL_PATH = re.compile(
    r"(?<=')(?:{0})/[^'\n]*(?=')|(?<=\")(?:{0})/[^\"\n]*(?=\")"
    r"|(?<![\w.:/-])(?:{0})(?:/(?:\\.|[^\s\\'\";|&)])*)?(?![\w-])".format(
        r"/(?:content|kaggle)|(?:\./)?drive/My(?:\\? )?Drive"
    )
)
#: The name of a file in a path, and what nothing tells of it.
_NAME = re.compile(r"/[^/*]*\*.*|/[^/]*\.[A-Za-z]\w{0,4}$")
#: A file of rows, pictures or sound, as no training saves one.
_ROWS = re.compile(
    r"\.(csv|tsv|jsonl|ndjson|parquet|arrow|feather|xlsx?|np[yz]|h5|xml|pdf|zip|png|jpe?g|wav|mp3|flac)$"
)
#: What gives the path that it is given.
_PATHS = ("pathlib.Path", "str", "os.path.expanduser")
#: What copies or moves the first that it is given to the second.
_MOVERS: Final = ("shutil.", "os.rename", "os.replace")
#: Keywords for what is written.
WRITTEN = re.compile(r"(output|save|logging|log|cache|local|export|extract)_(dir|folder|path|directory|file)")
#: What makes the rest of a shell command's words a target.
_TARGET = re.compile(
    r"(?=((?:\b(?<!\.)(?:mkdir|clone|zip|cp|mv|quantize)\s|\s-d\b|(?<!\bunzip)\s-[Oop]\b|>"
    r"|--(?:local-dir|output|outfile|outdir|directory-prefix|path)\b)[^\n;&|>]*))"  # one may stand behind another
)
#: What the command line of Kaggle names after its data set or competition.
_OF_KAGGLE = re.compile(
    r"\bkaggle\s+(?:datasets|competitions)\s+download\b(?:\s+(?!-[cd]\b|--(?:competition|dataset)\b)-\S+)*"
    r"(?:\s+(?:-[cd]|--competition|--dataset))?\s+(?:[\w-]+/)?([\w-]+)"
)
_CLONE = re.compile(r"\bgit\s+clone\b[^\n;&|]*?/([\w.-]+?)(?:\.git)?/?\s*(?:[\n;&|]|$)")
_FETCHED = re.compile(r"\b(?:wget|curl)\b[^\n;&|]*?/([\w.%-]+)(?:\?[^\s]*)?[\"']?\s*(?:[\n;&|]|$)")
_UPLOADS = re.compile(r"upload_(large_)?(file|folder)")
#: What reads what it is given, or fails.
READERS = re.compile(
    r"open|imread|read_\w+|load(?!_dotenv)\w*|from_\w+|listdir|scandir|copy\w*|ZipFile|Image|Document|[A-Z]\w*(Reader|Loader)"
)


@dataclass(frozen=True)
class HostedPath:
    """A path of Colab's or Kaggle's that the notebook reads, and does not make itself.

    Attributes:
        text: the path as the notebook writes it.
        node: where it stands.
        is_made: the notebook makes it in its current folder, which is then Colab's or Kaggle's.
    """

    text: str
    node: cst.BaseExpression
    is_made: bool


def hosted_name(tree: Tree, call: cst.Call) -> str | None:
    """The full name of a call of Colab's or Kaggle's packages, through an object of theirs too."""
    name = tree.qualified(call.func)
    if name.startswith(HOSTED):
        return name
    made = "" if (owner := owner_of(call)) is None else tree.maker(owner)
    return f"{made}.{method(call)}" if _HOSTED_CLASS.match(made) else None


def hosted_paths(execution: Execution, made: Made) -> list[HostedPath]:
    """The paths that the notebook reads, each where it stands; none that it makes, compares, or only tries."""
    tree, found = execution.tree, []
    for node, text, written in _paths(execution):
        uses = path_uses(tree, node)
        is_made = made.has(text, read_by(tree, uses)) and not any(_is_read_below(tree, made, use) for use in uses)
        is_made = is_made or (isinstance(node, cst.Call) and made.is_filled(text))
        is_made = is_made or (_BESIDE_COLAB.match(written) is not None and made.has_here(text))
        is_idle = all(_is_told(execution, use) or is_only_tried(execution, use) for use in uses)
        if is_made or is_idle or not is_missed(execution, uses):
            continue
        found.append(HostedPath(written, node, made.has_here(text)))
    return found


def read_by(tree: Tree, uses: list[cst.CSTNode]) -> int:
    """The offset by which uses of a path are over, with the blocks around them; in a function that may be the end."""
    ends = [len(tree.source) if tree.function(use) else tree.span(tree.top_statement(use))[1] for use in uses]
    return max(ends, default=len(tree.source))


def _is_read_below(tree: Tree, made: Made, use: cst.CSTNode) -> bool:
    """True where a folder is part of a longer path that the notebook does not make."""
    call = taker(tree, use)
    is_joined = call is not None and tree.qualified(call.func) == "os.path.join"
    return call is not None and is_joined and not any(map(made.has, spelled(tree, call)))


def written_there(execution: Execution, made: Made) -> Iterator[tuple[str, cst.BaseExpression]]:
    """The folders of Colab, Kaggle and Drive below which the notebook writes, each where it names one."""
    for node, text, _ in _paths(execution):
        is_bound = execution.tree.around(node, cst.Assign) is not None  # a root of paths: `OUT = "/kaggle/working"`
        is_kept = is_bound and not _is_given(execution, node, Does.TEST)
        is_target = made.has(text) or (isinstance(node, cst.Call) and made.is_filled(text))
        written = [text] * is_target + made.below(text) * is_kept
        folders = dict.fromkeys(folder[1] for path in written if (folder := _WRITABLE.match(path)) is not None)
        yield from ((folder, node) for folder in folders)


def folders_of(call: cst.Call) -> list[cst.BaseExpression]:
    """What a call is given under a name of what is written: `output_dir = "out"`."""
    return [each.value for each in call.args if each.keyword and WRITTEN.fullmatch(each.keyword.value)]


def targets(tree: Tree, call: cst.Call) -> list[cst.BaseExpression]:
    """What a call that writes is given to write to."""
    given, owner = [each.value for each in call.args], owner_of(call)
    if reads_first(tree, call):
        return given[1:2] if tree.qualified(call.func).startswith(_MOVERS) else []
    return [*given, owner] if owner is not None and tree.maker(held(tree, owner)) == "pathlib.Path" else given


def theirs(tree: Tree, text: str) -> str:
    """A path from the root: `../input/a` is `/kaggle/input/a` in a notebook of Kaggle's, `drive/MyDrive/a` in Drive."""
    if _BESIDE_COLAB.match(text) and _MOUNTS.search(tree.source):
        return _BESIDE_COLAB.sub("/content/", text, 1)
    return _BESIDE_KAGGLE.sub("/kaggle/", text, 1) if _BESIDE_KAGGLE.match(text) and "/kaggle/" in tree.source else text


def _paths(execution: Execution) -> Iterator[tuple[cst.BaseExpression, str, str]]:
    """Paths of theirs, but what is only tried: strings, f-strings, words of shell commands.

    Each with where it stands, and as the notebook writes it.
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
    """Where a path is used: in place, or by the name that it is bound to; `Path(...)` of it is the path.

    The default of a parameter is used by its name if some call leaves it so.
    """

    def path(node: cst.CSTNode) -> cst.Call | None:
        call = taker(tree, node)
        return call if call is not None and tree.qualified(call.func) in _PATHS else None

    whole = tree.followed(node, path)[-1]
    bound = tree.parents[whole]
    is_bound = isinstance(bound, cst.Assign) or (isinstance(bound, cst.Param) and _is_default_used(tree, bound))
    return [*tree.bound_uses(bound)] or [whole] if is_bound else [whole]


def _is_default_used(tree: Tree, param: cst.Param) -> bool:
    """True where some call leaves a parameter to its default."""
    return param.default is not None and param.default in passed(tree, param)


def is_only_tried(execution: Execution, node: cst.CSTNode) -> bool:
    """True for what the notebook only compares or tries: one of several, in a `try`, a branch for Colab or Kaggle.

    A `try` that must succeed is none, and the branch for Colab or Kaggle is the one that no other machine takes.
    """
    tree, inner = execution.tree, node
    for above in tree.ancestors(node):
        if isinstance(above, cst.Call) and hosted_name(tree, above) is not None:
            return True  # `drive.mount("/content/drive")`, which goes
        if isinstance(above, (cst.Comparison, cst.BooleanOperation)):
            return True
        if isinstance(above, cst.Try) and inner is above.body and not must_succeed(tree, above, node):
            return True
        if isinstance(above, (cst.List, cst.Tuple, cst.Set)) and len(above.elements) > 1:
            texts = [text for text in tree.texts(above) if "/" in text]
            others = any(map(_PATH.match, texts)) and not all(map(_PATH.match, texts))
            users = [tree.statement(above), *map(tree.statement, path_uses(tree, above))]
            if others or any(execution.has(user, Does.TEST | Does.LIST) for user in users):
                return True
        if isinstance(above, (cst.If, cst.IfExp)) and inner is not above.test:
            tests = tree.text(above.test), tree.text(tree.value(above.test))
            if isinstance(above, cst.IfExp) or any(map(_PLACES.search, tests)):
                return True
        inner = above
    return False


def path_taker(tree: Tree, use: cst.CSTNode) -> cst.Call | None:
    """The call that a path is an argument of."""
    above = tree.parents[use]
    while isinstance(above, (cst.Element, cst.DictElement, cst.List, cst.Tuple, cst.Dict)):
        above = tree.parents[above]
    return tree.around(above, cst.Call) if isinstance(above, cst.Arg) else None


def _is_told(execution: Execution, use: cst.CSTNode) -> bool:
    """True where a path is only printed, listed to be printed, or written to."""
    if _is_given(execution, use, Does.TELL) or _is_listed(execution, use):
        return True
    call = path_taker(execution.tree, use)
    return call is not None and bool(execution.does(call) & Does.ACT) and not reads_first(execution.tree, call)


def _is_listed(execution: Execution, use: cst.CSTNode) -> bool:
    """True for a folder whose files a loop prints, and does nothing else with: the first cell of Kaggle's notebooks."""
    tree, loop = execution.tree, execution.tree.around(use, cst.For)
    if loop is None or loop.iter not in tree.ancestors(use):
        return False
    binds = any(tree.within(loop.body, kind) for kind in (cst.Assign, cst.AugAssign, cst.AnnAssign))
    calls = [call for call in tree.within(loop.body, cst.Call) if tree.qualified(call.func) != "os.path.join"]
    return bool(calls) and not binds and all(execution.does(call) is Does.TELL for call in calls)


def reads_first(tree: Tree, call: cst.Call) -> bool:
    """True for a call that reads what it is given first: it copies or uploads that, or runs a program with it."""
    name = tree.qualified(call.func)
    reads = name.startswith((*_MOVERS, "os.system", "subprocess."))
    return uploads(tree, call) or (reads and name != "shutil.make_archive")


def uploads(tree: Tree, call: cst.Call) -> bool:
    """True for a call that uploads a file or a folder to the Hub."""
    name = method(call) or tree.qualified(call.func)
    return _UPLOADS.fullmatch(name.rpartition(".")[2]) is not None


def is_missed(execution: Execution, uses: list[cst.CSTNode]) -> bool:
    """False where the notebook asks whether a path is there and goes on without it; true where it raises then."""
    tests = [execution.tree.statement(use) for use in uses if _is_given(execution, use, Does.TEST)]
    return not tests or any(stops(execution.tree, test) or _is_bound_below(execution.tree, test) for test in tests)


def _is_bound_below(tree: Tree, test: Statement) -> bool:
    """True for a test below which the notebook binds what it surely reads later, where its answer is yes."""
    if not isinstance(test, cst.If):
        return False
    is_yes = not isinstance(test.test, (cst.UnaryOperation, cst.BooleanOperation, cst.Comparison))
    is_no = isinstance(test.test, cst.UnaryOperation)
    branch = test.body if is_yes else test.orelse if is_no else None
    return branch is not None and must_run(tree, test, branch)


def _is_given(execution: Execution, use: cst.CSTNode, does: Does) -> bool:
    """True where a path is of use to a call that does no more than this."""
    above = execution.tree.inside_statement(use)
    return any(isinstance(call, cst.Call) and execution.does(call) is does for call in above)


class Made:
    """What the notebook surely makes: the paths that its calls and commands write, and those below them.

    Args:
        tree: the notebook's code.
        making: its calls that make files.
    """

    def __init__(self, tree: Tree, making: list[Maker]) -> None:
        self.tree = tree
        written = {path for maker in making for path in maker.paths}
        paths = {text.strip("'\"").rstrip("/") for text in written if text.strip("'\"./ ")}
        self._making = making
        self._filled = {path for path in paths if _THERE.fullmatch(path)}
        self._absolute = {path for path in paths if path.startswith("/")} - self._filled
        here = {str(PurePosixPath(path)) for path in paths if not path.startswith(("/", "~", "http"))}
        self._here = {f"{folder}/{path}" for folder in CURRENT for path in here}

    def below(self, folder: str) -> list[str]:
        """The paths in a folder that the notebook makes."""
        return sorted(path for path in self._absolute if path.startswith(f"{folder.rstrip('/')}/"))

    def has(self, text: str, end: float = math.inf) -> bool:
        """True for a path that the notebook makes, for what lies below one, and for a folder of files that it makes.

        Nothing below `end` makes a file that is read above it.
        """
        path = filled(self.tree, text).rstrip("/")
        folders = self._written_by(end, path) if _NAME.search(path) else self._absolute
        return _lies_in(path, folders) or any(each.startswith(f"{path}/") for each in self._absolute)

    def _written_by(self, end: float, path: str) -> set[str]:
        """The paths that calls above an offset write, or write files like one into: a trainer writes no rows."""
        makers = [maker for maker in self._making if self.tree.start(maker.call) < end]
        writing = [maker for maker in makers if not (_ROWS.search(path) and keyword(maker.call, "output_dir"))]
        written = {text.strip("'\"").rstrip("/") for maker in writing for text in maker.paths}
        return self._absolute & written

    def is_filled(self, text: str) -> bool:
        """True for a folder of theirs that is there, and that the notebook writes files into."""
        return text.rstrip("/") in self._filled and _WRITABLE.match(text) is not None

    def has_here(self, text: str) -> bool:
        """True for a path that the notebook makes, or that lies below one, if its folder is Colab's or Kaggle's."""
        return _lies_in(text.rstrip("/"), self._here)


#: Which words behind the name of a program it writes to, if not the first.
_WORDS: Final = {"mkdir": slice(None), "quantize": slice(1, 2)} | dict.fromkeys(("clone", "cp", "mv"), slice(-1, None))


def written_by(command: str) -> list[str]:
    """The files and folders that a command writes to, clones and downloads."""
    targets = [word for part in _TARGET.findall(command) for word in _targets(part)]
    zipped = [f"{name}.zip" for name in _OF_KAGGLE.findall(command)]
    return [*targets, *_CLONE.findall(command), *_FETCHED.findall(command), *zipped]


def _targets(part: str) -> list[str]:
    """The words that a part of a command writes to: one, or all folders that are made."""
    does, *rest = words(re.sub(r"^(--[\w-]+)=", r"\1 ", part.replace(">", "> ")))
    given = [word for word in rest if not word.startswith("-")]
    chosen: list[str] = given[_WORDS.get(does, slice(1))]
    return chosen


def _lies_in(path: str, folders: set[str]) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in folders)
