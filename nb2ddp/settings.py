"""Declare an option once: the command line and pyproject.toml read the declaration.

    @dataclass(frozen=True)
    class Options:
        batch: int | None = setting(None, "Samples a device and step.", metavar="N", least=1)

is the option `--batch N` and the key `batch`; its type says which values they take.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Setting:
    """One option, as a field of a dataclass declares it."""

    default: Any
    help: str
    #: As pyproject.toml and (behind `--`) the command line call it; the field's name, with `-` for `_`, if empty.
    key: str = ""
    metavar: str | None = None
    least: int | None = None
    short: str | None = None  #: one letter behind `-`
    is_typed: bool = True  #: the command line has it
    field: str = ""  #: its name in the dataclass
    #: `int`, `str`, `bool` or `Path`; `frozenset` or `tuple`, for several strings; a `Literal`, for one of some.
    kind: Any = None
    words: tuple[str, ...] = ()  #: that a number's option takes too

    @property
    def option(self) -> str:
        """As it is typed: `--gpus`."""
        return f"--{self.key}"

    @property
    def choices(self) -> tuple[str, ...]:
        """The values it takes, where it is one of some."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()


def setting(default: Any, help: str, **more: Any) -> Any:
    """A dataclass's field that is an option.

    Args:
        default: where nobody says anything.
        help: one line for `--help`.
        more: other fields of `Setting`.
    """
    return field(default=default, metadata={"setting": Setting(default, help, **more)})


@cache
def settings_of(kind: type) -> tuple[Setting, ...]:
    """The options that a dataclass declares, below those of the dataclasses in its fields, in their order."""
    return (*(each for part in _parts(kind).values() for each in settings_of(part)), *_own(kind))


def _parts(kind: Any) -> dict[str, Any]:
    """The dataclasses in a dataclass's fields, by the fields' names."""
    return {name: hint for name, hint in get_type_hints(kind).items() if is_dataclass(hint)}


def _own(kind: Any) -> Iterator[Setting]:
    """The options that a dataclass itself declares."""
    hints = get_type_hints(kind)
    for member in fields(kind):
        if declared := member.metadata.get("setting"):
            hint = hints[member.name]
            kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
            first, *others = (each for each in kinds if each is not NoneType)
            words = tuple(word for other in others for word in get_args(other))
            kind = get_origin(first) if get_origin(first) in (frozenset, tuple) else first
            key = declared.key or member.name.replace("_", "-")
            yield replace(declared, key=key, field=member.name, kind=kind, words=words)


def make(kind: type[_Made], values: Mapping[str, Any]) -> _Made:
    """Make a dataclass of the values that its options have.

    Args:
        kind: the dataclass; dataclasses in its fields are made too.
        values: by key, of the fields' own types; what is missing keeps its default.

    Raises:
        ValueError: the dataclass's own, for values that do not fit together.
    """
    own = {each.field: values[each.key] for each in _own(kind) if each.key in values}
    return kind(**own, **{name: make(part, values) for name, part in _parts(kind).items()})


def check(made: Any, error: type[ValueError]) -> None:
    """Refuse a value that its option does not take.

    Args:
        made: a dataclass that declares options.
        error: what is raised; its message names the field.
    """
    for setting in _own(type(made)):
        value, least = getattr(made, setting.field), setting.least
        if setting.choices and value not in setting.choices:
            raise error(f"{setting.key} must be one of {', '.join(setting.choices)}, not {value!r}.")
        if least is None or value is None or value in setting.words:
            continue
        if not isinstance(value, int) or value < least:
            raise error(f"{setting.key} must be at least {least}, not {value}.")


def given(made: Any) -> dict[str, Any]:
    """The values, by key, in which a dataclass that options make differs from its defaults."""
    values: dict[str, Any] = {}
    for name in _parts(type(made)):
        values |= given(getattr(made, name))
    for each in _own(type(made)):
        if (value := getattr(made, each.field)) != each.default:
            values[each.key] = value
    return values
