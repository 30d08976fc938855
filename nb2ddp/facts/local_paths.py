"""Files and folders of the user's own machine that a notebook reads by name and does not make."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.flow import is_unconditional, owner_of
from nb2ddp.facts.hosted import READERS, WRITTEN, theirs
from nb2ddp.facts.texts import spelled
from nb2ddp.syntax.tree import argument, method

if TYPE_CHECKING:
    from nb2ddp.facts.execution import Execution
    from nb2ddp.facts.makers import Maker

#: A path of Windows.
_WINDOWS = re.compile(r"[A-Za-z]:[\\/].*")
#: An absolute path that is neither Colab's, Kaggle's nor the system's.
_ABSOLUTE = re.compile(
    r"/(?!(content|kaggle|bin|dev(?!/shm/)|etc|lib\w*|opt|proc|run|sbin|sys|tmp|usr|var)\b)\w.*|~/(?!\.).+|[A-Za-z]:[\\/].+"
)
#: A file of rows, pictures or sound; a folder; a folder that can be no name of the Hub's.
_FILE = re.compile(
    r"(\.{1,2}/)*[^\W_][^\n:?\"<>|]*\.(csv|tsv|jsonl?|ndjson|parquet|arrow|feather|txt|xlsx?|pkl|pickle|np[yz]|h5|xml|pdf"
    r"|docx|pptx|zip|gz|png|jpe?g|webp|bmp|wav|mp3|flac|ogg|m4a|mp4|ya?ml)"
)
_FOLDER = re.compile(r"(\.{1,2}/)*[^\W_][^\n:?\"<>|]*")
_MODEL = re.compile(r"\.{1,2}/[^\W_].*|[^\n:]*\bcheckpoint-\d+/?")
#: A name without an owner, and those of this kind that the Hub has.
_NO_OWNER = re.compile(r"[\w.-]+")
_OF_THE_HUB = re.compile(
    r"(distil)?(gpt2|bert|roberta|albert|xlnet|t5|xlm|camembert|flaubert|bart|pegasus|openai-gpt|transfo-xl|ctrl)\b.*"
)
_MODEL_LIBRARIES: Final = ("unsloth.", "transformers.", "peft.")
#: What `load_dataset` reads files with.
_FORMATS: Final = frozenset("arrow audiofolder csv imagefolder json pandas parquet text webdataset xml".split())
#: The keywords for what is read.
_GIVEN = re.compile(r"(\w+_)?(path|files?|dir|folder|filename|buffer|model_name)|io|fp")
#: Methods of a path that read it.
_READING = re.compile(r"read_(text|bytes)|open|iterdir")
#: What gives a model the adapter of a folder.
_ADAPTER = re.compile(r"load_(adapter|lora\w*)")


@dataclass(frozen=True)
class LocalPath:
    """A path that the notebook reads, and does not make itself.

    Attributes:
        text: the path as the notebook writes it.
        node: the call that reads it.
    """

    text: str
    node: cst.Call

    @property
    def is_beside(self) -> bool:
        """True for a path that begins at the script's folder."""
        return not _ABSOLUTE.fullmatch(self.text)

    @property
    def is_of_windows(self) -> bool:
        """True for a path that no Linux has."""
        return _WINDOWS.fullmatch(self.text) is not None


def local_paths(execution: Execution, making: list[Maker]) -> Iterator[LocalPath]:
    """The paths that code outside functions surely reads, or a function that it calls; none that the notebook may make.

    Args:
        execution: the steps of the notebook.
        making: its calls that may make files.
    """
    tree = execution.tree
    for call in execution.calls():
        runs = tree.run_from(call, tree.uses)
        is_sure = is_unconditional(tree, call, in_function=True) and any(is_unconditional(tree, run) for run in runs)
        if execution.does(call) & Does.ACT or not is_sure:
            continue
        earlier = [maker for maker in making if tree.start(maker.call) < max(map(tree.start, runs))]
        owner = owner_of(call)
        read = [(owner, None)] if owner is not None and _READING.fullmatch(method(call)) else []
        for node, place in [*read, *((each.value, each) for each in call.args)]:
            value = tree.value(node)
            listed = value.elements if isinstance(value, (cst.List, cst.Tuple, cst.Dict)) else ()
            for text in [text for each in [each.value for each in listed] or [node] for text in spelled(tree, each)]:
                known = text.partition("*")[0]
                path = LocalPath(known.rpartition("/")[0] if "*" in text else text, call)
                is_read = _is_path(path.text) and theirs(tree, text) == text and _reads(execution, path, place)
                if is_read and not any(maker.may_make(text) for maker in earlier):
                    named = text.removeprefix("./") if _FILE.fullmatch(text) else path.text
                    yield LocalPath(named, call)  # `./m` is no name of the Hub's


def _is_path(text: str) -> bool:
    return any(kind.fullmatch(text) for kind in (_ABSOLUTE, _FOLDER, _FILE, _MODEL))


def _reads(execution: Execution, path: LocalPath, place: cst.Arg | None) -> bool:
    """Whether a call reads what it is given there, or what it is a method of, from the disk and not from the Hub."""
    tree, call = execution.tree, path.node
    is_sure = not path.is_beside or _FILE.fullmatch(path.text) is not None
    is_on_disk = not path.is_beside or _MODEL.fullmatch(path.text) is not None
    name = tree.qualified(call.func)
    last = method(call) or name.rsplit(".", 1)[-1]
    given = "" if place is None or place.keyword is None else place.keyword.value
    if (given and not _GIVEN.fullmatch(given)) or WRITTEN.fullmatch(given):
        return False
    if place is None:
        return is_sure or last == "iterdir"
    if last == "load_dataset":
        builder = argument(call, "path", 0)
        is_file_format = builder is not None and tree.literal(builder.value) in _FORMATS
        return is_file_format if given.startswith("data_") else is_on_disk
    if last == "from_pretrained" and name.startswith(_MODEL_LIBRARIES) and _NO_OWNER.fullmatch(path.text):
        return not _OF_THE_HUB.match(path.text)
    if _ADAPTER.fullmatch(last) and call.args[0] is place and _NO_OWNER.fullmatch(path.text):
        return True
    if last.startswith("from_") or _ADAPTER.fullmatch(last):
        return is_sure or is_on_disk
    if last in ("load_from_disk", "listdir", "scandir"):
        return True
    return is_sure and READERS.fullmatch(last) is not None
