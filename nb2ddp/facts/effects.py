"""Effects of calls, known by their names: one table for all rules."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Flag, auto
from functools import lru_cache
from typing import Final

import libcst as cst

from nb2ddp.facts.flow import owner_of
from nb2ddp.facts.shell import kills, only_shows, serves
from nb2ddp.notebook.magics import Kind, Syntax
from nb2ddp.syntax.tree import Tree, argument, keyword, method, own_class


class Does(Flag):
    """What a call does; several at once where it does several."""

    WRITE = auto()  #: writes, moves or removes a file, or logs in
    SAVE = auto()  #: saves or uploads the model
    FETCH = auto()  #: downloads into a folder
    RUN = auto()  #: runs a program
    ASK = auto()  #: asks a service on another machine or port
    TELL = auto()  #: tells a person something, and changes nothing that code reads
    DRAW = auto()  #: draws from, or moves, a global random generator
    SEED = auto()  #: sets a global random generator
    CLOCK = auto()  #: gives a time, a number or a name that is each process's own
    TEST = auto()  #: asks whether a file or folder is there
    LIST = auto()  #: lists a folder, in whatever order the file system has
    CACHE = auto()  #: fills a cache in place, so that a process that comes meanwhile reads half of a file
    CHANGE = auto()  #: changes the object whose method it is
    PROMPT = auto()  #: waits for the answer of a person
    SERVE = auto()  #: serves until a person stops it, and does not come back
    KILL = auto()  #: ends programs of the whole machine, whoever has started them

    #: What one process must do for all.
    ACT = WRITE | SAVE | FETCH | RUN


#: How a finding says what a call does.
SAID: Final = {
    Does.SAVE: "saves or uploads the model",
    Does.WRITE: "writes a file",
    Does.FETCH: "downloads",
    Does.RUN: "runs a program",
}

#: The keywords for where something is written.
PLACE: Final = re.compile(r"\w*(dir|directory|folder|path|file|filename|output|repo_id)")
#: Cell magics that write their body into a file.
FILE_MAGICS: Final = frozenset({"writefile", "file"})
#: Magics that change or show the notebook only.
NOTEBOOK_MAGICS: Final = frozenset(
    "alias autoawait autocall autoindent automagic autosave bookmark clear cls colors config connect_info "
    "debug dhist dirs doctest_mode edit gui hist history killbgscripts less load_ext logoff logon "
    "logstart logstate logstop lsmagic man matplotlib mkdirs more notebook page pastebin pdb pdef pdoc "
    "pfile pinfo pinfo2 pprint precision profile psearch psource qtconsole quickref "
    "reload_ext rehashx reset reset_selective save tb unload_ext who who_ls whos xdel "
    "xmode autoreload watermark tensorboard load_interactive".split()
)
#: What logs in to the Hub: with a token it writes that into a file.
_LOGIN: Final = r"(huggingface_hub\.)?(login|notebook_login|interpreter_login)"
#: What draws from the one generator that Python's `random`, NumPy or PyTorch keeps for the whole process.
DRAWING: Final = {
    "random": r"random\.(betavariate|choices?|expovariate|gammavariate|gauss|getrandbits|lognormvariate|normalvariate"
    r"|paretovariate|randbytes|randint|random|randrange|sample|shuffle|triangular|uniform|vonmisesvariate"
    r"|weibullvariate)",
    "numpy": r"numpy\.random\.(?!seed$|(get|set)_state$|default_rng$)[a-z]\w*",  # classes begin with a capital
    "torch": r"torch\.(bernoulli|multinomial|normal|poisson|rand|randint|randn|randperm|rand(int|n)?_like)",
}
#: What seeds these generators.
SEEDING: Final = {
    r"random\.seed": ("random",),
    r"numpy\.random\.seed": ("numpy",),
    r"torch(\.random)?\.manual_seed": ("torch",),
    r"(transformers|accelerate)(\.\w+)*\.(enable_full_determinism|set_seed)|.*\bseed_everything": tuple(DRAWING),
}
#: Functions by their full names. The first that matches decides.
_FUNCTIONS: Final = {
    Does.FETCH: r"urllib\.request\.urlretrieve|wget\.download|gdown\.(download|download_folder|cached_download)"
    r"|wandb\.restore|(\w+\.)*(snapshot_download|hf_hub_download|\w+_file_download)"
    r"|kagglehub\.(?!\w*upload)\w*load\w*",  # into a cache that all share, without a lock
    Does.RUN: r"subprocess\.(run|call|check_call|check_output|getoutput|getstatusoutput|Popen)|os\.(system|popen)",
    Does.SAVE: r"huggingface_hub\.(upload_\w+|create_(repo|commit|branch|tag)|delete_\w+|Repository)"
    r"|kagglehub\.\w+_upload",
    Does.WRITE: r"os\.(mkdir|makedirs|remove|unlink|rename|replace|rmdir|removedirs|symlink|link|truncate)"
    r"|shutil\.(copy|copy2|copyfile|copytree|move|rmtree|unpack_archive|make_archive)"
    r"|(json|pickle|yaml|joblib|cloudpickle|dill)\.(dump|safe_dump)|torch\.save"
    r"|numpy\.(save|savez|savez_compressed|savetxt)"
    r"|safetensors(\.\w+)*\.save_file|torchaudio\.save|soundfile\.write|cv2\.imwrite"
    r"|imageio(\.\w+)*\.(\w+(save|write)|get_writer)|scipy\.io\.wavfile\.write|torchvision(\.\w+)*\.save_image"
    r"|pandas\.ExcelWriter|pyarrow(\.\w+)*\.\w+Writer|cv2\.VideoWriter|datasets\.arrow_writer\.ArrowWriter"
    rf"|{_LOGIN}|nltk\.download|spacy\.cli\.download",
    Does.ASK: r"(\w+\.)*(openai|anthropic|cohere|litellm|generativeai|groq|mistralai|ollama)(\.\w+)+"
    r"|(requests|httpx)\.(get|post|put|request|stream|(Async)?Client|Session)|urllib\.request\.urlopen"
    r"|aiohttp\.(ClientSession|request)|huggingface_hub\.(Async)?InferenceClient",
    Does.PROMPT: r"(builtins\.)?input|getpass\.(getpass|unix_getpass)|maskpass\.\w+"
    r"|breakpoint|(pdb|ipdb|pudb)\.(set_trace|post_mortem|pm)|code\.interact",
    Does.SERVE: r"uvicorn\.run|waitress\.serve|werkzeug(\.\w+)*\.run_simple|aiohttp\.web\.run_app|bottle\.run",
    Does.CLOCK: r"time\.(time|monotonic|perf_counter|process_time)(_ns)?"
    r"|time\.(strftime|ctime|localtime|gmtime|asctime)"
    r"|datetime\.(datetime\.|date\.)?(now|utcnow|today)|uuid\.uuid\d|secrets\.\w+|os\.(getpid|urandom)",
    Does.TEST: r"(?s:.*\.)?(exists|isfile|isdir|is_file|is_dir)",
    # openai-whisper and CLIP write the file that they look for, torch.hub removes and unpacks the folder
    Does.CACHE: r"whisper\.load_model|clip\.load|torch\.hub\.load",
    Does.LIST: r"glob\.i?glob|os\.(listdir|scandir|walk)",
    Does.SEED: "|".join([*SEEDING, r"torch(\.cuda)?\.manual_seed(_all)?|.*set_seed|.*seed_everything"]),
    Does.DRAW: "|".join([*DRAWING.values(), r"(random|numpy\.random)\.\w+"]),
    Does.TELL: r"print|warnings\.warn|(.+\.)?(info|debug|warning|error|log|write|flush|close)|matplotlib\.pyplot\.\w+"
    r"|time\.sleep|atexit\.register|gc\.collect|torch\.cuda\.(empty_cache|synchronize)",
}
_SAVING_METHODS = frozenset(
    "create_branch create_commit create_repo create_tag delete_file delete_folder delete_repo git_add git_commit"
    " git_push push_to_hub push_to_hub_gguf push_to_hub_merged save_lora save_pretrained save_pretrained_gguf"
    " save_pretrained_merged save_pretrained_torchao upload_file upload_folder upload_large_folder".split()
)
_WRITING_METHODS = frozenset(
    "chunk_data extractall hardlink_to mkdir prepare_qa_generation rmdir save_audio save_to_disk savefig"
    " symlink_to to_csv to_excel to_feather to_html to_json to_parquet to_pickle to_sql touch unlink"
    " write_bytes write_image write_text".split()
)
#: How what writes a file is called where no table knows it, given a file's name: `mimsave`, `export`, `tts_to_file`.
_WRITING_NAMES = re.compile(
    r"(?!write$)(\w+_)?[mv]?(im|vol)?(save|write|export|dump|render)(r|_\w+)?|\w*to_\w*file|to_[a-z]+"
)
_FILE_NAME = re.compile(r"[^\s{}]*\.[A-Za-z]\w{1,4}")
_DRAWINGS = re.compile(r"(graphviz|torchviz)\..*")
#: What serves for ever: methods by their own names, and others by what their objects are made by.
_SERVING_METHODS = frozenset({"infinity_polling", "run_polling", "serve_forever"})
_SERVERS: Final = {"launch": r"gradio\.\w+", "run": r"flask\.Flask|(\w+\.)*(FastMCP|Dash)", "run_server": r"dash\.Dash"}
#: Methods of a path that give another.
_PATH_MAKERS = re.compile(r"absolute|expanduser|joinpath|parent|resolve|with_\w+")
_LISTING_METHODS = frozenset({"glob", "iterdir", "rglob"})
#: What downloads from Weights & Biases, of what its run or its `Api` gives; what an artifact is given by.
_FETCHING_METHODS: Final = frozenset({"download", "restore"})
_ARTIFACTS: Final = frozenset({"artifact", "use_artifact"})
#: Methods that change what they are called on, or draw from it.
_CHANGING_METHODS = re.compile(
    r"add|add_\w+|append|appendleft|clear|discard|extend|insert|pop|popitem|popleft|remove|resize_\w+|reverse|set_\w+"
    r"|setdefault|sort|update|integers|permutation|permuted|shuffle|choice|normal|uniform|random|sample|seed"
)
#: What only keeps what it is given: classes, which begin with a capital, and the makers of dictionaries and pipelines.
_KEEPS_SETTINGS = re.compile(r"[A-Z]\w*|dict|partial|pipeline|update")
#: Calls whose value is of use to the process that makes them, and to no other.
_OBJECTS = re.compile(
    r"(io\.|codecs\.)?open|.*\.open|numpy\.memmap|subprocess\.Popen|os\.popen|huggingface_hub\.Repository"
)


class Effects:
    """What the calls of a notebook do beyond giving a value.

    Args:
        tree: the notebook's code.
        form: gives the IPython form that a call stands for, if any.
    """

    def __init__(self, tree: Tree, form: Callable[[cst.CSTNode], Syntax | None]) -> None:
        self.tree = tree
        self.form = form
        self._known: dict[int, Does] = {}

    def of(self, call: cst.Call) -> Does:
        """What a call, or the IPython form that it stands for, does."""
        if (known := self._known.get(id(call))) is None:
            form = self.form(call)
            runs = form is not None and form.kind is Kind.SHELL and not only_shows(form.command)
            known = Does.RUN if runs else Does(0) if form is not None else _of_call(self.tree, call)
            self._known[id(call)] = known  # which `command` asks for
            if known & Does.RUN:
                known |= self._of_command(call)
                self._known[id(call)] = known
        return known

    def _of_command(self, call: cst.Call) -> Does:
        """What a program does beside running; one that runs beside the script holds nobody up."""
        command, beside = self.command(call), self.tree.qualified(call.func) in ("subprocess.Popen", "os.popen")
        does = Does.KILL if kills(command) else Does(0)
        return does | Does.SERVE if serves(command) and not beside else does

    def is_server(self, node: cst.CSTNode) -> bool:
        """True for a function that serves: `uvicorn.run`, `app.run` of Flask's, `server.serve_forever`."""
        return bool(_of_function(self.tree.qualified(node)) & Does.SERVE) or _is_server(self.tree, node)

    def is_shell(self, call: cst.Call) -> bool:
        """True for a call that stands for a shell command."""
        form = self.form(call)
        return form is not None and form.kind is Kind.SHELL

    def command(self, call: cst.Call) -> str:
        """What a call runs, as a command line: a shell line, a magic's body, a program; empty where it runs nothing."""
        if (form := self.form(call)) is not None:
            text = form.body or (f"python {form.text}" if form.name == "run" else form.text)
            return "" if form.name in FILE_MAGICS else text
        if not call.args or not self.of(call) & Does.RUN:
            return ""
        command = self.tree.value(call.args[0].value)
        python = "python " if "sys.executable" in self.tree.text(command) else ""
        return python + " ".join(self.tree.texts(command))


