"""The contents of made rows: the shape of each column, its values, and the part of a shape that a value came from.

A shape is a dictionary for JSON: its "kind", and what this kind needs. A path leads to a part of a row: names of
columns and keys, `EACH` for the elements of a list, `INSIDE` for the contents of a JSON text.
"""

from __future__ import annotations

import json
import random
import re
import wave
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

Shape = dict[str, Any]
Path = tuple[str, ...]
EACH, INSIDE = "[]", "<json>"
IMAGE, AUDIO = "image", "audio"
WORDS = (
    "amber basin cedar delta ember fjord grove harbor inlet jade kelp lagoon meadow north orchard pebble quarry ridge "
    "summit timber valley carries follows keeps leaves meets turns"
).split()
_ROLES = {"role": ("user", "assistant"), "from": ("human", "gpt")}  # of turns, by the key of the role
CONTENT_KEYS = {"role": "content", "from": "value"}


def plain(kind: str = "text") -> Shape:
    """Return a shape that needs only its kind."""
    return {"kind": kind}


def list_of(shape: Shape, least: int = 2) -> Shape:
    """Return the shape of a list with at least this many elements."""
    return {"kind": "list", "of": shape, "least": least}


def keyed(**shapes: Shape) -> Shape:
    """Return the shape of a dictionary."""
    return {"kind": "dict", "keys": shapes}


def one_of(values: list[Any]) -> Shape:
    """Return the shape of one of these values."""
    return {"kind": "one of", "values": values}


def turns(who: str) -> Shape:
    """Return the shape of a conversation whose turns have their role under this key."""
    return list_of(keyed(**{who: plain(), CONTENT_KEYS[who]: plain()}))


def turns_with_image() -> Shape:
    """Return the shape of a conversation in parts that begins with an image from another column."""
    parts = list_of(keyed(type=one_of(["text"]), text=plain()), 1)
    return list_of(keyed(role=plain(), content=parts)) | {"begins": {"type": "image", "text": None}}


_BY_NAME: tuple[tuple[str, Callable[[], Shape]], ...] = (
    (r"^conversations?$", lambda: turns("from")),
    (r"^messages$|_messages$|^chat$", lambda: turns("role")),
    (r"^images$", lambda: list_of(plain(IMAGE), 1)),
    (r"^image$|_image$|^img$|^picture$", lambda: plain(IMAGE)),
    (r"^audio$|_audio$|^speech$|^wav$|^mp3$", lambda: plain(AUDIO)),
    (r"^score|_score$|^rating|^similarity$", lambda: plain("number")),
    (r"^id$|^idx$|^index$|_id$|^count$", lambda: plain("integer")),
)


def by_name(column: str, labels: int = 2) -> Shape:
    """Return the shape of a column of this name, until more is known; `labels` is the number of different labels."""
    if re.search(r"^labels?$|_label$|^category_id$|^class$", column.lower()):
        return one_of([*range(labels)])
    return next((make() for pattern, make in _BY_NAME if re.search(pattern, column.lower())), plain())


def sentences(rng: random.Random, most: int = 3) -> str:
    """Return one to `most` made-up sentences of different lengths."""
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) for _ in range(rng.randint(1, most))]
    return " ".join(line.capitalize() + "." for line in lines)


def png(rng: random.Random, side: int = 32) -> bytes:
    """Return a picture of one colour."""
    from PIL import Image

    with BytesIO() as file:
        Image.new("RGB", (side, side), (rng.randrange(256), rng.randrange(256), rng.randrange(256))).save(file, "PNG")
        return file.getvalue()


def wav(rng: random.Random, seconds: float = 0.2, rate: int = 16000) -> bytes:
    """Return some noise, as a WAV file."""
    with BytesIO() as file:
        opened: Any = wave.open
        with opened(file, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(rate)
            sound.writeframes(rng.randbytes(2 * int(seconds * rate)))
        return file.getvalue()


class Maker:
    """Makes values, and records which part of a row each text is."""

    def __init__(self) -> None:
        self.origins: dict[str, Path] = {}

    def column(self, name: str, shape: Shape, source: str, count: int) -> list[Any]:
        """Return the values of a column of a source: the same in every process and for any other columns."""
        rng = random.Random(f"{source} {name}")
        return [self.value(shape, rng, (name,)) for _ in range(count)]

    def value(self, shape: Shape, rng: random.Random, at: Path = ()) -> Any:
        """Return a value of this shape for this path of a row."""
        match shape["kind"]:
            case "list":
                return self._list(shape, rng, (*at, EACH))
            case "dict":
                return {key: self.value(each, rng, (*at, key)) for key, each in shape["keys"].items()}
            case "json":
                return self._recorded(json.dumps(self.value(shape["of"], rng, (*at, INSIDE))), at)
            case "one of":
                return rng.choice(shape["values"])
            case "integer":
                return rng.randrange(1000)
            case "number":
                return rng.random()
            case "digits":
                return self._recorded(str(rng.randrange(1, 10**6)), at)
            case "image":
                return {"bytes": png(rng), "path": "picture.png"}
            case "audio":
                return {"bytes": wav(rng), "path": "sound.wav"}
        return self._recorded(sentences(rng), at)

    def _list(self, shape: Shape, rng: random.Random, at: Path) -> list[Any]:
        keys = shape["of"].get("keys", {})
        found = [self.value(shape["of"], rng, at) for _ in range(max(shape.get("least", 2), 1))]
        who = next((key for key in _ROLES if key in keys and keys[key] == plain()), None)
        if who is not None:
            found *= 1 if len(found) > 1 else 2
            for number, turn in enumerate(found):
                turn[who] = _ROLES[who][(number + (at[0] == "completion")) % 2]
        if "begins" in shape:
            found[0]["content"].insert(0, shape["begins"])
        return found

    def _recorded(self, text: str, at: Path) -> str:
        self.origins[text] = at
        return text

    def path(self, value: Any) -> Path | None:
        """Return the path that a value was made for: a text or a part of one, or a list or dictionary of texts.

        Returns:
            None if it was not made here, or if nothing in it shows its path.
        """
        if isinstance(value, str):
            return self._path_of_text(value)
        if not isinstance(value, (Mapping, list, tuple)):
            return None
        for each in list(value.values() if isinstance(value, Mapping) else value)[:20]:
            found = self.path(each)
            if found:
                return found[:-1]
        return None

    def _path_of_text(self, text: str) -> Path | None:
        if text in self.origins:
            return self.origins[text]
        bare = text.strip()
        if len(bare) < 3:
            return None
        parts = (at for made, at in self.origins.items() if bare in made or (len(made) > 5 and made in text))
        return next(parts, None)


def feature(shape: Shape) -> Any:
    """Return the type of a shape in a data set."""
    from datasets import Audio, Features, Image, Value

    match shape["kind"]:
        case "list":
            return [feature(shape["of"])]
        case "dict":
            return Features({key: feature(each) for key, each in shape["keys"].items()})
        case "one of":
            kinds = {type(value) for value in shape["values"]}
            named = {bool: "bool", int: "int64", float: "float64"}
            return Value(named.get(kinds.pop(), "string") if len(kinds) == 1 else "float64")
        case "image":
            return Image()
        case "audio":
            return Audio()
        case "integer":
            return Value("int64")
        case "number":
            return Value("float64")
    return Value("string")
