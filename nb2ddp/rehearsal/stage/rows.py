"""Rows that stand for a data set: what its columns are called says what is in them."""

from __future__ import annotations

import io
import json
import random
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

WORDS = (
    "amber basin cedar delta ember fjord grove harbor inlet jade kelp lagoon meadow north orchard pebble quarry ridge "
    "summit timber valley carries follows keeps leaves meets turns"
).split()
MOST_ROWS = 20_000  # of a stand-in
IMAGE, AUDIO = "image", "audio"
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


def sentences(rng: random.Random, most: int = 3) -> str:
    """One to `most` made-up sentences of different lengths."""
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) for _ in range(rng.randint(1, most))]
    return " ".join(line.capitalize() + "." for line in lines)


def png(rng: random.Random, side: int = 32) -> bytes:
    """A picture of one colour."""
    row = b"\0" + bytes(rng.randrange(256) for _ in range(3)) * side

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row * side)) + chunk(b"IEND", b"")
    )


def wav(rng: random.Random, seconds: float = 0.2, rate: int = 16000) -> bytes:
    """A tone of one pitch."""
    import math
    import wave

    step = 2 * math.pi * rng.randint(200, 800) / rate
    tone = (int(8000 * math.sin(step * i)) for i in range(int(seconds * rate)))
    with io.BytesIO() as file:
        opened: Any = wave.open
        with opened(file, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(rate)
            sound.writeframes(b"".join(struct.pack("<h", sample) for sample in tone))
        return file.getvalue()


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


def write_card(folder: Path, configs: list[str], splits: list[str]) -> None:
    """Write the card of a data set, which says what parquet files hold which split."""
    card = ["---", "configs:"]
    for configuration in configs:
        card += [f"- config_name: {configuration}", "  data_files:"]
        card += [line for split in splits for line in (f"  - split: {split}", f"    path: {split}.parquet")]
    (folder / "README.md").write_text("\n".join([*card, "---", ""]))


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