def _of_call(tree: Tree, call: cst.Call) -> Does:
    name = tree.qualified(call.func)
    found = _of_function(name or tree.text(call.func))
    if not found or found is Does.TELL:
        found = _opens(tree, call, name) or _method(tree, call, name) or found or _as_named(tree, call)
    return Does(0) if found & Does.ACT and _is_own(tree, call, name) else found


#: What opens a zip or tar file.
_ARCHIVES: Final = re.compile(r"zipfile\.(Py)?ZipFile|tarfile\.(TarFile\.)?open|tarfile\.TarFile")


@lru_cache(maxsize=4096)
def _of_function(name: str) -> Does:
    """What a function does, by its full name."""
    return next((what for what, pattern in _FUNCTIONS.items() if re.fullmatch(pattern, name)), Does(0))


def gives_an_object(tree: Tree, call: cst.Call) -> bool:
    """True for a call that gives an open file, a running program or the like, which no other process can take."""
    is_file = of_wandb(tree, call) and not any(method(tree.value(each)) in _ARTIFACTS for each in _chain(tree, call))
    return bool(is_file or _OBJECTS.fullmatch(tree.qualified(call.func)))


def _opens(tree: Tree, call: cst.Call, name: str) -> Does:
    """Of what opens a file: whether it is for writing."""
    if name == "numpy.memmap":
        position = 2
    elif name == "open" or re.fullmatch(r"(io|codecs|gzip|bz2|lzma)\.open", name) or opens_archive(tree, call):
        position = 1
    elif method(call) == "open":
        position = 0
    else:
        return Does(0)
    mode = argument(call, "mode", position)
    value = tree.literal(mode.value) if mode is not None else "r"
    is_mode = isinstance(value, str) and re.fullmatch(r"[rwaxbt+]+([:|]\w*)?", value)  # no path, as of `Image.open`
    return Does.WRITE if is_mode and set("wax+") & set(str(value)) else Does(0)


