"""DDP305: `!command` and `%mkdir` become `subprocess.run`, in one process of each machine before training."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.execution import Phase
from nb2ddp.facts.logins import variable_of_command
from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import (
    is_of_its_shell,
    kills_job,
    never_ends,
    only_shows,
    parse,
    rerun,
    trailing_comment,
    undefined,
    without_installs,
)
from nb2ddp.notebook.magics import Kind
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import Remove, Replace


@rule("DDP305")
def shell_command(program: Program) -> Iterator[Finding]:
    for call, form in program.forms_of(Kind.SHELL):
        others = variable_of_command(form.command) is not None or kills_job(form.command)  # DDP311, DDP412
        if not program.installs.covers(call) and not others:
            yield from _found(program, call, form.command)


def _found(program: Program, call: cst.Call, command: str) -> Iterator[Finding]:
    """What becomes of a shell command."""
    text = rerun(without_installs(command))
    for name in undefined(text, program.tree.bound_at(call)):
        said = f"{name!r} is never defined, so the shell gets {{{name}}} as it stands: define it above"
        yield Finding(call, said, todo=True)
    shown = f"!{textwrap.shorten(text, 60, placeholder='...')}"
    message = f"{shown} works in a notebook only; the script runs it with subprocess"
    statement = program.alone(call)
    if statement is None:
        yield _assigned(program, call, text, message)
    elif not text or text.startswith("#"):
        yield Finding(call, message, edits=(Remove(statement),))
    elif never_ends(text) or is_of_its_shell(text):
        does = "runs until a person stops it" if never_ends(text) else "changes nothing but its own shell, which ends"
        said = f"{does}; the script leaves it out"
        yield Finding(call, f"{shown} {said}", (Remove(statement, keep_comment=False, comments_above=True),))
    elif only_shows(text) and program.training.last is not None and not program.execution.runs(call, Phase.AFTER):
        said = "only shows something; the script leaves it out"
        yield Finding(call, f"{shown} {said}", (Remove(statement, keep_comment=False, comments_above=True),))
    else:
        comment = trailing_comment(command)
        parsed = parse(text, program.tree.bound_at(call))
        run = Replace(statement, f"{parsed.run}  {comment}".rstrip())
        place = program.placement.on_main_process if only_shows(text) else program.placement.once
        ends_others = program.execution.does(call) & Does.KILL and program.execution.runs(call, Phase.DURING)
        yield Finding(call, message, (run, *(() if ends_others else place(statement))))


def _assigned(program: Program, call: cst.Call, text: str, message: str) -> Finding:
    """A command whose output the notebook takes: where it may do more than show something, it runs once."""
    lines = Replace(call, parse(text, program.tree.bound_at(call)).lines)
    if only_shows(text) or not program.execution.runs(call) or program.placement.runs_alone(call):
        return Finding(call, message, (lines,))
    if share := program.placement.shared(call):
        return Finding(call, message, (lines, *share))
    message = f"{message}, in all processes at once: put it on a line of its own"
    return Finding(call, message, (lines,), todo=True)
