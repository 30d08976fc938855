"""DDP002: A notebook without a training call is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule

#: A program that trains: a Python file or module, or a command of a package that fine-tunes.
_PROGRAM = re.compile(
    r"\bpython[\d.]*(\s+-\w+)*\s+[\w./-]*(train|fine_?tun|sft|grpo|dpo)"
    r"|\b(llamafactory-cli|axolotl|swift|xtuner|tune|autotrain|trl|unsloth)\s+(train|sft|grpo|dpo|run|llm)\b",
    re.IGNORECASE,
)
_FUNCTION = re.compile(
    r"(\w+\.)+(((run|start|launch|do)_)?(train|training|fine_?tune|fine_?tuning)(_(model|loop|lora|llm))?|sft)"
)
_NEVER_CALLED = "this training stands in a function that the notebook never calls, so there is no script: call it"
_NEVER_TRAINED = "the notebook never calls train() of this trainer, so there is no script: call it"
_IN_A_PROGRAM = (
    "trains in a program of its own, on one GPU whatever a script does, so there is no script: start that program with"
    " accelerate launch, or bring its trainer into the notebook"
)
_IN_A_CELL = (
    "trains in {0}, which a cell writes, so there is no script: take out this line and the line %%writefile {0}, so"
    " that its code is the notebook's own"
)
_IN_A_FUNCTION = (
    "seems to train inside this call, so there is no script: only a Trainer's train() that the notebook itself "
    "calls can be distributed; call it here, or start the function's own script with accelerate launch"
)
_NOTHING = (
    "no training was found, so there is no script: only train() of a Trainer (transformers, TRL, Unsloth,"
    " sentence-transformers) can be distributed"
)


@rule("DDP002", Severity.ERROR)
def no_training(program: Program) -> Iterator[Finding]:
    training, module = program.training, program.tree.module
    if training.events or not module.body or training.backward_calls:  # nothing to point at; DDP003
        return
    if training.calls:
        yield Finding(training.calls[0], _NEVER_CALLED)
    elif training.trainers:
        yield Finding(training.trainers[0], _NEVER_TRAINED)
    elif started := [call for call in program.execution.calls() if _PROGRAM.search(program.effects.command(call))]:
        file = program.written(program.effects.command(started[0]))
        yield Finding(started[0], _IN_A_CELL.format(file) if file else _IN_A_PROGRAM)
    elif called := program.execution.calls(_FUNCTION)[:1]:
        yield Finding(called[0], f"{program.tree.text(called[0].func)}() {_IN_A_FUNCTION}")
    else:
        yield Finding(next(iter(program.loads), module.body[0]), _NOTHING)
