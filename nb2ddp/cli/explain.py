"""`nb2ddp explain`: print the explanation of a code, or the list of codes."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator

import click
from click import style

from nb2ddp.codes import Code, Example
from nb2ddp.rules.index import KNOWN

_COLORS = {"+": "green", "-": "red"}


@click.command(name="explain", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("code", default="DDP")
def explain(code: str) -> None:
    """Explain CODE, such as DDP101, with examples; list the codes that begin with it; or list all."""
    wanted = f"DDP{code}" if code.isdecimal() else code.upper()
    rule = next((rule for rule in KNOWN.values() if wanted == rule.code or code == rule.name), None)
    lines = list(explained(rule) if rule else listed(wanted))
    if not lines:
        raise click.BadParameter(f"there is no rule {code!r}; nb2ddp explain lists them.")
    click.echo("\n".join(lines))


def explained(rule: Code) -> Iterator[str]:
    """Return the explanation of a rule or a code of the command, as lines."""
    width = min(shutil.get_terminal_size().columns, 100)
    yield from (style(f"{rule.code} {rule.name}", bold=True), "")
    for text in (rule.summary, *rule.why.split("\n\n")):
        yield from (*textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False), "")
    for example in rule.examples:
        yield from _example(example)


def listed(begin: str = "") -> Iterator[str]:
    """Return a line per code that begins with these letters: code, name, summary."""
    for code, rule in sorted(KNOWN.items()):
        if code.startswith(begin):
            yield f"{code}  {rule.name:<32} {rule.summary}"


def _example(example: Example) -> Iterator[str]:
    if example.title:
        yield style(f"{example.title}:", bold=True)
    for line in example.code.rstrip("\n").split("\n"):
        yield style(f"  {line}", fg=_COLORS.get(line[:1])) if example.is_diff else f"    {line}"
    yield ""
