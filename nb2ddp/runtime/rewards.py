"""Rewards of GRPO, which every process calls on completions of its own."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch

from nb2ddp.runtime.process import local_rank, world_size

reward_seeds = itertools.count()  # one for each call of a reward, the same in all processes


def same_draws(reward: Callable[..., Any]) -> Callable[..., Any]:
    """A reward that draws the same random numbers in every process, and others at each call."""
    import random  # here, as a notebook may use the name for something else

    import numpy

    @functools.wraps(reward)
    def seeded(*args: Any, **kwargs: Any) -> Any:
        if world_size == 1:
            return reward(*args, **kwargs)
        seed = next(reward_seeds)
        random.seed(seed)
        numpy.random.seed(seed)
        with torch.random.fork_rng([local_rank] if torch.cuda.is_available() else []):
            torch.manual_seed(seed)  # for the reward alone: each process draws completions of its own
            return reward(*args, **kwargs)

    return seeded
