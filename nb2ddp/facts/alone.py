"""Code after the last training, which the main process runs alone: does it ask for the number of processes?"""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.execution import Execution, Phase
from nb2ddp.syntax.environ import LAUNCHER_VARIABLES

_IMPORTS = (cst.Import, cst.ImportFrom, cst.ImportAlias)
#: Libraries that ask accelerate, torch or the environment.
_LIBRARIES = re.compile(r"(accelerate|deepspeed|lighteval|lm_eval|torch\.distributed|vllm)\..*")
#: What asks by its own name: a trainer's loaders, its accelerator's methods.
_SHARES = re.compile(r".*(\.get_\w*dataloader|\baccelerator\.\w+)", re.DOTALL)
#: What trains out of sight: a function of a module that the notebook imports.
_UNSEEN = re.compile(r"(\w+\.)+(train|fine_?tune|fit)(_\w+)?")
#: Programs that ask the environment they are started with.
_PROGRAMS = re.compile(r"\b(python[\d.]*|accelerate|torchrun|deepspeed|lm[_-]eval|lighteval|vllm)\b")


def asks_for_processes(execution: Execution, loads: Sequence[cst.Call]) -> bool:
    """True where what follows the last training asks for the number of processes.

    Unsloth's loads do (unsloth 2026.10.9, models/loader_utils.py:214, `prepare_device_map`), and every trainer.

    Args:
        execution: who runs what, when.
        loads: the calls that load a model.
    """
    tree, training = execution.tree, execution.training
    texts = [text for text in tree.live(cst.SimpleString) if tree.content(text) in LAUNCHER_VARIABLES]
    return any(execution.runs(node, Phase.AFTER) for node in (*loads, *texts)) or any(
        _LIBRARIES.fullmatch(tree.qualified(call.func))
        or _SHARES.fullmatch(tree.text(call.func))
        or (_UNSEEN.fullmatch(tree.qualified(call.func)) and isinstance(tree.definition(call.func), _IMPORTS))
        or training.is_trainer_call(call)
        or training.is_arguments(call)
        or (execution.does(call) & Does.RUN and _PROGRAMS.search(execution.effects.command(call)))
        for call in execution.calls(phase=Phase.AFTER)
    )
