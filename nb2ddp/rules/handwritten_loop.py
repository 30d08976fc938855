"""DDP003: A notebook that trains with `loss.backward()` and no Trainer is refused; beside a Trainer it
gets a warning.
"""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.facts.execution import Phase
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule


@rule("DDP003", Severity.ERROR)
def handwritten_training_loop(program: Program) -> Iterator[Finding]:
    if not program.training.events:
        calls, so, severity = program.training.backward_calls, ", so there is no script", None
    else:
        together = Phase.BEFORE | Phase.BETWEEN
        calls = [call for call in program.training.backward_calls if program.execution.runs(call, together)]
        so, severity = "", Severity.WARNING
    for call in calls[:1]:
        yield Finding(
            call,
            f"a training loop written by hand would train another model in each process{so}:"
            " train with a Trainer; a loop that uses an Accelerator needs no conversion, only accelerate launch",
            severity=severity,
        )
