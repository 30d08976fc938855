"""Find out before a script runs what it loads, what it trains with, and where it names devices."""

from __future__ import annotations

import ast
import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nb2ddp.rehearsal.environments import LIBRARIES, Environment, here
from nb2ddp.rehearsal.hub import DataHints
from nb2ddp.rehearsal.stage.nodes import calls, constant, every, imported, texts, used
from nb2ddp.rehearsal.stage.outside import LAUNCHED, SECRET
from nb2ddp.rehearsal.stage.schema import MOST_ROWS

#: What Unsloth's CPU backend offers (`unsloth._cpu_init.__all__` of 2026.10.9), and the trainers that it supports.
_CPU_NAMES = frozenset(
    "FastLanguageModel FastModel is_bfloat16_supported is_bf16_supported get_chat_template apply_chat_template "
    "standardize_data_formats standardize_sharegpt train_on_responses_only UnslothTrainer "
    "UnslothTrainingArguments".split()
)
_CPU_TRAINERS = frozenset({"SFTTrainer", "UnslothTrainer", "Trainer"})
#: Patterns of a script that trains something other than a text model, or generates with vLLM.
_NOT_TEXT = (
    r"AutoProcessor|AutoModelFor(?!CausalLM)|auto_model\s*=(?!\s*\w+ForCausalLM)|ForConditionalGeneration|"
    r"\b(tokenizer|processor)\.tokenizer\b|fast_inference\s*=(?!\s*False)"
)
_SEES = r"FastVisionModel|VisionDataCollator|ImageTextToText|Vision2Seq|image_processor"
_HEARS = r"(\[|cast_column\()\s*[\"']audio[\"']"
_CHATS_OF_SOUNDS = r"[\"']audio[\"']\s*:\s*\w+\[[\"']audio[\"']\]"
#: What a rehearsal does not support -> the pattern of a script that needs it.
_BEYOND = {
    "code of a model's repository (trust_remote_code)": r"\btrust_remote_code\s*=\s*True",
    "audio codecs": r"^\s*(from|import)\s+(snac|xcodec2|torchaudio)\b",
    "a model that speaks": r"\bCsm[A-Z]|\bcsm-\d|\bsesame",
}
_ROWS, _FEW_ROWS = 1200, 240  # at least, of a data set; of one with pictures or sounds, which take longer to process
_NEEDED = ("torch", "transformers", "accelerate", "datasets")
_SPREAD = ("auto", "balanced", "balanced_low_0", "sequential")
_SPLIT = r"(?!.*(runtime|loss|second|dataset|size|step|batch))(train|test|val|eval|dev)\w{0,12}"