def samples(tree: Tree, call: cst.Call) -> bool:
    """True for a call that draws the tokens of an answer, or may; not for what only keeps the setting."""
    sampled = keyword(call, "do_sample")
    keeps = _KEEPS_SETTINGS.fullmatch(tree.class_name(call.func)) is not None
    return sampled is not None and not keeps and tree.literal(sampled.value) is not False


def opens_archive(tree: Tree, node: cst.CSTNode) -> bool:
    """True for a call that opens a zip or tar file."""
    return isinstance(node, cst.Call) and bool(_ARCHIVES.fullmatch(tree.qualified(node.func)))


def _as_named(tree: Tree, call: cst.Call) -> Does:
    """WRITE for a function or method of a library that is called like what writes, and given a file's name."""
    is_own = isinstance(tree.definition(call.func), (cst.FunctionDef, cst.ClassDef)) or own_class(tree, call.func)
    if is_own or not _WRITING_NAMES.fullmatch(tree.text(call.func).rpartition(".")[2]):
        return Does(0)
    texts = [text for each in call.args for text in tree.texts(tree.value(each.value))]
    return Does.WRITE if any(map(_FILE_NAME.fullmatch, texts)) else Does(0)


def _method(tree: Tree, call: cst.Call, name: str) -> Does:
    owner, called = owner_of(call), method(call)
    if owner is None:
        return Does(0)
    own = own_class(tree, call.func)
    if own is not None and any(each.name.value == called for each in tree.methods(own)):
        return Does(0)  # of the notebook: what it does stands there
    if called == "extract" and _ARCHIVES.fullmatch(tree.maker(owner)):
        return Does.WRITE
    if _fetches_of_wandb(tree, call, owner):
        return Does.FETCH
    if called in _SAVING_METHODS:
        return Does.SAVE
    if samples(tree, call):
        return Does.DRAW
    if called in _WRITING_METHODS:
        returns_text = called in ("to_html", "to_json") and name.startswith((".", "plt")) and not call.args
        return Does(0) if returns_text else Does.WRITE
    if _is_server(tree, call.func):
        return Does.SERVE
    if called == "save" and call.args and call.args[0].keyword is None:
        return Does.WRITE  # a picture, an archive, a figure: whatever it is
    if called == "render" and _DRAWINGS.fullmatch(tree.maker(owner)):
        return Does.WRITE
    if called in ("rename", "replace") and _is_path(tree, owner):  # texts and tables have them too
        return Does.WRITE
    if called in _LISTING_METHODS:
        return Does.LIST
    return Does.CHANGE if _CHANGING_METHODS.fullmatch(called) else Does(0)


