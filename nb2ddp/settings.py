"""Declare an option once: the command line and pyproject.toml read the declaration.

    @dataclass(frozen=True)
    class Options:
        batch: int | None = setting(None, "Samples a device and step.", metavar="N", least=1)

declares the option `--batch N` and the key `batch`; the field's type defines which values they take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    #: The name in pyproject.toml and, after `--`, on the command line; if empty, the field's name, with `-` for `_`.
    key: str = ""
    metavar: str | None = None
    least: int | None = None
    short: str | None = None  #: one letter after `-`
    is_typed: bool = True  #: it is an option of the command line
    field: str = ""  #: its name in the dataclass
    #: `int`, `str`, `bool` or `Path`; `frozenset` or `tuple`, for several strings; a `Literal`, for a choice.
    kind: Any = None
    words: tuple[str, ...] = ()  #: words that an option for a number also takes

    @property
    def option(self) -> str:
        """The option as it is typed: `--gpus`."""
        return f"--{self.key}"

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a choice; empty for other kinds."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()


def setting(default: Any, help: str, **more: Any) -> Any:
    """Return a dataclass's field that is an option.

    Args:
        default: the value if none is given.
        help: one line for `--help`.
        more: other fields of `Setting`.
    """
    return field(default=default, metadata={"setting": Setting(default, help, **more)})


_hints = cache(get_type_hints)


@cache
def settings_of(kind: type) -> tuple[Setting, ...]:
    """Return the options that a dataclass declares, after those of the dataclasses in its fields, in their order."""
    return (*(each for part in _parts(kind).values() for each in settings_of(part)), *_own(kind))


def _parts(kind: Any) -> dict[str, Any]:
    """Return the dataclasses in a dataclass's fields, by the fields' names."""
    return {name: hint for name, hint in _hints(kind).items() if is_dataclass(hint)}


def _declared(kind: Any) -> list[Setting]:
    """Return the options that a dataclass itself declares."""
    hints, found = _hints(kind), list[Setting]()
    for member in fields(kind):
        if declared := member.metadata.get("setting"):
            hint = hints[member.name]
            kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
            first, *others = (each for each in kinds if each is not NoneType)
            words = tuple(word for other in others for word in get_args(other))
            kind = get_origin(first) if get_origin(first) in (frozenset, tuple) else first
            key = declared.key or member.name.replace("_", "-")
            found.append(replace(declared, key=key, field=member.name, kind=kind, words=words))
    return found


_own: Callable[[Any], list[Setting]] = cache(_declared)


def make(kind: type[_Made], values: Mapping[str, Any]) -> _Made:
    """Make a dataclass from the values of its options.

    Args:
        kind: the dataclass; dataclasses in its fields are made too.
        values: by key, of the fields' own types; missing values keep their defaults.

    Raises:
        ValueError: the dataclass raises it for values that contradict each other.
    """
    own = {each.field: values[each.key] for each in _own(kind) if each.key in values}
    return kind(**own, **{name: make(part, values) for name, part in _parts(kind).items()})


def check(made: Any, error: type[ValueError]) -> None:
    """Refuse a value that its option does not accept.

    Args:
        made: a dataclass that declares options.
        error: the exception to raise; its message names the field.
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
    """Return the values, by key, of the options of a dataclass that differ from their defaults."""
    values: dict[str, Any] = {}
    for name in _parts(type(made)):
        values |= given(getattr(made, name))
    for each in _own(type(made)):
        if (value := getattr(made, each.field)) != each.default:
            values[each.key] = value
    return values
