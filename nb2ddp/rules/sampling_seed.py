"""DDP206: A seed in vLLM's `SamplingParams` gets the rank added.

GRPO compares several completions of one prompt, which several ranks may sample. With one seed they would all be equal,
and nothing would be learned. TRL seeds its own generation on each rank (`set_seed(..., device_specific=True)`), but
does not change a seed in `SamplingParams`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.execution import Phase
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Replace
from nb2ddp.syntax.tree import keyword

_SAMPLING = re.compile(r".*SamplingParams")
OWN = 'int(os.environ.get("RANK", 0))'


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in program.execution.calls(_SAMPLING, phase=Phase.TOGETHER):
        seed = keyword(call, "seed")
        if seed is not None and tree.literal(seed.value) is not None and "RANK" not in tree.text(seed.value):
            plain = isinstance(seed.value, (cst.Integer, cst.Name))
            text = tree.text(seed.value) if plain else f"({tree.text(seed.value)})"
            said = "one seed would give every process the same completions of a prompt; the script gives each its own"
            yield Finding(call, said, (Replace(seed.value, f"{text} + {OWN}"),))


RULE = Rule(
    name="completions-drawn-alike",
    find=find,
    examples=(
        Example(
            """\
from vllm import SamplingParams
vllm_sampling_params = SamplingParams(
    min_p = 0.1,
    seed = 3407,
)
trainer.train()
""",
            """\
from vllm import SamplingParams
vllm_sampling_params = SamplingParams(
    min_p = 0.1,
    seed = 3407 + int(os.environ.get("RANK", 0)),
)
trainer.train()
""",
        ),
        Example("from vllm import SamplingParams\nparams = SamplingParams(temperature = 1.0)\ntrainer.train()\n"),
        Example("from vllm import SamplingParams\ntrainer.train()\nparams = SamplingParams(seed = 3407)\n"),
    ),
)
