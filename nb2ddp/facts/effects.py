"""Calls of Python that must not run once a process: they write files, fetch, or start something."""

from __future__ import annotations

import re
from enum import Enum

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import only_shows
from nb2ddp.notebook.magics import Kind
from nb2ddp.syntax.tree import Tree, argument, keyword

_WRITING_FUNCTIONS = re.compile(
    r"os\.(mkdir|makedirs|remove|unlink|rename|replace|rmdir|removedirs|symlink|link|truncate|system)"
    r"|shutil\.(copy|copy2|copyfile|copytree|move|rmtree|unpack_archive|make_archive)"
    r"|(json|pickle|yaml|joblib|cloudpickle|dill)\.(dump|safe_dump)|torch\.save|numpy\.(save|savez|savez_compressed|savetxt)"
    r"|safetensors(\.\w+)*\.save_file|torchaudio\.save|soundfile\.write|cv2\.imwrite|imageio(\.\w+)*\.(imwrite|imsave)"
    r"|scipy\.io\.wavfile\.write|torchvision(\.\w+)*\.save_image"
    r"|subprocess\.(run|call|check_call|check_output|getoutput|getstatusoutput|Popen)|os\.popen|(huggingface_hub\.)?(login|notebook_login|interpreter_login)"
    r"|huggingface_hub\.(upload_\w+|create_(repo|commit|branch|tag)|delete_\w+|Repository)|nltk\.download|spacy\.cli\.download"
)
_LOGIN = re.compile(r"(huggingface_hub\.)?(login|notebook_login|interpreter_login)")
_FETCHING = re.compile(
    r"urllib\.request\.urlretrieve|wget\.download|gdown\.(download|download_folder|cached_download)"
    r"|(huggingface_hub\.)?(snapshot_download|hf_hub_download)|kagglehub\.(dataset|model)_download"
)
_SAVING_METHODS = frozenset(
    "create_branch create_commit create_repo create_tag delete_file delete_folder delete_repo git_add git_commit"
    " git_push push_to_hub push_to_hub_gguf push_to_hub_merged save_lora save_pretrained save_pretrained_gguf"
    " save_pretrained_merged save_pretrained_torchao upload_file upload_folder upload_large_folder".split()
)
#: Calls whose value is of use to the process that makes them, and to no other.
_OBJECTS = re.compile(
    r"(io\.|codecs\.)?open|.*\.open|numpy\.memmap|subprocess\.Popen|os\.popen|huggingface_hub\.Repository"
)
_WRITING_METHODS = frozenset(
    "chunk_data extractall prepare_qa_generation save_audio"
    " save_to_disk savefig to_csv to_excel to_feather to_html to_json to_parquet to_pickle to_sql write_bytes"
    " write_image write_text".split()
)
#: Method names that write only when they are given a path.
_WRITING_WITH_PATH = frozenset({"save"})
#: Methods of a path: those that nothing else has, and those that must be known for a path's.
_OWN_PATH_METHODS = frozenset({"mkdir", "rmdir", "touch", "unlink"})
_PATH_METHODS = frozenset({"rename", "replace"})


class Effect(Enum):
    """What a call does that one process must do for all."""

    SAVE = "saves or uploads the model"
    WRITE = "writes a file"
    FETCH = "downloads"
    RUN = "runs a program"


