"""Render the Jinja templates of all text that nb2ddp writes around the notebook's own code."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

_PACKAGE = Path(__file__).parent.parent
#: Inside the package when installed from a wheel; next to it in a checkout, an sdist or an editable install.
FOLDERS = (_PACKAGE / "templates", _PACKAGE.parent / "templates")


@cache
def environment() -> Environment:
    """Return the Jinja environment; nothing is escaped, since templates are Python, YAML or shell."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # only here: an estimate renders nothing

    return Environment(
        loader=FileSystemLoader(FOLDERS),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: str, **values: object) -> str:
    """Render one template.

    Args:
        template: its file name in `templates/`, such as `setup.py.j2`.
        values: every name the template uses; a missing one is an error, never an empty string.

    Raises:
        jinja2.UndefinedError: a value is missing.
        jinja2.TemplateNotFound: there is no such template.
    """
    return environment().get_template(template).render(**values)