def of_wandb(tree: Tree, node: cst.BaseExpression) -> str:
    """What a chain of calls of Weights & Biases begins with: `wandb.init` of `run.use_artifact("a:v4")`; else ""."""
    return next((maker for each in _chain(tree, node) if (maker := tree.maker(each)).startswith("wandb.")), "")


def _chain(tree: Tree, node: cst.BaseExpression) -> list[cst.BaseExpression]:
    return tree.followed(node, lambda each: owner_of(tree.value(each)))


def _fetches_of_wandb(tree: Tree, call: cst.Call, owner: cst.BaseExpression) -> bool:
    """True for what writes a file of Weights & Biases into a folder: `run.use_artifact("a/b/c:v4").download()`."""
    is_one = method(call) == "file" and method(tree.value(owner)) in _ARTIFACTS
    return (is_one or method(call) in _FETCHING_METHODS) and bool(of_wandb(tree, owner))


def _is_server(tree: Tree, function: cst.CSTNode) -> bool:
    """True for the method by which an object serves: `app.run` of Flask's, `demo.launch` of Gradio's."""
    if not isinstance(function, cst.Attribute):
        return False
    makers = _SERVERS.get(function.attr.value)
    if makers is None:
        return function.attr.value in _SERVING_METHODS
    owners = tree.followed(function.value, owner_of)  # of `demo.queue().launch()`
    return any(re.fullmatch(makers, tree.maker(owner)) for owner in owners)