def effect(tree: Tree, call: cst.Call) -> Effect | None:
    """The effect of a call beyond this process, as far as its name tells."""
    name = tree.qualified(call.func)
    if _below_temporary(tree, call) or (_LOGIN.fullmatch(name) and not call.args):
        return None
    if _FETCHING.fullmatch(name):
        if name.rsplit(".", 1)[-1] in ("snapshot_download", "hf_hub_download") and not keyword(call, "local_dir"):
            return None  # the hub's own cache is safe with several processes
        return Effect.FETCH
    if _WRITING_FUNCTIONS.fullmatch(name):
        if _only_reads(tree, call, name) or (call.args and _is_in_memory(tree, call.args[0].value)):
            return None
        if name.startswith("huggingface_hub.") and not _LOGIN.fullmatch(name):
            return Effect.SAVE
        return Effect.RUN if name.startswith(("subprocess.", "os.system", "os.popen")) else Effect.WRITE
    if name in ("open", "io.open", "codecs.open"):
        if call.args and tree.text(call.args[0].value).endswith("os.devnull"):
            return None
        return Effect.WRITE if _opens_for_writing(tree, argument(call, "mode", 1)) else None
    if name == "numpy.memmap":
        return Effect.WRITE if _opens_for_writing(tree, argument(call, "mode", 2)) else None
    if isinstance(call.func, cst.Attribute):
        method, owner = call.func.attr.value, call.func.value
        if method in _SAVING_METHODS:
            return Effect.SAVE
        if method in _WRITING_METHODS:
            return (
                None
                if name.startswith((".", "plt")) and method in ("to_json", "to_html") and not call.args
                else Effect.WRITE
            )
        if method in _WRITING_WITH_PATH and call.args and _is_text(tree, call.args[0].value):
            return Effect.WRITE
        made_by = tree.value(owner)
        if method in _OWN_PATH_METHODS:
            return Effect.WRITE
        if method in _PATH_METHODS and isinstance(made_by, cst.Call) and tree.qualified(made_by.func) == "pathlib.Path":
            return Effect.WRITE
        if method == "open" and _opens_for_writing(tree, argument(call, "mode", 0)):
            return Effect.WRITE
    return None


def acts(program: Program, call: cst.Call) -> bool:
    """True for a call, or a shell command, that one process must make for all."""
    form = program.form(call)
    shell = form is not None and form.kind is Kind.SHELL and not only_shows(form.command)
    return shell or effect(program.tree, call) is not None


def gives_an_object(tree: Tree, call: cst.Call) -> bool:
    """True for a call that gives an open file, a running program or the like, which no other process can take."""
    return bool(_OBJECTS.fullmatch(tree.qualified(call.func)))


def _opens_for_writing(tree: Tree, mode: cst.Arg | None) -> bool:
    value = tree.literal(mode.value) if mode is not None else "r"
    return isinstance(value, str) and any(letter in value for letter in "wax+")


def _below_temporary(tree: Tree, call: cst.Call) -> bool:
    """True where a call is given something of a temporary folder: each process has its own."""
    for name in tree.within(call, cst.Name):
        binding = tree.binding(name)
        if binding is not None and isinstance(binding.node, (cst.Assign, cst.WithItem)):
            source = binding.node.value if isinstance(binding.node, cst.Assign) else binding.node.item
            if any(tree.qualified(c.func).startswith("tempfile.") for c in tree.within(source, cst.Call)):
                return True
    return False


def _is_text(tree: Tree, node: cst.BaseExpression) -> bool:
    """True for a path that is written out: a string, an f-string, or a name for one."""
    return isinstance(tree.value(node), (cst.SimpleString, cst.ConcatenatedString, cst.FormattedString))


def _is_in_memory(tree: Tree, target: cst.BaseExpression) -> bool:
    """True for a buffer that is no file."""
    made_by = tree.value(target)
    return isinstance(made_by, cst.Call) and tree.qualified(made_by.func) in ("io.BytesIO", "io.StringIO")


def _only_reads(tree: Tree, call: cst.Call, name: str) -> bool:
    """True for a command that only asks: `nvidia-smi`, `--version`."""
    words = [str(s.evaluated_value) for s in tree.within(call, cst.SimpleString)]
    asked = {"nvidia-smi", "--version", "--help", "which", "uname", "lscpu"}
    runs = name.startswith(("subprocess.", "os.popen"))
    return runs and (any(asked & set(word.split()) for word in words) or (bool(words) and only_shows(" ".join(words))))


def writes(program: Program) -> list[tuple[cst.Call, Effect]]:
    """Live calls with an effect that run before the end of training, outside install cells, in order."""
    tree = program.tree
    return [
        (call, found)
        for call in tree.of(cst.Call)
        if (found := effect(tree, call)) is not None
        and tree.is_live(call)
        and not program.installs.covers(call)
        and program.runs_before_end(call)
    ]
