"""DDP003: a training loop written by hand needs its own DDP code."""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule


def find(program: Program) -> Iterator[Finding]:
    for call in program.training.backward_calls[:1]:
        if not program.training.events:
            yield Finding(
                call,
                "a training loop written by hand would train another model in each process, so there is no script:"
                " use a Trainer, or wrap the model with accelerate's Accelerator.prepare yourself",
            )


RULE = Rule(
    code="DDP003",
    name="handwritten-training-loop",
    summary="A notebook that trains with `loss.backward()` and no Trainer is refused.",
    why=(
        "Gradients are averaged over the ranks only if DDP wraps the model. Otherwise every process trains a model "
        "of its own, without an error."
    ),
    find=find,
    severity=Severity.ERROR,
    examples=(
        Example("for batch in loader:\n    loss = model(**batch).loss\n    loss.backward()\n", reported=True),
        Example("trainer.train()\ndef compute_loss(x):\n    x.backward()\n"),
    ),
)
