"""Rows like those of public data sets, for scripts that train in tests: a table says what their columns hold."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nb2ddp.rehearsal.stage.real import write_card
from nb2ddp.rehearsal.stage.shapes import AUDIO, IMAGE, png, sentences, wav

_HEAVY = (IMAGE, AUDIO, "images")

#: Columns of public data sets, where their names alone do not say what is in them: column -> kind, see `value`.
#: Read from the cards of these data sets on the hub.
PUBLIC: dict[str, dict[str, str]] = {
    "alpaca": {"instruction": "text", "input": "text", "output": "text", "text": "text"},
    "finetome": {"conversations": "sharegpt", "source": "text", "score": "number"},
    "guanaco-sharegpt": {"conversations": "sharegpt"},
    "alpaca-gpt4-korean": {"conversations": "sharegpt", "id": "text"},
    "openmathreasoning": {"problem": "text", "generated_solution": "text", "expected_answer": "digits"},
    "gsm8k": {"question": "text", "answer": "sum"},
    "dapo-math": {"prompt": "text", "solution": "digits", "source_prompt": "messages"},
    "tinystories": {"text": "text"},
    "wikipedia": {"id": "text", "url": "text", "title": "text", "text": "text"},
    "multilingual-thinking": {"reasoning_language": "text", "messages": "thinking"},
    "latex_ocr": {"image": IMAGE, "text": "text"},
    "radiology_mini": {"image": IMAGE, "image_id": "text", "caption": "text", "cui": "text"},
    "llava-instruct": {"images": "images", "messages": "vision_messages"},
    "parsynth-ocr": {"image_path": IMAGE, "text": "text"},
    "mathvista": {"pid": "text", "question": "text", "decoded_image": IMAGE, "answer": "digits", "image": "text"},
    "kaira": {"audio": AUDIO, "text": "text"},
    "elise": {"audio": AUDIO, "text": "text"},
    "emilia": {"audio": AUDIO, "text": "text"},
    "codeforces-cots": {"messages": "messages", "prompt": "text", "generation": "text"},
    "dolphin-sft": dict.fromkeys(("system", "instruction", "input", "question", "accepted", "rejected"), "text"),
    "ultrafeedback": {"prompt": "text", "chosen": "messages", "rejected": "messages", "messages": "messages"},
    "emotion": {"text": "text", "label": "label"},
    "imdb": {"text": "text", "label": "label"},
    "all-nli": {"anchor": "text", "positive": "text"},
    "technical": {"anchor": "text", "positive": "text"},
    "chessinstruct": {"task": "text", "input": "moves", "expected_output": "moves", "KIND": "text"},
}
_BY_NAME = (
    (r"^conversations$|^conversation$", "sharegpt"),
    (r"^messages$|_messages$|^chat$", "messages"),
    (r"^images$", "images"),
    (r"^image$|_image$|^img$|^picture$", IMAGE),
    (r"^audio$|_audio$|^speech$|^wav$|^mp3$", AUDIO),
    (r"^labels?$|_label$|^category_id$|^class$", "label"),
    (r"^score|_score$|^rating|^similarity$", "number"),
    (r"^id$|^idx$|^index$|_id$|^count$", "integer"),
)


def _messages(rng: random.Random, who: str = "role", what: str = "content", names: str = "user assistant") -> list[Any]:
    return [{who: name, what: sentences(rng)} for name in names.split() * rng.randint(1, 2)]


def value(kind: str, rng: random.Random) -> Any:
    """A value of this kind."""
    makers: dict[str, Callable[[], Any]] = {
        "sharegpt": lambda: _messages(rng, "from", "value", "human gpt"),
        "messages": lambda: _messages(rng),
        "thinking": lambda: [
            {"role": who, "content": sentences(rng), "thinking": None} for who in ("system", "user", "assistant")
        ],
        "vision_messages": lambda: [
            {"role": "user", "content": [{"type": "text", "text": sentences(rng)}, {"type": "image", "text": None}]},
            {"role": "assistant", "content": [{"type": "text", "text": sentences(rng)}]},
        ],
        "label": lambda: rng.randrange(2),
        "integer": lambda: rng.randrange(1000),
        "number": lambda: rng.random(),
        "digits": lambda: str(rng.randrange(100)),
        "sum": lambda: f"{sentences(rng)} #### {rng.randrange(100)}",
        "moves": lambda: json.dumps({"moves": ["e4"]}),
        IMAGE: lambda: {"bytes": png(rng), "path": "picture.png"},
        "images": lambda: [{"bytes": png(rng), "path": "picture.png"}],
        AUDIO: lambda: {"bytes": wav(rng), "path": "sound.wav"},
    }
    return makers.get(kind, lambda: sentences(rng))()


def columns_of(name: str, used: list[str]) -> dict[str, str]:
    """The columns of a data set: from the table of public ones, else those that the script names, by their names."""
    bare = name.lower().split("/")[-1]
    known = max((key for key in PUBLIC if key in bare), key=len, default=None)
    return PUBLIC[known] if known else {column: kind_of(column) for column in used or ["text"]}


def kind_of(column: str) -> str:
    """What a column of this name holds."""
    return next((kind for pattern, kind in _BY_NAME if re.search(pattern, column.lower())), "text")


def build_dataset(
    name: str, folder: Path, *, used: list[str], splits: list[str], configs: list[str], rows: int
) -> None:
    """Make parquet files of every split for every configuration in `folder`, and a card that names them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = columns_of(name, used)
    for split in splits:
        rng = random.Random(f"{name} {split}")
        some = {kind: [value(kind, rng) for _ in range(64)] for kind in _HEAVY if kind in columns.values()}
        made = [
            {key: some[kind][row % 64] if kind in some else value(kind, rng) for key, kind in columns.items()}
            for row in range(rows)
        ]
        table = pa.Table.from_pylist(made)
        pq.write_table(table.replace_schema_metadata(_features(columns)), folder / f"{split}.parquet")
    write_card(folder, configs, splits)


def _list(feature: dict[str, Any]) -> dict[str, Any]:
    return {"_type": "List", "feature": feature}


def _features(columns: dict[str, str]) -> dict[str, str]:
    """The note in a parquet file that lets `datasets` decode images and sounds."""
    plain = {"dtype": "string", "_type": "Value"}
    types = {
        IMAGE: {"_type": "Image"},
        AUDIO: {"_type": "Audio"},
        "images": _list({"_type": "Image"}),
        "vision_messages": _list({"role": plain, "content": _list({"type": plain, "text": plain})}),
    }
    if not any(kind in types for kind in columns.values()):
        return {}
    known = {column: types.get(kind, plain) for column, kind in columns.items()}
    return (
        {"huggingface": json.dumps({"info": {"features": known}})}
        if set(columns.values()) <= {*types, "text", "digits"}
        else {}
    )
