"""DDP408: a training, an engine's start, or another step of all processes that only some of them come to."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.execution import Who
from nb2ddp.facts.program import Program
from nb2ddp.facts.waiting import starts_engine
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.tree import method

_MESSAGE = (
    "only some processes come to what is trained, evaluated or waited for below, and wait for the others for ever: take"
    " it out of the test"
)
_ENGINE = (
    "processes start their engines together: those that come to this load wait for the others until the job times out;"
    " take it out of the test"
)
_BEST = "the main process alone gets the best trial, and the others fail with None: train with it in a job of its own"


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for test in tree.of(cst.If):
        if program.execution.asks_rank(test.test) is Who.EVERY or not program.execution.runs(test):
            continue
        if starts_engine(tree, tree.within(test.body, cst.Call)):
            yield Finding(test, _ENGINE, todo=True)
        elif program.training.is_joint(test.body):
            yield Finding(test, _MESSAGE, todo=True)
    for call in program.training.calls:
        taken = tree.bound_uses(best) if isinstance(best := tree.parents[call], cst.Assign) else []
        if method(call) == "hyperparameter_search" and any(map(program.execution.runs, taken)):
            yield Finding(call, _BEST, todo=True)


RULE = Rule(
    code="DDP408",
    name="trained-by-some-processes",
    summary="A joint step under a condition on the rank gets a `TODO` above the condition.",
    why=(
        "Training and evaluation exchange gradients and losses between all ranks, and vLLM engines form process "
        "groups when they start. A rank that does so alone waits for the others until the job times out. The search "
        "for the best trial of a training gets a `TODO` too."
    ),
    find=find,
    examples=(
        Example(
            "if trainer.is_world_process_zero():\n    print(trainer.evaluate())\ntrainer.train()\n",
            f"# TODO[nb2ddp] DDP408: {_MESSAGE}\n"
            "if trainer.is_world_process_zero():\n    print(trainer.evaluate())\ntrainer.train()\n",
        ),
        Example(
            'import os\nfirst = int(os.environ.get("RANK", 0)) == 0\nif first:\n    trainer.train()\n',
            'import os\nfirst = int(os.environ.get("RANK", 0)) == 0\n'
            f"# TODO[nb2ddp] DDP408: {_MESSAGE}\nif first:\n    trainer.train()\n",
        ),
        Example(
            "import os\nfrom unsloth import FastLanguageModel\n"
            'if os.environ.get("LOCAL_RANK", "0") == "0":\n'
            '    model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen3-4B", fast_inference = True)\n'
            "trainer.train()\n",
            "import os\nfrom unsloth import FastLanguageModel\n"
            f"# TODO[nb2ddp] DDP408: {_ENGINE}\n"
            'if os.environ.get("LOCAL_RANK", "0") == "0":\n'
            '    model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen3-4B", fast_inference = True)\n'
            "trainer.train()\n",
        ),
        Example("if trainer.is_world_process_zero():\n    print(len(dataset))\ntrainer.train()\n"),
        Example("trainer.train()\nif trainer.is_world_process_zero():\n    trainer.save_model()\n"),
        Example(
            "best = trainer.hyperparameter_search(n_trials = 8)\nuse(best.hyperparameters)\ntrainer.train()\n",
            f"# TODO[nb2ddp] DDP408: {_BEST}\n"
            "best = trainer.hyperparameter_search(n_trials = 8)\nuse(best.hyperparameters)\ntrainer.train()\n",
        ),
        Example("best = trainer.hyperparameter_search(n_trials = 8)\nprint(best)\n"),
        Example("RANK = 16\nif RANK > 8:\n    trainer.train()\n"),
    ),
)
