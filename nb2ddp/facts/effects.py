"""Effects of calls, known by their names: one table for all rules (`effects.toml`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from functools import cache
from typing import cast

import libcst as cst

from nb2ddp import toml
from nb2ddp.facts.commands import kills, only_shows, serves
from nb2ddp.facts.flow import called, called_as, makers, receiver
from nb2ddp.notebook.magics import Kind, Syntax
from nb2ddp.syntax.tree import Tree, argument, keyword, method, own_class, remembered


class Does(Flag):
    """The effects of a call; they can be combined."""

    WRITE = auto()  #: writes, moves or removes a file, or logs in
    SAVE = auto()  #: saves or uploads the model
    FETCH = auto()  #: downloads into a folder
    RUN = auto()  #: runs a program
    ASK = auto()  #: asks a service on another machine or port
    TELL = auto()  #: reports something to a person, and changes nothing that code reads
    DRAW = auto()  #: draws from a global random generator, or changes its state
    SEED = auto()  #: sets a global random generator
    CLOCK = auto()  #: returns a time, a number or a name that differs between processes
    TEST = auto()  #: tests whether a file or folder exists
    LIST = auto()  #: lists a folder, in the order of the file system
    CACHE = auto()  #: fills a cache in place: another process may read half of a file meanwhile
    CHANGE = auto()  #: changes its receiver
    PROMPT = auto()  #: waits for a person's answer
    SERVE = auto()  #: serves until a person stops it, and does not return
    KILL = auto()  #: ends programs of the whole machine, no matter who started them

    #: Effects that one process must have for all.
    ACT = WRITE | SAVE | FETCH | RUN


NOTHING = Does(0)
#: Effects in the words of a finding.
ACTIONS = {
    Does.SAVE: "saves or uploads the model",
    Does.WRITE: "writes a file",
    Does.FETCH: "downloads",
    Does.RUN: "runs a program",
}

#: Keywords for the place to write to.
PLACE = re.compile(r"\w*(dir|directory|folder|path|file|filename|output|repo_id)")
#: Cell magics that write their body into a file.
FILE_MAGICS = frozenset({"writefile", "file"})
#: Magics that set or show variables.
ENV_MAGICS = frozenset({"env", "set_env"})
#: Magics that only change or show the notebook.
NOTEBOOK_MAGICS = frozenset(
    "alias autoawait autocall autoindent automagic autosave bookmark clear cls colors config connect_info "
    "debug dhist dirs doctest_mode edit gui hist history killbgscripts less load_ext logoff logon "
    "logstart logstate logstop lsmagic man matplotlib mkdirs more notebook page pastebin pdb pdef pdoc "
    "pfile pinfo pinfo2 pprint precision profile psearch psource qtconsole quickref "
    "reload_ext rehashx reset reset_selective save tb unload_ext who who_ls whos xdel "
    "xmode autoreload watermark tensorboard load_interactive".split()
)
#: Calls that log in to the Hub: if given a token, they write it into a file.
_LOGIN = r"(huggingface_hub\.)?(login|notebook_login|interpreter_login)"
#: Names of functions that write a file if they are given its name, and are in no table: `mimsave`, `tts_to_file`.
_WRITING_NAMES = re.compile(
    r"(?!write$)(\w+_)?[mv]?(im|vol)?(save|write|export|dump|render)(r|_\w+)?|\w*to_\w*file|to_[a-z]+"
)
_FILE_NAME = re.compile(r"[^\s{}]*\.[A-Za-z]\w{1,4}")
WANDB = r"wandb\..*"
#: Methods that return an artifact of Weights & Biases.
_ARTIFACTS = frozenset({"artifact", "use_artifact"})
#: Callables that only keep their arguments: classes (with a capital), and makers of dictionaries and pipelines.
_KEEPS_SETTINGS = re.compile(r"[A-Z]\w*|dict|partial|pipeline|update")
#: Calls whose value is useful only to the process that makes them.
_OBJECTS = re.compile(
    r"(io\.|codecs\.)?open|.*\.open|numpy\.memmap|subprocess\.Popen|os\.popen|huggingface_hub\.Repository"
)


#: Full names of functions that only return a value.
_GIVING = re.compile(
    r"(abs|all|any|bool|bytes|chr|dict|dir|divmod|enumerate|filter|float|format|frozenset|getattr|hasattr|hash|id|int"
    r"|isinstance|issubclass|len|list|map|max|min|ord|pow|range|repr|reversed|round|set|slice|sorted|str|sum|tuple"
    r"|type|vars|zip|next)"
    r"|(re|math|statistics|platform|string|operator|packaging|IPython|importlib\.(util|metadata|resources))(\.\w+)+"
    r"|(itertools|collections|textwrap|html|json\.(loads?|dumps)|ast\.literal_eval)(\.\w+)?"
    r"|os\.(getcwd|getenv|cpu_count|listdir|environ\.(get|keys|items|copy)|path\.\w+)|sys\.(getsizeof|version_info)"
    r"|shutil\.(which|disk_usage)|urllib\.request\.(urlopen|Request)|urllib\.parse\.\w+|requests\.get"
    r"|numpy\.(?!(save|set|random|seterr|put|copyto|fill)\w*$)\w+|numpy\.(linalg|fft)\.\w+"
    r"|transformers\.(\w+\.)*\w*Config\.from_pretrained|pandas\.(?!(set|reset|eval)\w*$)\w+|PIL\.Image\.(open|fromarray)"
    r"|torch\.((cuda\.|backends\.\w+\.)?(is_\w+|compiled_with_\w+)|cuda\.(device_count|get_device_\w+|current_device"
    r"|mem_get_info|memory_\w+|max_memory_\w+)|equal|allclose|finfo|iinfo)"
)
#: Methods that only return a value, for any receiver.
_GIVING_METHODS = frozenset(
    "apply_chat_template as_posix batch_decode capitalize convert copy corr count decode describe dropna dtypes encode"
    " endswith exists expanduser find findall finditer format fullmatch get get_memory_footprint group groupby"
    " groupdict groups head index info is_dir is_file isdigit isna items join keys lower lstrip match mean most_common"
    " named_parameters nunique num_parameters parameters partition read_text removeprefix removesuffix replace resolve"
    " rfind rpartition rsplit rstrip search select shape split splitlines startswith std strip sub sum tail thumbnail"
    " title to_dict to_pandas to_string tokenize tolist unique upper value_counts values version"
    " convert_ids_to_tokens convert_tokens_to_ids get_vocab read nlargest nsmallest sort_values reset_index".split()
)
#: Methods that have an effect, but are called for the value that they return.
_ANSWERING_METHODS = frozenset("ask chat complete compute evaluate generate invoke predict query similarity".split())
#: Names of functions called for their effect: in-place methods end in `_`, or return the object that they change.
_FOR_EFFECT = re.compile(
    r"_?(pprint|print|patch|mark|save|set|add|login|log|init|finish|close|clean|mount|register|enable|disable|resize"
    r"|start|stop|terminate|kill|wait|shutdown|reset|update|delete|remove|clear|upload|push|watch)(_\w+)?|Patch\w+"
    r"|\w+_|\w*login|load_dotenv|use|filterwarnings|simplefilter|launch|setLevel|cleanup|train|eval|to|cuda|cpu|half|float|bfloat16|for_inference|for_training|\w*launcher"
)
#: Effects that a call may have and still only look: it asks, tests or lists.
_ASKS = Does.ASK | Does.TEST | Does.LIST | Does.CLOCK


class Effects:
    """The effects of a notebook's calls, apart from the value that they return.

    Args:
        tree: the notebook's code.
        form: returns the IPython form that a call replaces, if any.
    """

    def __init__(self, tree: Tree, form: Callable[[cst.CSTNode], Syntax | None]) -> None:
        self.tree = tree
        self.form = form

    @remembered
    def of(self, call: cst.Call) -> Does:
        """Return the effects of a call, or of the IPython form that it replaces."""
        does = self._by_name(call)
        return does | self._of_command(call) if does & Does.RUN else does

    @remembered
    def _by_name(self, call: cst.Call) -> Does:
        """Return the effects of a call, without those of the command that it runs."""
        form = self.form(call)
        if form is None:
            return _of_call(self.tree, call)
        return Does.RUN if form.kind is Kind.SHELL and not only_shows(form.command) else NOTHING

    def _of_command(self, call: cst.Call) -> Does:
        """Return the further effects of a program; one that runs in the background does not block."""
        command, beside = self.command(call), self.tree.qualified(call.func) in ("subprocess.Popen", "os.popen")
        does = Does.KILL if kills(command) else Does(0)
        return does | Does.SERVE if serves(command) and not beside else does

    def is_server(self, node: cst.CSTNode) -> bool:
        """Return whether a function serves: `uvicorn.run`, Flask's `app.run`, `server.serve_forever`."""
        return row(self.tree, node).does is Does.SERVE

    def is_shell(self, call: cst.Call) -> bool:
        """Return whether a call replaces a shell command."""
        form = self.form(call)
        return form is not None and form.kind is Kind.SHELL

    @remembered
    def command(self, call: cst.Call) -> str:
        """Return the command line of a call: a shell line, a magic's body or a program; empty if it runs nothing."""
        if (form := self.form(call)) is not None:
            text = form.body or (f"python {form.text}" if form.name == "run" else form.text)
            return "" if form.name in FILE_MAGICS else text
        if not call.args or not self._by_name(call) & Does.RUN:
            return ""
        command = self.tree.value(call.args[0].value)
        python = "python " if "sys.executable" in self.tree.text(command) else ""
        return python + " ".join(self.tree.texts(command))