def _is_path(tree: Tree, node: cst.BaseExpression) -> bool:
    """True for a path of pathlib's, or one that is made of one: `Path("out") / "rows"`, `path.parent`."""

    def source(node: cst.BaseExpression) -> cst.BaseExpression | None:
        value = tree.value(node)
        if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Divide):
            return value.left
        made = value.func if isinstance(value, cst.Call) else value
        return made.value if isinstance(made, cst.Attribute) and _PATH_MAKERS.fullmatch(made.attr.value) else None

    return any(tree.maker(each).startswith("pathlib.Path") for each in tree.followed(node, source))


def _is_own(tree: Tree, call: cst.Call, name: str) -> bool:
    """True where each process may do the same: in memory or a temporary folder of its own, or only to look."""
    first = call.args[0].value if call.args else None
    if _below_temporary(tree, call):
        return True
    if re.fullmatch(r"(huggingface_hub\.)?(snapshot_download|hf_hub_download)", name):
        return keyword(call, "local_dir") is None  # the hub's own cache is safe with several processes
    if name.startswith(("subprocess.", "os.popen")):
        return _only_looks(tree, call)
    if re.fullmatch(_LOGIN, name) and argument(call, "token", 0) is None:
        return True  # it asks a person: rule DDP311
    in_memory = first is not None and tree.maker(first) in ("io.BytesIO", "io.StringIO")
    return in_memory or (first is not None and tree.text(first).endswith("os.devnull"))


def _below_temporary(tree: Tree, call: cst.Call) -> bool:
    """True where a call is given something of a temporary folder: each process has its own."""
    makers = (maker for part in tree.made_of(call) for maker in tree.within(part, cst.Call))
    return any(tree.qualified(maker.func).startswith("tempfile.") for maker in makers)


def _only_looks(tree: Tree, call: cst.Call) -> bool:
    """True for a command that only asks: `nvidia-smi`, `--version`."""
    words = tree.texts(call)
    asked = {"nvidia-smi", "--version", "--help", "which", "uname", "lscpu"}
    return any(asked & set(word.split()) for word in words) or (bool(words) and only_shows(" ".join(words)))
