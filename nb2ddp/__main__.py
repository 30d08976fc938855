"""The command line. Modules that take long to import are imported when they are needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from nb2ddp import __version__
from nb2ddp.cli.request import Request
from nb2ddp.options import SETTINGS, LaunchError, OptionsError, Slurm, as_typed, slurm_table
from nb2ddp.settings import Setting, settings_of

#: The options that the command alone has.
REQUESTED = settings_of(Request)
_SECTIONS = ("Where to", "What to do", "Training job", "Findings", "Other")
#: The other commands, in modules of `nb2ddp.cli` that are called as they are, with what `--help` says of them.
_COMMANDS = {
    "rehearse": "Train a script on the CPU, with small stand-ins, as one process and as several, and compare.",
    "estimate": "Say which GPUs hold a notebook's training, and how many its steps keep busy.",
}
_EXAMPLES = """\
\b
Examples:
  nb2ddp finetune.ipynb                           convert one notebook into finetune.py
  nb2ddp finetune.ipynb train.py                  the same, into train.py
  nb2ddp finetune.ipynb train.py --diff           show what would change in the files
  nb2ddp finetune.ipynb train.py --rewrites       show what differs from the notebook's code
  nb2ddp notebooks --output-dir scripts           convert a folder
  nb2ddp notebooks --output-dir scripts --check   in CI: is every script up to date?
  nb2ddp finetune.ipynb train.py --num-processes 8 --launcher slurm
  nb2ddp --explain DDP101                         why a finding matters

