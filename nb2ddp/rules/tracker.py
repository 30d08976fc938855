"""DDP406: one experiment run for the job."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.execution import Phase
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import AddToSetup, Wrap
from nb2ddp.syntax.tree import small_statements

_OTHERS = re.compile(
    r"(mlflow|comet_ml|neptune|trackio|clearml|swanlab|aim)\.(?!(last_)?active_run$|get_tracking_uri$).*"
)
_WANDB = re.compile(r"wandb\.(init|login|log|Table)")
_ALONE = "is for one process (each would begin a run of its own)"
_ONE_RUN = '    os.environ["WANDB_MODE"] = "disabled"  # one run, not one a process'
_ARTIFACT = re.compile(r".*\.use_artifact")


def find(program: Program) -> Iterator[Finding]:
    tree, execution = program.tree, program.execution
    for call in execution.calls(_WANDB, phase=Phase.TOGETHER)[:1]:
        yield Finding(
            call,
            f"{tree.qualified(call.func)} {_ALONE}; in the script the main one does it",
            (AddToSetup(f"if not is_main_process:\n{_ONE_RUN}"),),
        )
    for call in execution.calls(_ARTIFACT, phase=Phase.TOGETHER):
        if not program.placement.runs_alone(call):
            said = "only the main process has a run, so the others get None here: fetch it before the job"
            yield Finding(call, said, todo=True)
    for call in execution.calls(_OTHERS, phase=Phase.TOGETHER):
        if not program.placement.runs_alone(call) and not isinstance(tree.parents[call], cst.IfExp):
            yield _other(program, call)


def _other(program: Program, call: cst.Call) -> Finding:
    """A call of another tracker: the main process makes it alone, and the others do without what it gives."""
    tree = program.tree
    said, done = f"{tree.text(call.func)} {_ALONE}", "; in the script the main one does it"
    around = tree.parents[call]
    if isinstance(around, cst.WithItem):
        if around.asname is None:
            otherwise = Wrap(call, "", " if is_main_process else contextlib.nullcontext()")
            return Finding(call, f"{said}{done}", (otherwise,))
        name = tree.text(around.asname.name)
        said += ": write `if is_main_process else contextlib.nullcontext()` behind it, and use"
        said += f" {name} below `if is_main_process:`"
        return Finding(call, said, todo=True)
    alone = program.alone(call) is not None
    if alone and not program.training.is_joint(call) and len(small_statements(tree.statement(call))) == 1:
        return Finding(call, f"{said}{done}", program.placement.on_main_process(call))
    return Finding(call, f"{said}: put it under `if is_main_process:`", todo=True)


RULE = Rule(
    code="DDP406",
    name="run-in-every-process",
    summary="Only the main process reports to Weights & Biases and other trackers.",
    why=(
        "`wandb.init` in every process makes one run for each of them. The setup block sets WANDB_MODE=disabled in "
        "the others: its calls then do nothing, and the notebook's code stays as it is. Calls of other trackers run "
        "only in the main process."
    ),
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
        Example(
            """\
import mlflow
with mlflow.start_run(run_name = "first"):
    mlflow.log_param("rank", 16)
    trainer.train()
    if mlflow.active_run():
        print("logged")
with mlflow.start_run() as run:
    trainer.train()
""",
            """\
import mlflow
with mlflow.start_run(run_name = "first") if is_main_process else contextlib.nullcontext():
    if is_main_process:
        mlflow.log_param("rank", 16)
    trainer.train()
    if mlflow.active_run():
        print("logged")
# TODO[nb2ddp] DDP406: mlflow.start_run is for one process (each would begin a run of its own): write `if \
is_main_process else contextlib.nullcontext()` behind it, and use run below `if is_main_process:`
with mlflow.start_run() as run:
    trainer.train()
""",
        ),
        Example("import wandb\ntrainer.train()\nwandb.finish()\n"),
    ),
)