@dataclass(frozen=True)
class Row:
    """A row of `effects.toml`, which says what its columns mean."""

    does: Does = NOTHING
    name: str = ""
    method: str = ""
    of: str = ""
    through: str = ".*"
    mode: int | None = None
    given: bool = False
    library: Sequence[str] = ()


_ROWS = [Row(**{**each, "does": Does[each["does"]]}) for each in toml.tables(__file__)["call"]]


@cache
def _rows(name: str, called: str) -> list[Row]:
    """Return the rows that match a function's full name or a method's name."""
    return [each for each in _ROWS if re.fullmatch(each.name or each.method, name if each.name else called)]


def row(tree: Tree, function: cst.CSTNode, call: cst.Call | None = None) -> Row:
    """Return the row for a function that is called or passed on; a row without effects if none matches."""
    name = tree.qualified(function) or tree.text(function)
    called = function.attr.value if isinstance(function, cst.Attribute) else ""
    own = own_class(tree, function)
    if own is not None and any(each.name.value == called for each in tree.methods(own)):
        called = ""  # the body of a user-defined method shows its effects
    return next((each for each in _rows(name, called) if _fits(tree, function, call, each)), Row())


def _fits(tree: Tree, function: cst.CSTNode, call: cst.Call | None, row: Row) -> bool:
    """Return whether the columns of a row other than the name match a call."""
    if row.of and not (isinstance(function, cst.Attribute) and made_by(tree, function.value, row.of, row.through)):
        return False
    if row.given and (call is None or not call.args or call.args[0].keyword is not None):
        return False
    if row.mode is None:
        return True
    if call is None:
        return False
    given = argument(call, "mode", row.mode)
    mode = tree.literal(given.value) if given is not None else "r"
    is_mode = isinstance(mode, str) and re.fullmatch(r"[rwaxbt+]+([:|]\w*)?", mode)  # not a path, as in `Image.open`
    return bool(is_mode and set("wax+") & set(str(mode)))


