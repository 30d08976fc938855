"""Changes that single versions of libraries need; each can be removed once no notebook asks for its version."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from types import ModuleType, SimpleNamespace
from typing import Any

from .hooks import after_import, wrap


class LogProbabilities:
    """TRL's kernel for log-probabilities (`trl.kernels.ChunkedLogProbFunction`), in plain torch."""

    @staticmethod
    def apply(
        hidden: Any, weight: Any, bias: Any, targets: Any, temperature: float, _: int, cap: Any, scale: float, also: Any
    ) -> tuple[Any, ...]:
        """Return the log-probability of each target, and the other requested values, in the kernel's order."""
        import torch

        logits = torch.nn.functional.linear(hidden, weight, bias).float() * scale
        logits = (torch.tanh(logits / cap) * cap if cap else logits) / temperature
        every: Any = logits.log_softmax(-1)
        others: dict[str, Callable[[], Any]] = {
            "entropy": lambda: -(every.exp() * every).sum(-1),
            "log_sum_sq_probs": lambda: (2 * every).logsumexp(-1),
            "mean_logits": lambda: logits.mean(-1),
            "is_top1": lambda: logits.argmax(-1) == targets,
        }
        chosen = every.gather(-1, targets[:, None])[:, 0]
        return (chosen, *(value() if name in also else None for name, value in others.items()))


def _give_kernel(utils: ModuleType) -> None:
    if hasattr(utils, "_ChunkedLogProbFunction"):  # None without Triton; with Triton, for a GPU only
        setattr(utils, "_ChunkedLogProbFunction", LogProbabilities)  # noqa: B010


def _let_read(trainer: ModuleType) -> None:
    """Let TRL read the name `wandb`: only the script gets this package, after TRL has looked for it."""
    vars(trainer).setdefault("wandb", SimpleNamespace(run=None))


def unpack_prompts(original: Any, self: Any, *args: Any, **given: Any) -> Any:
    """Let `generate` accept as its `input_ids` what `apply_chat_template` returns since transformers 5.

    Unsloth unpacks it on a GPU, and on its CPU backend (unsloth/models/llama.py, unsloth_zoo/cpu/loader.py).
    """
    if type(given.get("input_ids")).__name__ == "BatchEncoding":
        given = {**given.pop("input_ids"), **given}
    return original(self, *args, **given)


def _ask_for_no_package(original: Any, self: Any) -> None:
    """Let transformers 4 make a configuration of bitsandbytes without that package: no weights are quantised here."""
    with contextlib.suppress(PackageNotFoundError):  # it asks for the version last
        original(self)


def lay() -> None:
    """Install these hooks once the libraries have been imported; the stand-in for Unsloth installs `unpack_prompts`."""
    wrap("transformers.utils.quantization_config", "BitsAndBytesConfig.post_init", _ask_for_no_package)
    after_import("trl.trainer.utils", _give_kernel)
    for name in ("base", "sft", "grpo", "dpo", "orpo", "kto", "reward"):
        after_import(f"trl.trainer.{name}_trainer", _let_read)