class PlanError(Exception):
    """A script cannot be rehearsed. The message is one sentence; `line` is the line at fault, or None."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Plan:
    """A script and what it needs."""

    name: str
    text: str
    folder: Path  #: the folder of the script and of the files that it reads
    trainers: tuple[str, ...]
    unsloth: str  #: "real", "stand-in", or "" if it is not used
    models: tuple[str, ...]  #: ids of the hub that it loads models and tokenizers from
    data: dict[str, DataHints]
    files: tuple[Path, ...]  #: files next to the script that it names
    packages: tuple[str, ...] = ()
    variables: dict[str, bool] = field(default_factory=dict)  #: of the environment; True if it needs a placeholder
    spread: tuple[tuple[int, str], ...] = ()  #: lines that load a model over all GPUs, or on a fixed one
    sees: bool = False  #: whether its models are given pictures
    cells: dict[int, int] = field(default_factory=dict)  #: first line of a cell -> its number in the notebook
    environment: Environment = field(default_factory=here)
    other_versions: tuple[str, ...] = ()  #: versions that the notebook asks for and the environment lacks

    @property
    def beyond(self) -> list[str]:
        """What the script seems to need and no rehearsal supports."""
        return [what for what, pattern in _BEYOND.items() if re.search(pattern, self.text, re.MULTILINE)]

    def place(self, line: int | None) -> str:
        """Return the name of a line in messages: `train.py:120 (cell 14)`."""
        cell = max((start for start in self.cells if line is not None and start <= line), default=None)
        return f"{self.name}:{line or '?'}" + (f" (cell {self.cells[cell]})" if cell else "")

    def source(self, line: int | None) -> str:
        """Return the text of a line; "" if there is no such line."""
        lines = self.text.splitlines()
        return lines[line - 1].strip() if line and line <= len(lines) else ""


def planned(path: Path, text: str, choose: Callable[[Sequence[str]], Environment] = lambda _: here()) -> Plan:
    """Return the plan of a script.

    Args:
        path: its path, next to the files that it reads; the file need not exist.
        text: its text.
        choose: returns the environment for a script that trains with these libraries.

    Returns:
        What it needs.

    Raises:
        PlanError: it is not Python, or has no training that a rehearsal can follow.
    """
    tree, folder = _parsed(text), path.resolve().parent
    names = used(tree)
    trainers = tuple(sorted(name for name in names if name.endswith("Trainer")))
    if not trainers or not {"train", "unsloth_train"} & names:
        raise PlanError("it has no training: a rehearsal needs train() of a Trainer (transformers, TRL, ...)")
    libraries = _trained_with(tree)
    environment = choose(libraries)
    missing = [name for name in libraries if not environment.has(name) and name != "unsloth"]
    if missing:
        raise PlanError(
            f"a rehearsal needs {', '.join(missing)}: install uv (pip install uv), which makes a separate environment,"
            " or nb2ddp with its extra (docs/rehearsal.md)"
        )
    if re.search(_CHATS_OF_SOUNDS, text):
        raise PlanError("not rehearsed: a model that gets audio in conversations")
    sees = re.search(_SEES, text) is not None
    is_heavy = sees or re.search(_HEARS, text) is not None
    return Plan(
        path.name,
        text,
        folder,
        trainers,
        _unsloth(tree, text, trainers, environment),
        tuple(dict.fromkeys(_models(tree))),
        dict(_data(tree, _FEW_ROWS if is_heavy else _ROWS)),
        tuple(_files(tree, folder)),
        tuple(sorted({module.split(".")[0] for module, _ in imported(tree)} - set(sys.stdlib_module_names))),
        dict(sorted(_variables(tree, text))),
        tuple(sorted(_spread(tree))),
        sees,
        dict(_cells(text)),
        environment,
    )


def _trained_with(tree: ast.AST) -> list[str]:
    """Return the libraries that a script trains with."""
    used = {module.split(".")[0] for module, _ in imported(tree)}
    more = ("trl", "peft") if "unsloth" in used else ()
    return list(dict.fromkeys([*_NEEDED, *more, *(name for name in LIBRARIES if name in used)]))


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        newer = "; Python 3.12 accepts it" if sys.version_info < (3, 12) and "f-string" in str(error) else ""
        raise PlanError(f"it is not Python {version}: {error}{newer}", getattr(error, "lineno", None)) from None


def _cells(text: str) -> Iterator[tuple[int, int]]:
    """Yield the first line and the number of each of the notebook's cells."""
    for number, line in enumerate(text.splitlines(), start=1):
        if mark := re.match(r"# %% Cell (\d+)", line):
            yield number, int(mark[1])


def _variables(tree: ast.AST, text: str) -> Iterator[tuple[str, bool]]:
    """Yield the environment variables that the script reads, and whether each gets a placeholder if it is not set.

    Secrets do, and variables that the script cannot run without.
    """
    own = re.findall(r"environ\.setdefault\(\s*[\"'](\w+)", text)
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=accessor, slice=asked, ctx=ast.Load()):
                reads, is_needed = "environ", True
            case ast.Call(func=accessor, args=[asked, *_]) | ast.Compare(left=asked, comparators=[accessor]):
                reads, is_needed = r"environ(\.get)?|getenv", False
            case _:
                continue
        name = constant(asked)
        if name and re.search(rf"\b({reads})$", ast.unparse(accessor)) and name not in own and not LAUNCHED.match(name):
            yield name, is_needed or SECRET.search(name) is not None


