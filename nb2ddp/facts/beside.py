"""Whether a file or folder beside the script must be there as the job starts, as nothing in the notebook may bring it.

Where anything leaves that open, the file is only named: a job must not stop for what it would have made itself.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import libcst as cst

from nb2ddp.facts.effects import FILE_MAGICS, NOTEBOOK_MAGICS, PLACE, Does
from nb2ddp.facts.environment import ENV_MAGICS, packages_of
from nb2ddp.facts.flow import is_tried
from nb2ddp.facts.hosted import GLOB, TABLE, folders_of, is_only_tried, path_taker
from nb2ddp.facts.shell import only_shows, parts, unwrapped
from nb2ddp.facts.texts import filled, leaving, received, spelled
from nb2ddp.notebook.magics import Kind
from nb2ddp.syntax.tree import argument, keyword, method

if TYPE_CHECKING:
    from nb2ddp.facts.execution import Execution
    from nb2ddp.facts.makers import Maker

#: What fails where the file or folder that it is given first is missing.
_FAILS = re.compile(
    r"(open|(io|codecs|gzip|bz2|lzma)\.open|os\.(listdir|scandir)|zipfile\.ZipFile|tarfile\.open|PIL\.Image\.open"
    r"|(pandas|polars)\.read_(?!sql|gbq|clipboard)\w+|numpy\.(load|loadtxt|genfromtxt)|torch\.load|torchaudio\.load|librosa\.load"
    r"|soundfile\.read|joblib\.load|docx\.Document|(pypdf|PyPDF2)\.PdfReader"
    r"|datasets\.(load_dataset|load_from_disk|Dataset(Dict)?\.(load_from_disk|from_(csv|json|parquet|text)))"
    r"|(unsloth|transformers|peft)\.(?!FastSentence)(\w+\.)*from_pretrained)"
)
#: What trainings and their libraries make without being told.
_BY_DEFAULT = re.compile(
    r"(_?unsloth\w*|outputs?|results|trainer_output|tmp_trainer|checkpoints?|wandb|mlruns|runs|logs|swanlog|llama\.cpp"
    r"|huggingface_tokenizers_cache)(?![^/])"
)
#: Modules that put nothing beside the script as they are imported, and nothing later that no call names.
_QUIET: Final = sys.stdlib_module_names | frozenset(
    """
    accelerate bitsandbytes bs4 cv2 datasets docx dotenv einops evaluate google huggingface_hub IPython jinja2
    joblib json_repair kaggle_secrets librosa matplotlib nltk numpy openai openpyxl packaging pandas peft PIL plotly
    polars psutil pyarrow pydantic pypdf PyPDF2 regex requests rich rouge_score safetensors scipy seaborn
    sentence_transformers sentencepiece sklearn soundfile tabulate tiktoken tokenizers torch torchaudio torchvision
    tqdm transformers triton trl unsloth unsloth_zoo vllm wandb xformers yaml
    """.split()
)
#: What runs code that is not read, or changes the current folder.
_HIDES = re.compile(
    r"exec|runpy\.\w+|importlib\.import_module|__import__|get_ipython(\.\w+)*|(.*\.)?f?chdir"
    r"|(.*\.)?(HfArgumentParser|TrlParser)"
)
#: Commands that write what they name literally, or nothing beside the script.
_PLAIN = re.compile(
    r"(sudo\s+)?((python3?\s+-m\s+)?pip3?|(uv|conda)\s+(pip|install|add|sync)|apt(-get)?"
    r"|git\s+(clone|config|lfs\s+install)|mkdir|rm|cp|mv|export|sleep|kill|pkill|hf|huggingface-cli|wandb|echo|touch|true|wget(?!.*\s(-i|--input-file|--content-disposition)\b)"
    r"|curl(?!.*\s(-\w*J|--remote-header-name)))\b[^|$`{*]*"
)
_HARMLESS_MAGICS: Final = (
    NOTEBOOK_MAGICS | ENV_MAGICS | FILE_MAGICS | {"capture", "time", "timeit", "pip", "conda", "uv"}
)
#: What is told where to write, under a name that `**settings` may hold.
_TOLD = re.compile(r".*(Config|Arguments|Trainer|download\w*)")
_ARGUMENTS = re.compile(r".*(Config|Arguments)")


def must_be_there(
    execution: Execution, making: list[Maker], reading: list[cst.CSTNode], text: str, node: cst.CSTNode
) -> bool:
    """Whether the notebook surely stops where nobody has put a file or folder that it reads beside the script.

    Args:
        execution: the steps of the notebook.
        making: its calls that may make files, but those that read this one.
        reading: where it is read.
        text: its path, relative.
        node: where that stands.
    """
    tree = execution.tree
    if GLOB.search(text) or (_BY_DEFAULT.match(text.removeprefix("./")) and not TABLE.search(text)):
        return False
    sure = [tree.start(use) for use in reading if _fails(execution, use) and not is_tried(tree, use)]
    default = tree.parents[node]
    if isinstance(default, cst.Param) and default.default is node and _fails_inside(execution, default):
        sure += [tree.start(call) for call in leaving(tree, default) if not is_tried(tree, call)]
    return any(not (_is_spoken_of(execution, text, node, at) or may_come(execution, making, text, at)) for at in sure)


def _fails(execution: Execution, use: cst.CSTNode, depth: int = 2) -> bool:
    """Whether what is given a path fails without it; a function of the notebook's by what it does with it."""
    tree, call = execution.tree, path_taker(execution.tree, use)
    if call is None or is_only_tried(execution, use) or execution.does(call) & Does.ACT:
        return False
    place = tree.parents[use]
    if depth and isinstance(place, cst.Arg) and (param := received(tree, call, place)) is not None:
        return _fails_inside(execution, param, depth - 1)
    name = tree.qualified(call.func)
    is_told = keyword(call, "data_dir") in (None, tree.around(use, cst.Arg))  # `data_files` lie in it
    mode = argument(call, "mode", 1) if re.search(r"(open|ZipFile)$", name) else None
    is_reading = mode is None or isinstance(tree.literal(mode.value), str)
    return bool(_FAILS.fullmatch(name)) and is_told and is_reading


