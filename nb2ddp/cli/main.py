"""The command and its options. Modules that take long to import are imported when they are needed."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from nb2ddp import __version__
from nb2ddp.cli.request import Request
from nb2ddp.options import TYPED
from nb2ddp.settings import Setting, settings_of

#: The options that the command alone has.
REQUESTED = settings_of(Request)
#: The other commands, in modules of `nb2ddp.cli` that are called as they are, with what `--help` says of them.
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
    """A command that hands `run ...`, `rehearse ...`, `estimate ...` and `explain ...` on."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Take the words after the name of a command for that command's."""
        name = args[0] if args else ""
        if name not in COMMANDS:
            return super().make_context(info_name, args, parent, **extra)
        command: click.Command = getattr(import_module(f"nb2ddp.cli.{name}"), name)
        return command.make_context(f"{info_name} {name}", args[1:], parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Do what the context's own command does."""
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the other commands."""
        super().format_options(ctx, formatter)
        with formatter.section("Commands"):
            formatter.write_dl([(f"{ctx.info_name} {name}", summary) for name, summary in COMMANDS.items()])


class _Number(click.ParamType):  # type: ignore[type-arg]  # older releases of click have none
    """A whole number, or one of a setting's words."""

    name = "number"

    def __init__(self, setting: Setting) -> None:
        self.least, self.words = setting.least or 0, setting.words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Take a word as it is, and anything else for a number."""
        if value in self.words:
            return value
        if not value.isdecimal() or int(value) < self.least:
            also = "".join(f" or {word!r}" for word in self.words)
            self.fail(f"{value!r} is no whole number of at least {self.least}{also}.", param, ctx)
        return int(value)


def _codes(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[str] | None:
    """Codes from an option that takes several, with commas or repeated."""
    codes = [code.strip().upper() for value in values for code in value.split(",")]
    for code in codes:
        if not code.startswith("DDP"):
            raise click.BadParameter(f"{code!r} is not a code such as DDP101 or DDP3.")
    return codes or None


def _option(setting: Setting) -> click.Option:
    """The option of a setting. None means that it was not given."""
    attributes: dict[str, Any] = {"metavar": setting.metavar, "help": setting.help, "default": None}
    if setting.choices:
        attributes |= {"type": click.Choice(setting.choices), "metavar": "|".join(setting.choices)}
    elif setting.kind is int:
        attributes["type"] = _Number(setting)
    elif setting.kind is Path:
        attributes["type"] = click.Path(path_type=Path)
    elif setting.kind is frozenset:
        attributes |= {"multiple": True, "callback": _codes}
    elif setting.kind is bool:
        attributes["is_flag"] = True
    return click.Option([setting.short, setting.option] if setting.short else [setting.option], **attributes)


@click.command(
    cls=_Command,
    params=[
        click.Argument(["paths"], nargs=-1, metavar="INPUT... [OUTPUT.py]"),
        *map(_option, (*REQUESTED, *TYPED)),
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
    from nb2ddp.cli.arguments import USAGE_ERRORS
    from nb2ddp.cli.report import printable

    set_here = {key.replace("_", "-"): value for key, value in options.items() if value not in (None, ())}
    given = {setting.key: set_here[setting.key] for setting in TYPED if setting.key in set_here}
    own = {setting.field: set_here[setting.key] for setting in REQUESTED if setting.key in set_here}
    try:
        code = execute(Request(paths, given, **own))
    except USAGE_ERRORS as error:
        raise click.UsageError(printable(str(error)), ctx) from None
    ctx.exit(code)


def execute(request: Request) -> int:
    """Convert, print, and return the exit code.

    Raises:
        ConfigError, InputError, LaunchError, OptionsError: wrong usage; nothing has been written.
    """
    from nb2ddp.cli.arguments import planned
    from nb2ddp.cli.printer import Printer
    from nb2ddp.cli.report import exit_code, printable
    from nb2ddp.cli.steps import next_steps
    from nb2ddp.project.files import Mode
    from nb2ddp.project.pool import run

    plans, mode = planned(request)
    jobs = [each.job for each in plans]
    results = Printer(request, mode).show(run(jobs, mode))
    if mode is Mode.WRITE and not request.quiet:
        for line in next_steps(jobs, results):
            click.echo(printable(line), err=True)
    return max([0, *(exit_code(r, p.fails_on_warnings) for r, p in zip(results, plans, strict=True))])