def _unsloth(tree: ast.AST, text: str, trainers: tuple[str, ...], environment: Environment) -> str:
    """Return "real" if the real Unsloth can train this on a CPU, else "stand-in"; "" without Unsloth."""
    names = {name for module, name in imported(tree) if module.split(".")[0] == "unsloth"}
    if not names:
        return ""
    own = {name for name in names if name and not name.startswith("hf_") and name != "__version__"}
    takes = own <= _CPU_NAMES and set(trainers) <= _CPU_TRAINERS and not re.search(f"{_NOT_TEXT}|{_HEARS}", text)
    return "real" if takes and environment.has("unsloth") else "stand-in"


def _models(tree: ast.AST) -> Iterator[str]:
    for loader, call in calls(tree):
        if loader == "from_pretrained":
            given = [*call.args[:1], *(each.value for each in call.keywords if each.arg == "model_name")]
            yield from (name for each in given if re.fullmatch(r"[\w.-]+/[\w.-]+", name := constant(each) or ""))


def _data(tree: ast.AST, least: int) -> Iterator[tuple[str, DataHints]]:
    """Yield each data set that the script loads, with the splits and configurations that it names.

    "" is any other data set, such as one whose id is in a variable.
    """
    usual = (text for text in texts(tree) if re.fullmatch(_SPLIT, text))
    most = max([least, *(number for number in _sizes(tree) if number <= MOST_ROWS)])
    hints = DataHints(tuple(dict.fromkeys([*usual, "train", "test", "validation"])), rows=most)
    yield "", hints
    for loader, call in calls(tree):
        if loader != "load_dataset" or not call.args:
            continue
        given = {each.arg: constant(each.value) for each in call.keywords}
        name = constant(call.args[0])
        configuration = constant(call.args[1]) if len(call.args) > 1 else None
        if name is None or name in ("json", "csv", "parquet", "text", "imagefolder", "audiofolder"):
            continue
        splits = re.findall(r"([A-Za-z]\w*)(?:\[|\+|$)", given.get("split") or "")
        configs = (configuration or given.get("name") or "default",)
        yield name, replace(hints, splits=tuple(dict.fromkeys([*splits, *hints.splits])), configs=configs)


def _sizes(tree: ast.AST) -> Iterator[int]:
    """Yield the minimum numbers of rows that the script takes from data sets."""
    shares: list[ast.expr] = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="range"), args=args):
                yield from (each.value for each in args if isinstance(each, ast.Constant) and type(each.value) is int)
            case ast.Subscript(slice=ast.Constant(value=int(number))):
                yield number + 1
            case ast.Constant(value=str(text)):
                yield from map(int, re.findall(r"^\w+\[:(\d{1,6})\]$", text))
            case ast.keyword(arg="train_size" | "test_size", value=value):
                shares.append(value)
            case ast.Dict(keys=keys, values=values):
                shares += (value for key, value in zip(keys, values, strict=True) if "/" in (constant(key) or ""))
    for share in shares:
        kept = getattr(share, "value", None)
        if isinstance(kept, float) and 0 < kept < 0.5:
            yield int(32 / kept)  # the script keeps 32 of this number of rows


def _files(tree: ast.AST, folder: Path) -> Iterator[Path]:
    """Yield the files in the script's folder that its strings name or that it imports, up to 64 MB each."""
    modules = {module.replace(".", "/") + ".py" for module, _ in imported(tree)}
    for text in (*texts(tree), *sorted(modules)):
        if 0 < len(text) < 200 and "\0" not in text and not text.startswith(("/", "~", "..", ".")):
            path = folder / text
            with contextlib.suppress(OSError, ValueError):  # a long text that is not a path
                if path.is_file() and path.stat().st_size < 2**26:
                    yield path


def _spread(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for loader, call in calls(tree):
        for given in call.keywords if loader == "from_pretrained" else ():
            if given.arg == "device_map" and (how := constant(given.value)) in _SPREAD:
                yield given.value.lineno, f'device_map = "{how}" spreads every process\'s model over all GPUs'
    for node in every(tree, ast.Constant):
        if node.value == "cuda:0":
            yield node.lineno, '"cuda:0" is the first GPU in every process'
    for bound in every(tree, ast.Assign):
        gpu = constant(bound.value) or ""
        for to in bound.targets if gpu.isdecimal() else ():
            if ast.unparse(to).endswith("environ['CUDA_VISIBLE_DEVICES']"):
                yield to.lineno, f"CUDA_VISIBLE_DEVICES gives every process only GPU {gpu}"