def _fails_inside(execution: Execution, param: cst.Param, depth: int = 1) -> bool:
    """Whether the function of a parameter surely fails without the file or folder that this names."""
    tree, own = execution.tree, execution.tree.function(param)
    if own is None:
        return False
    uses = [each for each in tree.loads(param.name.value) if tree.definition(each) is param]
    left = [tree.span(each)[1] for each in tree.within(own, cst.Return)]
    inside = [each for each in uses if not is_tried(tree, each, within=own)]
    sure = [each for each in inside if not any(end < tree.start(each) for end in left)]
    return any(_fails(execution, each, depth) for each in sure)


def _is_spoken_of(execution: Execution, text: str, node: cst.CSTNode, end: int) -> bool:
    """Whether another text above an offset names the file, and neither prints nor reads it: a setting, a test."""
    tree = execution.tree
    name = re.compile(rf"(?<![\w.-]){re.escape(text.rstrip('/').rpartition('/')[2])}(?![\w-])")
    others: list[cst.SimpleString | cst.FormattedStringText] = [*tree.live(cst.SimpleString)]
    others += tree.live(cst.FormattedStringText)
    above = [each for each in others if tree.start(each) < end or tree.function(each) is not None]
    named = [each for each in above if name.search(each.value) and node not in (each, tree.parents[each])]
    return any(not (_is_printed(execution, each) or _fails(execution, each)) for each in named)


def _is_printed(execution: Execution, node: cst.CSTNode) -> bool:
    above = execution.tree.inside_statement(node)
    return any(isinstance(call, cst.Call) and execution.does(call) is Does.TELL for call in above)


def may_come(execution: Execution, making: list[Maker], text: str, end: int) -> bool:
    """Whether something above an offset may make a file or folder, or change the current one."""
    tree = execution.tree
    imports: list[cst.Import | cst.ImportFrom] = [*tree.live(cst.Import), *tree.live(cst.ImportFrom)]
    above = [line for line in imports if tree.start(line) < end and not execution.is_install(line)]
    if not all(packages_of(line) <= _QUIET for line in above):
        return True
    acting = [maker.call for maker in making if maker.may_make(text) or maker.unpacks or maker.enters]
    acting += [call for call in execution.calls() if _hides(execution, call)]
    return any(_runs_above(execution, call, end) for call in acting)


def _runs_above(execution: Execution, call: cst.Call, end: int) -> bool:
    """Whether a call runs above an offset, or may: nothing tells when a trainer calls what it is given."""
    runs = execution.tree.run_from(call, execution.tree.uses)
    return not runs or any(execution.tree.start(run) < end for run in runs)


def _hides(execution: Execution, call: cst.Call) -> bool:
    """Whether a call may make a file that no name in it tells, or change the folder."""
    tree, form, does = execution.tree, execution.source.form(call), execution.does(call)
    if form is not None and form.kind is not Kind.SHELL and form.body is None:
        return form.name not in _HARMLESS_MAGICS
    if form is not None and form.name in FILE_MAGICS:
        return False
    if form is not None or does & Does.RUN:
        is_plain = _is_plain(filled(tree, execution.effects.command(call)))
        return not is_plain or (form is None and _is_open(execution, call))
    name = tree.qualified(call.func)
    if _HIDES.fullmatch(name) or any(not _is_told(execution, [each]) for each in folders_of(call)):
        return True
    if does & Does.SAVE and "gguf" in method(call):
        return True  # into a folder whose name the library makes
    is_filled_in = any(each.star for each in call.args)
    if is_filled_in and (does & Does.ACT or _TOLD.fullmatch(name)):
        return True
    places = [each.value for each in call.args if each.keyword is None or PLACE.fullmatch(each.keyword.value)]
    if does & Does.FETCH:
        return not _is_told(execution, places)
    is_saved = does & Does.SAVE and not method(call).startswith(("upload_", "create_", "delete_"))
    return bool(is_saved or _ARGUMENTS.fullmatch(name)) and not _is_told(execution, places[:1])


def _is_open(execution: Execution, call: cst.Call) -> bool:
    """Whether the words of what Python starts are not all told."""
    command = execution.tree.value(call.args[0].value) if call.args else call
    given = [each.value for each in command.elements] if isinstance(command, (cst.List, cst.Tuple)) else [command]
    return any("*" in text for each in given for text in spelled(execution.tree, each))


def _is_told(execution: Execution, places: Iterable[cst.BaseExpression]) -> bool:
    """Whether texts say where something is written, in a folder of its own."""
    texts = [text for each in places for text in spelled(execution.tree, each)]
    return all(re.search(r"\w", text) for text in texts)


def _is_plain(command: str) -> bool:
    """Whether a command writes only what its words name."""
    lines = [line.strip() for line in unwrapped(command).replace("\\\n", " ").splitlines()]
    acting = [line for line in lines if line and not line.startswith("#") and not only_shows(line)]
    return all(_PLAIN.fullmatch(part.strip()) or only_shows(part) for line in acting for part in parts(line))
