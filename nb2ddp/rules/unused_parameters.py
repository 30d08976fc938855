"""DDP202: A dense text model with LoRA gets `ddp_find_unused_parameters = False`."""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.facts.loading import ModelKind, trains_lora
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import passed, set_argument

FIELD = "ddp_find_unused_parameters"
_FAILS = "is not set: transformers would take True for an adapter, which fails or slows down; the script sets False"

_SOME = "False makes some {} models fail"
_UNKNOWN = "the kind of model is unknown, and False makes some fail"


@rule("DDP202")
def unused_parameters_searched(program: Program) -> Iterator[Finding]:
    tree, kind, adapters = program.tree, program.model_kind, trains_lora(program.tree, program.loads)
    for call in [call for call in program.training.arguments if passed(tree, call, FIELD) is None]:
        if kind is not ModelKind.DENSE_TEXT:
            chooses = "Unsloth (2026.10.6 or newer)" if adapters else "transformers"
            yield Finding(
                call,
                f"{FIELD} is left to {chooses}: {_UNKNOWN if kind is ModelKind.UNKNOWN else _SOME.format(kind.value)}",
            )
        elif adapters:
            yield Finding(call, f"{FIELD} {_FAILS}", (set_argument(tree, call, FIELD, "False"),))
