"""GRPO rewards: every process calls them for its own completions."""

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from nb2ddp.runtime.process import local_rank, world_size

reward_calls: Counter[int] = Counter()  # in each training step


def same_draws(reward: Callable[..., Any]) -> Callable[..., Any]:
    """Make a reward draw the same random numbers in all processes, and new ones at each call."""
    import random  # a notebook may use the name for something else

    import numpy

    @functools.wraps(reward)
    def seeded(*args: Any, **kwargs: Any) -> Any:
        if world_size == 1:
            return reward(*args, **kwargs)
        step = getattr(kwargs.get("trainer_state"), "global_step", 0)
        reward_calls[step] += 1
        seed = 1000 * step + reward_calls[step]  # the same in all processes, also after a resume
        random.seed(seed)
        numpy.random.seed(seed)
        with torch.random.fork_rng([local_rank] if torch.cuda.is_available() else []):
            torch.manual_seed(seed)  # only for the reward: each process samples its own completions
            return reward(*args, **kwargs)

    return seeded