\b
Exit code: 0 done; 1 a script is out of date, or findings of the --fail-on level;
2 a notebook or a file failed, or wrong usage. Settings for a whole project go
into [tool.nb2ddp] of pyproject.toml.
"""


class _Option(click.Option):
    """An option with the section of the help that it belongs to."""

    def __init__(self, names: Sequence[str], section: str, **attributes: Any) -> None:
        super().__init__(names, **attributes)
        self.section = section


class _Command(click.Command):
    """A command whose help lists its options by topic, and that hands `rehearse ...` and `estimate ...` on."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Take the words after the name of a command for that command's."""
        name = args[0] if args else ""
        if name not in _COMMANDS:
            return super().make_context(info_name, args, parent, **extra)
        command: click.Command = getattr(import_module(f"nb2ddp.cli.{name}"), name)
        return command.make_context(f"{info_name} {name}", args[1:], parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Do what the context's own command does."""
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the other commands, and one list of options for each section."""
        with formatter.section("Commands"):
            formatter.write_dl([(f"{ctx.info_name} {name} ...", summary) for name, summary in _COMMANDS.items()])
        for section in _SECTIONS:
            rows = [
                row
                for option in self.get_params(ctx)
                if isinstance(option, click.Option)
                and getattr(option, "section", "Other") == section
                and (row := option.get_help_record(ctx))
            ]
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)


class _Number(click.IntRange):
    """A whole number, or one of a setting's words."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting.least, setting.most)
        self.words = setting.words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Take a word as it is, and anything else for a number."""
        if value in self.words:
            return value
        if self.words and not value.lstrip("+-").isdecimal():
            self.fail(f"{value!r} is neither a whole number nor {' or '.join(map(repr, self.words))}.", param, ctx)
        return super().convert(value, param, ctx)


def _codes(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[str] | None:
    """Codes from an option that takes several, with commas or repeated."""
    codes = [code.strip().upper() for value in values for code in value.split(",")]
    for code in codes:
        if not code.startswith("DDP"):
            raise click.BadParameter(f"{code!r} is not a code such as DDP101 or DDP3.")
    return codes or None


def _slurm(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, Any] | None:
    try:
        return slurm_table(values) or None
    except LaunchError as error:
        raise click.BadParameter(str(error)) from None


#: What makes one value of an option that may be repeated.
_CALLBACKS = {frozenset: _codes, Slurm: _slurm, tuple: None}


def _option(setting: Setting) -> _Option:
    """The option of a setting. None means that it was not given; a switch that pyproject.toml has can be turned off."""
    attributes: dict[str, Any] = {"metavar": setting.metavar, "help": setting.help, "default": None}
    if setting.choices:
        attributes |= {"type": click.Choice(setting.choices), "metavar": None}
    elif setting.kind is int:
        attributes["type"] = _Number(setting)
    elif setting.kind is Path:
        refused = "file_okay" if setting.metavar == "FOLDER" else "dir_okay"
        attributes["type"] = click.Path(path_type=Path, **{refused: False})
    elif setting.kind in _CALLBACKS:
        attributes |= {"multiple": True, "callback": _CALLBACKS[setting.kind]}
    elif setting.kind is bool:
        attributes["is_flag"] = True
    flag = f"{setting.option}/--no-{setting.key}" if setting.kind is bool and setting in SETTINGS else setting.option
    return _Option([setting.short, flag] if setting.short else [flag], setting.section, **attributes)


def _complete_code(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from nb2ddp.rules.index import KNOWN

    return [code for code in sorted(KNOWN) if code.startswith(incomplete.upper())]


def _explain(ctx: click.Context, value: str, *, is_whole: bool) -> None:
    from nb2ddp.cli.explain import explained, listed
    from nb2ddp.rules.index import KNOWN

    code = f"DDP{value}" if value.isdecimal() else value.upper()
    rule = next((rule for rule in KNOWN.values() if code == rule.code or value == rule.name), None)
    lines = explained(rule, is_whole=is_whole) if rule else listed(code) if code.startswith("DDP") else ()
    text = "\n".join(lines)
    if not text:
        raise click.BadParameter(f"there is no rule {value!r}; nb2ddp --list-rules lists them.", ctx)
    click.echo(text)


def _list_rules(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from nb2ddp.cli.explain import listed

        click.echo("\n".join(listed()))
        ctx.exit()


#: The options that explain findings.
_EXPLAINING = (
    _Option(["--all", "is_whole"], "Findings", is_flag=True, help="With --explain: all examples."),
    _Option(
        ["--explain"],
        "Findings",
        metavar="CODE",
        shell_complete=_complete_code,
        help="Explain a code, with an example; DDP3 lists all codes that begin with it.",
    ),
    _Option(
        ["--list-rules"],
        "Findings",
        is_flag=True,
        callback=_list_rules,
        is_eager=True,
        expose_value=False,
        help="List all codes.",
    ),
)


@click.command(
    cls=_Command,
    params=[
        click.Argument(["paths"], nargs=-1, metavar="INPUT... [OUTPUT.py]"),
        *map(_option, REQUESTED),
        *_EXPLAINING,
        *map(_option, SETTINGS),
    ],
    epilog=_EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="nb2ddp", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context, /, paths: tuple[str, ...], explain: str | None, is_whole: bool, **options: Any) -> None:
    """Turn Unsloth fine-tuning notebooks into scripts that train on several GPUs with DDP.

    INPUT is a notebook, a folder, a pattern such as 'nb/**/*.ipynb', or - for standard input. A single notebook
    takes OUTPUT.py, or - for standard output, or becomes a script beside it; several take --output-dir. Beside each
    script it writes the accelerate_config.yaml that starts it. Notebooks are never changed, and nothing in them is
    executed. Your edits of a script are kept when its notebook is converted again.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    if explain is not None:
        _explain(ctx, explain, is_whole=is_whole)
        return
    from nb2ddp.cli.command import USAGE_ERRORS, execute
    from nb2ddp.cli.report import printable

    set_here = {key.replace("_", "-"): value for key, value in options.items() if value not in (None, ())}
    given = {setting.key: set_here[setting.key] for setting in SETTINGS if setting.key in set_here}
    own = {setting.field: set_here[setting.key] for setting in REQUESTED if setting.key in set_here}
    request = Request(paths, given, **own)
    try:
        code = execute(request)
    except USAGE_ERRORS as error:
        is_of_fields = isinstance(error, (LaunchError, OptionsError))
        raise click.UsageError(printable(as_typed(str(error)) if is_of_fields else str(error)), ctx) from None
    except KeyboardInterrupt:
        click.echo("Interrupted. Every file is as it was, or converted.", err=True)
        code = 130
    ctx.exit(code)


if __name__ == "__main__":
    main(prog_name="nb2ddp")
