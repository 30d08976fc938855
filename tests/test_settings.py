"""One declaration of an option is what the command line and pyproject.toml read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import click
import pytest

from nb2ddp.cli.main import main
from nb2ddp.options import SETTINGS, TYPED, Launch, LaunchError, Options
from nb2ddp.project.config import KEYS, settings
from nb2ddp.settings import Setting, given, make, setting, settings_of


@dataclass(frozen=True)
class Inner:
    how_many: int = setting(2, "How many.", key="number", metavar="N", least=1)
    kind: Literal["a", "b"] | None = setting(None, "Which.")


@dataclass(frozen=True)
class Outer:
    inner: Inner = field(default_factory=Inner)
    not_an_option: int = 0
    names: frozenset[str] | None = setting(None, "Names.")
    out: Path | None = setting(None, "Where to.", short="-o")


def test_a_field_is_an_option() -> None:
    assert [(each.key, each.field, each.kind, each.choices) for each in settings_of(Outer)] == [
        ("number", "how_many", int, ()),
        ("kind", "kind", Literal["a", "b"], ("a", "b")),
        ("names", "names", frozenset, ()),
        ("out", "out", Path, ()),
    ]


def test_values_make_the_dataclass_and_come_back() -> None:
    values = {"number": 3, "names": frozenset({"x"})}
    made = make(Outer, values)
    assert made == Outer(Inner(3), names=frozenset({"x"}))
    assert given(made) == values
    assert given(make(Outer, {})) == {}


@pytest.mark.parametrize("each", SETTINGS, ids=lambda each: each.key)
def test_every_option_is_everywhere(each: Setting) -> None:
    assert each.key in KEYS
    for typed in [param for param in main.params if each.option in param.opts]:
        assert isinstance(typed, click.Option)
        assert typed.help == each.help
        assert typed.default is None or typed.multiple, "what was not given leaves pyproject.toml's value"
    assert (each in TYPED) == any(each.option in param.opts for param in main.params)


def test_defaults_are_those_of_the_dataclass() -> None:
    assert settings({}).options == Options()
    assert settings({"gpus": 4}).options == Options(launch=Launch(gpus=4))
    with pytest.raises(LaunchError):
        settings({"gpus": 0})
