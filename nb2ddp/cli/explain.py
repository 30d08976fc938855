"""`nb2ddp explain`: print the explanation of a code, or the list of codes."""

from __future__ import annotations

import click

from nb2ddp.rules.index import KNOWN


@click.command()
@click.argument("code", default="DDP")
def explain(code: str) -> None:
    """Explain CODE, such as DDP101, with examples; list the codes that begin with it; or list all."""
    wanted = f"DDP{code}" if code.isdecimal() else code.upper()
    rule = next((rule for rule in KNOWN.values() if wanted == rule.code or code == rule.name), None)
    begin = (f"{key}  {each.name:<32} {each.summary}" for key, each in sorted(KNOWN.items()) if key.startswith(wanted))
    text = rule.page.removeprefix("# ") if rule else "\n".join(begin)
    if not text:
        raise click.BadParameter(f"there is no rule {code!r}; nb2ddp explain lists them.")
    click.echo(text)
