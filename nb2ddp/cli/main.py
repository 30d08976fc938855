"""The command and its options. Modules that take long to import are imported when they are needed."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from nb2ddp import __version__
from nb2ddp.cli.request import Request
from nb2ddp.options import TYPED
from nb2ddp.settings import Setting, settings_of

#: The other commands, in modules of `nb2ddp.cli` with the same names, and their summaries in `--help`.
COMMANDS = {
    "run": "convert a notebook, install its packages, and train on all GPUs",
    "rehearse": "train a script on the CPU, as one process and as two, and compare",
    "estimate": "say which GPUs hold a training, and how many it keeps busy",
    "explain": "say why a finding matters; without a code, list all rules",
}
_EXAMPLES = """\
\b
Examples:
  nb2ddp finetune.ipynb                    write finetune.py
  nb2ddp finetune.ipynb train.py --diff    show what would change in train.py
  nb2ddp notebooks -o scripts --check      check that each script is up to date

\b
Exit code: 0 done; 1 out of date; 2 failed, or wrong usage.
Further settings are in pyproject.toml: docs/use.md.
"""


class _Command(click.Command):
    """A command that passes `run ...`, `rehearse ...`, `estimate ...` and `explain ...` on to their commands."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Pass the words after the name of a command to that command."""
        name = args[0] if args else ""
        if name not in COMMANDS:
            return super().make_context(info_name, args, parent, **extra)
        command: click.Command = getattr(import_module(f"nb2ddp.cli.{name}"), name)
        return command.make_context(f"{info_name} {name}", args[1:], parent, **self.context_settings, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command of the context."""
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the other commands."""
        super().format_options(ctx, formatter)
        with formatter.section("Commands"):
            formatter.write_dl([(f"{ctx.info_name} {name}", summary) for name, summary in COMMANDS.items()])


def _number(setting: Setting) -> Callable[[str], Any]:
    """Return a function that reads a whole number, or one of a setting's words."""

    def number(text: str) -> Any:  # click shows its name as the type of the option
        if text in setting.words:
            return text
        if not text.isdecimal() or int(text) < (setting.least or 0):
            also = "".join(f" or {word!r}" for word in setting.words)
            raise click.BadParameter(f"{text!r} is no whole number of at least {setting.least or 0}{also}.")
        return int(text)

    return number


def _codes(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[str] | None:
    """Return the codes of an option that takes several, separated by commas or repeated."""
    codes = [code.strip().upper() for value in values for code in value.split(",")]
    for code in codes:
        if not code.startswith("DDP"):
            raise click.BadParameter(f"{code!r} is not a code such as DDP101 or DDP3.")
    return codes or None


def _option(setting: Setting) -> click.Option:
    """Return the option of a setting. Its value is None if it was not given."""
    attributes: dict[str, Any] = {"metavar": setting.metavar, "help": setting.help, "default": None}
    if setting.choices:
        attributes |= {"type": click.Choice(setting.choices), "metavar": "|".join(setting.choices)}
    elif setting.kind is int:
        attributes["type"] = _number(setting)
    elif setting.kind is Path:
        attributes["type"] = click.Path(path_type=Path)
    elif setting.kind is frozenset:
        attributes |= {"multiple": True, "callback": _codes}
    elif setting.kind is bool:
        attributes["is_flag"] = True
    names = [setting.field, setting.option, setting.short]
    return click.Option(list(filter(None, names)), **attributes)


@click.command(
    cls=_Command,
    params=[
        click.Argument(["paths"], nargs=-1, metavar="INPUT... [OUTPUT.py]"),
        *map(_option, (*settings_of(Request), *TYPED)),
    ],
    epilog=_EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="nb2ddp", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context, /, paths: tuple[str, ...], **options: Any) -> None:
    """Turn Unsloth fine-tuning notebooks into scripts that train on several GPUs with DDP.

    INPUT is a notebook, a link, a folder, a pattern, or - for standard input. Notebooks are never changed or
    executed. Your edits of a script are kept when its notebook is converted again.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    from nb2ddp.cli.arguments import USAGE_ERRORS, planned
    from nb2ddp.cli.printer import show
    from nb2ddp.cli.report import exit_code, printable
    from nb2ddp.project.files import Mode
    from nb2ddp.project.pool import run

    own = {field: value for field, value in options.items() if value not in (None, ())}
    given = {setting.key: own.pop(setting.field) for setting in TYPED if setting.field in own}
    request = Request(paths, given, **own)
    try:
        jobs, mode = planned(request)
        results = show(request, mode, run(jobs, mode))
        if mode is Mode.WRITE and not request.quiet:
            from nb2ddp.cli.steps import next_steps

            for line in next_steps(jobs, results):
                click.echo(printable(line), err=True)
    except USAGE_ERRORS as error:
        raise click.UsageError(printable(str(error)), ctx) from None
    ctx.exit(max([0, *(exit_code(result, job) for result, job in zip(results, jobs, strict=True))]))
