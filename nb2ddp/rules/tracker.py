"""DDP406: one experiment run for the job."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nb2ddp.facts.execution import Phase
from nb2ddp.facts.parts import Part
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.tree import small_statements

_OTHERS = re.compile(r"(mlflow|comet_ml|neptune|trackio|clearml|swanlab|aim)\..*")
_WANDB = re.compile(r"wandb\.(init|login|log|Table)")
_ARTIFACT = re.compile(r".*\.use_artifact")


def find(program: Program) -> Iterator[Finding]:
    tree, execution = program.tree, program.execution
    for call in execution.calls(_WANDB, phase=Phase.TOGETHER)[:1]:
        yield Finding(
            call,
            f"{tree.qualified(call.func)} would begin a run in every process; in the script the main one does",
            needs=frozenset({Part.WANDB}),
            fixed=True,
        )
    for call in execution.calls(_ARTIFACT, phase=Phase.TOGETHER):
        if not program.placement.runs_alone(call):
            said = "only the main process has a run, so the others get None here: fetch it before the job"
            yield Finding(call, said, todo=True)
    for call in execution.calls(_OTHERS, phase=Phase.TOGETHER):
        if program.placement.runs_alone(call):
            continue
        said = f"{tree.text(call.func)} would begin a run in every process"
        alone = program.alone(call) is not None
        if alone and not program.training.is_joint(call) and len(small_statements(tree.statement(call))) == 1:
            yield Finding(call, f"{said}; in the script the main one does", program.placement.on_main_process(call))
        else:
            said += f": put it under `if {program.name('is_main_process')}:`"
            yield Finding(call, said, todo=True)


RULE = Rule(
    code="DDP406",
    name="run-in-every-process",
    summary="Weights & Biases is switched off in all processes but the main one, in the setup block; the main process"
    " alone calls other trackers.",
    why="`wandb.init` in every process makes one run a process. With WANDB_MODE=disabled its calls do nothing, so the "
    "notebook's code stays as it is.",
    find=find,
    examples=(
        Example('import wandb\nwandb.init(project = "tuning")\ntrainer.train()\n', reported=True),
        Example(
            "import mlflow\nmlflow.start_run()\ntrainer.train()\n",
            "import mlflow\nif is_main_process:\n    mlflow.start_run()\ntrainer.train()\n",
        ),
        Example(
            'import wandb\nrun = wandb.init()\nrows = run.use_artifact("rows:latest")\ntrainer.train()\n',
            "import wandb\nrun = wandb.init()\n# TODO[nb2ddp] DDP406: only the main process has a run, so the others"
            ' get None here: fetch it before the job\nrows = run.use_artifact("rows:latest")\ntrainer.train()\n',
        ),
        Example("import wandb\ntrainer.train()\nwandb.finish()\n"),
    ),
)
