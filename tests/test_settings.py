"""The command line and pyproject.toml read one declaration of each option."""

from __future__ import annotations

import click
import pytest

from nb2ddp.cli.main import main
from nb2ddp.options import SETTINGS, TYPED, Launch, LaunchError, Options
from nb2ddp.project.config import KEYS, settings
from nb2ddp.settings import Setting


@pytest.mark.parametrize("each", SETTINGS, ids=lambda each: each.key)
def test_every_option_is_everywhere(each: Setting) -> None:
    assert each.key in KEYS
    for typed in [param for param in main.params if each.option in param.opts]:
        assert isinstance(typed, click.Option)
        assert typed.help == each.help
        assert typed.default is None or typed.multiple, "an option that is not given keeps pyproject.toml's value"
    assert (each in TYPED) == any(each.option in param.opts for param in main.params)


def test_defaults_are_those_of_the_dataclass() -> None:
    assert settings({}).options == Options()
    assert settings({"gpus": 4}).options == Options(launch=Launch(gpus=4))
    with pytest.raises(LaunchError):
        settings({"gpus": 0})
