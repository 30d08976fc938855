"""`nb2ddp explain`: print the explanation of a code, or the list of codes."""

from __future__ import annotations

from collections.abc import Iterator

import click

from nb2ddp.rules.index import KNOWN


@click.command(name="explain", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("code", default="DDP")
def explain(code: str) -> None:
    """Explain CODE, such as DDP101, with examples; list the codes that begin with it; or list all."""
    wanted = f"DDP{code}" if code.isdecimal() else code.upper()
    rule = next((rule for rule in KNOWN.values() if wanted == rule.code or code == rule.name), None)
    text = rule.page.removeprefix("# ") if rule else "\n".join(listed(wanted))
    if not text:
        raise click.BadParameter(f"there is no rule {code!r}; nb2ddp explain lists them.")
    click.echo(text)


def listed(begin: str = "") -> Iterator[str]:
    """Return a line per code that begins with these letters: code, name, summary."""
    for code, rule in sorted(KNOWN.items()):
        if code.startswith(begin):
            yield f"{code}  {rule.name:<32} {rule.summary}"