def made_by(tree: Tree, node: cst.BaseExpression, pattern: str, through: str = ".*") -> str:
    """Return the full name of the constructor of an object, or of one it comes from, that matches a pattern; else "".

    Args:
        tree: the notebook's code.
        node: the object.
        pattern: a pattern for the full name.
        through: a pattern for the names of attributes and methods that lead from one object to the next.
    """

    def source(node: cst.BaseExpression) -> cst.BaseExpression | None:
        value = tree.value(node)
        got = value.func if isinstance(value, cst.Call) else value
        if isinstance(got, cst.Attribute):
            return got.value if re.fullmatch(through, got.attr.value) else None
        return value.left if isinstance(value, cst.BinaryOperation) else None

    names = map(tree.constructor, tree.followed(node, source))
    return next((name for name in names if re.fullmatch(pattern, name)), "")


def _of_call(tree: Tree, call: cst.Call) -> Does:
    found = row(tree, call.func, call).does
    if samples(tree, call) and not found & (Does.RUN | Does.SAVE | Does.WRITE):
        return Does.DRAW
    found = found or _as_named(tree, call)
    return Does(0) if found & Does.ACT and _is_own(tree, call, tree.qualified(call.func)) else found


def gives_an_object(tree: Tree, call: cst.Call) -> bool:
    """Return whether a call returns an open file, a running program or the like, which no other process can use."""
    links = tree.followed(cast(cst.BaseExpression, call), lambda each: receiver(tree.value(each)))
    is_file = made_by(tree, call, WANDB) and not any(method(tree.value(each)) in _ARTIFACTS for each in links)
    return bool(is_file or _OBJECTS.fullmatch(tree.qualified(call.func)))


def samples(tree: Tree, call: cst.Call) -> bool:
    """Return whether a call may sample the tokens of an answer; False for a call that only keeps the setting."""
    sampled = keyword(call, "do_sample")
    keeps = _KEEPS_SETTINGS.fullmatch(tree.class_name(call.func)) is not None
    return sampled is not None and not keeps and tree.literal(sampled.value) is not False


def _as_named(tree: Tree, call: cst.Call) -> Does:
    """Return WRITE for a library's function or method whose name suggests writing, if it is given a file's name."""
    is_own = isinstance(tree.definition(call.func), (cst.FunctionDef, cst.ClassDef)) or own_class(tree, call.func)
    if is_own or not _WRITING_NAMES.fullmatch(tree.text(call.func).rpartition(".")[2]):
        return Does(0)
    texts = [text for each in call.args for text in tree.texts(tree.value(each.value))]
    return Does.WRITE if any(map(_FILE_NAME.fullmatch, texts)) else Does(0)


