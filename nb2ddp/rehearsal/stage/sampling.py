"""Draw few tokens, the same ones for any split of prompts over processes, to make rewards and losses comparable."""

from __future__ import annotations

import itertools
import os
import re
from types import ModuleType
from typing import Any

from .hooks import after_import, wrap

MOST = 16  # tokens of an answer
_MARK = r"(image|video|audio|vision|bo[ia]|eo[ia])\w*_(id|index)$"
_calls = itertools.count()


def begin_step(training: int, step: int) -> None:
    """Number the calls of a step in the same way in every run, even in one that resumes at this step."""
    global _calls
    _calls = itertools.count(64 * (100_000 * training + step))


class Draw:
    """Chooses each token by a separate draw, seeded by the call, the row among all processes' rows, and the position.

    The largest sum of a logit and a Gumbel variate is a draw from the distribution of the logits
    (https://en.wikipedia.org/wiki/Gumbel_distribution#Gumbel_reparameterization_tricks).
    """

    def __init__(self, call: int, first: int) -> None:
        self.call, self.first, self.position = call, first, 0

    def __call__(self, _: Any, scores: Any) -> Any:
        """Leave one token possible in each row."""
        import torch

        self.position += 1
        chosen = torch.full_like(scores, float("-inf"))
        for row, logits in enumerate(scores):
            generator = torch.Generator().manual_seed((self.call * 4096 + self.first + row) * 65536 + self.position)
            noise = -torch.log(-torch.log(torch.rand(logits.shape, generator=generator).clamp(1e-9, 1 - 1e-7)))
            chosen[row, int((logits.float() + noise).argmax())] = 0.0
        return chosen


def _marks(config: Any) -> list[int]:
    """Return the tokens for pictures and sounds, which a random model would write although none is given."""
    about = config.to_dict()
    return [about[name] for name in about if re.search(_MARK, name) and type(about[name]) is int]


def _shorten(asked: dict[str, Any]) -> None:
    for name in ("max_length", "min_length", "min_new_tokens"):
        asked.pop(name, None)
    asked["max_new_tokens"] = min(asked.get("max_new_tokens") or MOST, MOST)


def _draw_alike(generation: ModuleType) -> None:
    is_within = False

    def generate(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal is_within
        if is_within:  # called by a model that this one is a part of
            return original(self, *args, **kwargs)
        settings = kwargs.get("generation_config")
        if marks := _marks(self.config):
            kwargs.setdefault("suppress_tokens", marks)
        if settings is None:  # else a trainer's
            _shorten(kwargs)
        ids = kwargs.get("input_ids", args[0] if args and hasattr(args[0], "shape") else None)
        if getattr(settings, "do_sample", False) and ids is not None and self.training is not None:
            draw = Draw(next(_calls), int(os.environ.get("RANK", 0)) * len(ids))
            kwargs["logits_processor"] = generation.LogitsProcessorList([*kwargs.get("logits_processor", ()), draw])
        is_within = True
        try:
            return original(self, *args, **kwargs)
        finally:
            is_within = False

    wrap(generation, "GenerationMixin.generate", generate)


def lay() -> None:
    """Install this once the generation module has been imported."""
    after_import("transformers.generation.utils", _draw_alike)
