"""DDP406: Only the main process reports to Weights & Biases and other trackers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.execution import Phase
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import AddToSetup, Edit, Wrap
from nb2ddp.syntax.tree import keyword, small_statements

_OTHERS = re.compile(
    r"(mlflow|comet_ml|neptune|trackio|clearml|swanlab|aim)\.(?!(last_)?active_run$|get_tracking_uri$).*|weave\.init"
)
_BEGINS = re.compile(r"wandb\.init")
_WANDB = re.compile(r"wandb\.(init|login|log|Table)")
_ALONE = "is for one process (each would begin a run of its own)"
_ONE_RUN = '    os.environ["WANDB_MODE"] = "disabled"  # one run, not one for each process'


@rule("DDP406")
def run_in_every_process(program: Program) -> Iterator[Finding]:
    tree, execution = program.tree, program.execution
    for call in execution.calls(_WANDB, phase=Phase.TOGETHER)[:1]:
        yield Finding(
            call,
            "wandb would begin a run in every process; in the script only the main one reports",
            (AddToSetup(f"if not is_main_process:\n{_ONE_RUN}"),),
        )
    for call in execution.calls(_BEGINS, phase=Phase.TOGETHER):
        mode = keyword(call, "mode")
        is_told = mode is None or tree.literal(mode.value) == "disabled" or "is_main_process" in tree.text(mode.value)
        if mode is not None and not is_told and not program.placement.runs_alone(call):
            told = "the mode that wandb.init is given is stronger than WANDB_MODE; the script gives it to the main one"
            open_, close = ("(", ")") if isinstance(mode.value, (cst.IfExp, cst.BooleanOperation)) else ("", "")
            alone = (Wrap(mode.value, open_, f'{close} if is_main_process else "disabled"'),)
            yield Finding(call, told, alone)
    for call in execution.calls(_OTHERS, phase=Phase.TOGETHER):
        if not program.placement.runs_alone(call) and not isinstance(tree.parents[call], cst.IfExp):
            yield _other(program, call)


def _other(program: Program, call: cst.Call) -> Finding:
    """A call of another tracker, which the main process makes alone; a `TODO` where others need what it gives."""
    around, said = program.tree.parents[call], f"{program.tree.text(call.func)} {_ALONE}"
    is_alone = program.alone(call) is not None and len(small_statements(program.tree.statement(call))) == 1
    edits: tuple[Edit, ...] = program.placement.on_main_process(call) if is_alone else ()
    if isinstance(around, cst.WithItem) and around.asname is None:
        edits = (Wrap(call, "", " if is_main_process else contextlib.nullcontext()"),)
    does = "; in the script the main one does it" if edits else ": make it on the main process alone"
    return Finding(call, f"{said}{does}", edits, todo=not edits)
