"""DDP412: A command that would end the job itself is removed; one that ends other ranks' programs gets a `TODO`."""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.facts.effects import Does
from nb2ddp.facts.execution import Phase
from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import kills_job
from nb2ddp.rules.rule import Finding, left_out, rule

_OTHERS = (
    "ends programs of the whole machine, those too that other ranks wait for, and their rewards then count as "
    "failures: end only what this process started, by its process id"
)
_ITSELF = "ends all programs of its kind on the machine, this job among them; the script leaves it out"


@rule("DDP412")
def programs_of_others_ended(program: Program) -> Iterator[Finding]:
    told = set[object]()
    for call in program.execution.calls(does=Does.KILL):
        command, owner = program.effects.command(call), program.tree.owner(call)
        if program.execution.runs(call, Phase.DURING):
            if owner in told:
                continue
            told.add(owner)
            yield Finding(call, f"{command!r} {_OTHERS}", todo=True)
        elif kills_job(command):
            yield Finding(call, f"{command!r} {_ITSELF}", (left_out(program, call),))
