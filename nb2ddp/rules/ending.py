"""DDP412: A command that would end the job itself is removed; one that ends other ranks' programs gets a `TODO`.

A notebook runs as one process, so all provers or servers belong to it. In a job, one rank would end those of the others
in the middle of their work, without an error. That is said of commands in functions that a trainer calls.

A notebook frees its GPU by ending all programs that use it, before it uses it itself. A script uses it from its first
lines, so the command would end the job.
"""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.facts.effects import Does
from nb2ddp.facts.execution import Phase
from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import kills_job
from nb2ddp.rules.rule import Example, Finding, Rule, left_out

_OTHERS = (
    "ends programs of the whole machine, those too that other ranks wait for, and their rewards then count as "
    "failures: end only what this process started, by its process id"
)
_ITSELF = "ends all programs of its kind on the machine, this job among them; the script leaves it out"


def find(program: Program) -> Iterator[Finding]:
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


RULE = Rule(
    name="programs-of-others-ended",
    find=find,
    examples=(
        Example(
            """\
import os
def proves(completions, **kwargs):
    scores = [prove(each) for each in completions]
    os.system("ps aux | grep prover | awk '{print $2}' | xargs kill -9")
    return scores
trainer = GRPOTrainer(model = model, reward_funcs = [proves])
trainer.train()
""",
            "import os\n"
            "def proves(completions, **kwargs):\n"
            "    scores = [prove(each) for each in completions]\n"
            "    # TODO[nb2ddp] DDP412: \"ps aux | grep prover | awk '{print $2}' | xargs kill -9\" ends "
            "programs of the whole machine, those too that other ranks wait for, and their rewards then "
            "count as failures: end only what this process started, by its process id\n"
            "    os.system(\"ps aux | grep prover | awk '{print $2}' | xargs kill -9\")\n"
            "    return scores\n"
            "trainer = GRPOTrainer(model = model, reward_funcs = [proves])\n"
            "trainer.train()\n",
        ),
        Example(
            "import subprocess\nsubprocess.run(['pkill', '-f', 'python'])\n!fuser -k /dev/nvidia*\ntrainer.train()\n",
            "import subprocess\ntrainer.train()\n",
        ),
        Example("import subprocess\nsubprocess.run(['pkill', '-f', 'ollama'])\ntrainer.train()\n"),
        Example("process.kill()\ntrainer.train()\n"),
    ),
)