def _is_own(tree: Tree, call: cst.Call, name: str) -> bool:
    """Return whether every process may make a call: it works in memory or a temporary folder, or only looks."""
    first = call.args[0].value if call.args else None
    if "tempfile" in tree.source and any(
        tree.qualified(maker.func).startswith("tempfile.") for maker in makers(tree, call)
    ):
        return True
    if re.fullmatch(r"(huggingface_hub\.)?(snapshot_download|hf_hub_download)", name):
        return keyword(call, "local_dir") is None  # the Hub's cache is safe with several processes
    if name.startswith(("subprocess.", "os.popen")):
        return _only_looks(tree, call)
    if re.fullmatch(_LOGIN, name) and argument(call, "token", 0) is None:
        return True  # it asks a person
    in_memory = first is not None and tree.constructor(first) in ("io.BytesIO", "io.StringIO")
    return in_memory or (first is not None and tree.text(first).endswith("os.devnull"))


def _only_looks(tree: Tree, call: cst.Call) -> bool:
    """Return whether a command only asks: `nvidia-smi`, `--version`."""
    words = tree.texts(call)
    asked = {"nvidia-smi", "--version", "--help", "which", "uname", "lscpu"}
    return any(asked & set(word.split()) for word in words) or (bool(words) and only_shows(" ".join(words)))


# -- expressions without an effect ----------------------------------------------------------------------


def shown_as(tree: Tree, node: cst.CSTNode) -> str:
    """Return the full name of a call's result: IPython's for `Audio` with a rate, which marimo takes for datasets'."""
    if not isinstance(node, cst.Call):
        return ""
    name = tree.qualified(node.func)
    return "IPython.display.Audio" if name == "datasets.Audio" and keyword(node, "rate") else name


def only_looks(effects: Effects, node: cst.CSTNode) -> bool:
    """Return whether an expression has no effect, judging each call in it by its name."""
    tree = effects.tree
    acts = any(tree.within(node, kind) for kind in (cst.Await, cst.NamedExpr, cst.Yield))
    parts = [node, *called(tree, node)]
    return (
        not acts
        and all(_only_gives(effects, call) for part in parts for call in tree.within(part, cst.Call))
        and all(_changes_nothing(tree, function) for function in parts[1:])
    )


def gives_a_value(effects: Effects, node: cst.BaseExpression) -> bool | None:
    """Return whether an expression has a value to show; None if unknown.

    False for a call that is made for its effect, for one that has already shown its result (a streamed answer, a
    trainer's report), and for a call of a user-defined function that returns nothing.
    """
    if not isinstance(node, cst.Call):
        return None if isinstance(node, (cst.Await, cst.Yield)) else True
    tree, name = effects.tree, shown_as(effects.tree, node)
    acts = effects.of(node) & (Does.ACT | Does.TELL | Does.SEED | Does.CHANGE | Does.PROMPT)
    shows = name in ("display", "sys.displayhook", "random.shuffle") or name.startswith(("IPython.", "subprocess."))
    if effects.form(node) is not None or acts or shows or keyword(node, "streamer"):
        return False
    binding = tree.binding(node.func)
    if binding is not None and isinstance(binding.node, cst.FunctionDef):
        return any(each.value is not None for each in tree.within(binding.node, cst.Return))
    is_object = binding is not None and isinstance(binding.value, cst.Call)  # a pipeline, an evaluator
    if is_object or _GIVING.fullmatch(name) or method(node) in _GIVING_METHODS | _ANSWERING_METHODS:
        return True
    return False if _FOR_EFFECT.fullmatch(called_as(tree, node)) else None


def _only_gives(effects: Effects, call: cst.Call) -> bool:
    """Return whether a call only returns a value; the caller checks user-defined functions separately."""
    tree = effects.tree
    if effects.form(call) is not None:
        return False
    name = tree.qualified(call.func)
    if name.startswith("subprocess."):
        return not effects.of(call)  # a command that only shows something
    if _GIVING.fullmatch(name):
        return not effects.of(call) & ~_ASKS
    return isinstance(tree.definition(call.func), (cst.FunctionDef, cst.Param)) or method(call) in _GIVING_METHODS


def _changes_nothing(tree: Tree, function: cst.CSTNode) -> bool:
    """Return whether a function assigns only to local names."""
    others = (cst.Global, cst.Nonlocal, cst.Del, cst.Yield, cst.Await)
    changes = any(isinstance(target, (cst.Attribute, cst.Subscript)) for target in tree.targets(function))
    return not changes and not any(tree.within(function, kind) for kind in others)
