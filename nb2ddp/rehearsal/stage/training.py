"""Shorten each training to a few steps, and record its rows, losses, gradient norms, weights and rewards."""

from __future__ import annotations

import hashlib
import json
import os
from functools import wraps
from types import ModuleType
from typing import Any

from . import events
from .device import train_here
from .hooks import after_import, attribute, wrap
from .log import Log
from .sampling import begin_step

_ROWS = 600  # of a data set, independent of the batch
#: Arguments that decide how long a training is, and how far each step goes.
_SCHEDULE = ("max_steps", "num_train_epochs", "learning_rate", "lr_scheduler_type", "warmup_steps", "warmup_ratio")


def digest(value: Any) -> str:
    """Return a short name for a value, the same in every process that has this value."""
    if hasattr(value, "tobytes") and not hasattr(value, "detach"):
        data = value.tobytes()
    elif hasattr(value, "detach"):
        data = value.detach().cpu().contiguous().view(-1).float().numpy().tobytes()
    else:
        data = json.dumps(
            value, default=lambda each: digest(each) if hasattr(each, "tobytes") else repr(type(each)), sort_keys=True
        ).encode()
    return hashlib.sha1(data).hexdigest()[:12]


def rows_of(batch: Any) -> list[str]:
    """Return a name for each row of a batch, with its labels after a colon; padding tokens do not count."""
    if isinstance(batch, (list, tuple)):
        return [digest(row) for row in batch]
    data = dict(batch) if hasattr(batch, "keys") else {}
    tensors = {key: value for key, value in data.items() if getattr(value, "ndim", 0) >= 1}
    name = next((key for key in tensors if key.endswith("input_ids")), next(iter(tensors), None))
    if name is None:
        return []
    values = tensors[name]
    mask = tensors.get(name.replace("input_ids", "attention_mask"))
    mask = None if mask is None or mask.shape != values.shape else mask.bool()
    names = [digest(row if mask is None else row[mask[number]]) for number, row in enumerate(values)]
    labels = tensors.get("labels", tensors.get("label"))
    if labels is None or len(labels) != len(names):
        return names
    if mask is not None and labels.shape == mask.shape:
        labels = [row[kept] for row, kept in zip(labels, mask, strict=True)]
    return [f"{name}:{digest(row[row != -100])}" for name, row in zip(names, labels, strict=True)]


def weights(model: Any) -> str:
    """Return a name for all the trained weights of a model."""
    total = hashlib.sha1()
    for name, weight in sorted(model.named_parameters()):
        if weight.requires_grad:
            total.update(name.replace("module.", "").encode() + digest(weight).encode())
    return total.hexdigest()[:12]


def _shorten(steps: int, log: Log, original: Any, self: Any) -> None:
    asked = self.max_steps
    schedule = {name: str(getattr(self, name, "")) for name in _SCHEDULE}
    self.max_steps = min(asked, steps) if asked > 0 else steps
    self.logging_steps, self.logging_first_step, self.report_to = 1, True, "none"
    self.logging_strategy, self.torch_compile, self.push_to_hub = "steps", False, False
    for every in ("save_steps", "eval_steps"):
        if getattr(self, every, None):
            setattr(self, every, min(getattr(self, every), steps))
    train_here(self)
    for name, most in (("max_completion_length", 32), ("dataset_num_proc", None)):
        if hasattr(self, name):
            setattr(self, name, most)
    if hasattr(self, "vllm_mode"):
        self.use_vllm = False
    original(self)
    log.write(events.Arguments(schedule, self.output_dir))


def _follow(trainer: ModuleType, log: Log) -> None:
    """Record what every trainer passes to its callbacks."""
    from transformers import TrainerCallback

    trainings = 0

    class Follower(TrainerCallback):  # type: ignore[misc]
        """Writes each event to the log."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            nonlocal trainings
            trainings += 1
            loader = given.get("train_dataloader")
            _prepare(given["model"], loader, args)
            log.write(_begin(loader, args))

        def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            log.write(events.Trained(weights(given["model"])))

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            begin_step(trainings, state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            log.write(events.Step())

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            log.write(events.Logged(state.global_step, _numbers(logs or {})))

    attribute(trainer, "DEFAULT_CALLBACKS").append(Follower)


def _begin(loader: Any, args: Any) -> events.Train:
    from transformers.trainer_utils import has_length

    rows: Any = getattr(loader, "dataset", None)
    each = getattr(args, "num_generations", None) or 1
    is_table = has_length(rows) and hasattr(rows, "with_format")
    return events.Train(
        epoch=len(rows) * each if has_length(rows) else None,  # accelerate's part of a stream has a __len__ that fails
        samples=args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size,
        grouped=bool(getattr(args, "group_by_length", False))
        or getattr(args, "train_sampling_strategy", "") == "group_by_length",
        rows=digest(rows.with_format("arrow")[:_ROWS].to_pylist()) if is_table else "",
    )


def _prepare(model: Any, loader: Any, args: Any) -> None:
    """Remove dropout from a model, and mark the loader of its training, whose rows are then recorded."""
    for module in model.modules():
        if type(module).__name__.startswith("Dropout"):
            module.p = 0.0
    if loader is not None:
        # GRPO reads the rows of a generation again for each part of it that it trains on.
        parts = getattr(args, "steps_per_generation", None) or 1
        loader.rehearsed = parts * (getattr(args, "num_iterations", None) or 1)


def _numbers(logs: dict[str, Any]) -> dict[str, float]:
    return {
        name: float(value) for name, value in logs.items() if isinstance(value, (int, float)) or hasattr(value, "item")
    }


def _follow_rows(log: Log, original: Any, self: Any) -> Any:
    """Record the rows that this process gets from the loader of a training, and from those of evaluations."""
    for number, batch in enumerate(original(self)):
        every = getattr(self, "rehearsed", 0)
        if every and number % every == 0:
            log.write(events.Rows(rows_of(batch)))
        elif not every and (isinstance(batch, list) or "attention_mask" in batch):  # its rows can be distinguished
            log.write(events.OtherRows(rows_of(batch)))
        yield batch


def _follow_rows_of_own(log: Log, original: Any, self: Any) -> Any:
    """Record the rows of a training with a loader of the script, which accelerate has not prepared."""
    return _follow_rows(log, original, self) if hasattr(self, "rehearsed") else original(self)


def _follow_rewards(log: Log, original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """Record what each reward returns for each completion."""

    def noted(reward: Any) -> Any:
        if not callable(reward) or hasattr(reward, "forward"):
            return reward

        @wraps(reward)
        def call(*args: Any, **kwargs: Any) -> Any:
            values = reward(*args, **kwargs)
            completions = kwargs.get("completions", args[1] if len(args) > 1 else [])
            prompts = kwargs.get("prompts", args[0] if args else [])
            keys = [digest([prompt, completion]) for prompt, completion in zip(prompts, completions, strict=False)]
            code = reward.__code__ if hasattr(reward, "__code__") else None
            line = code.co_firstlineno if code and code.co_filename == log.script else None
            log.write(events.Reward(call.__name__, keys, list(values or []), hasattr(reward, "__wrapped__"), line))
            return values

        return call

    if kwargs.get("reward_funcs") is not None:
        given = kwargs["reward_funcs"]
        kwargs["reward_funcs"] = list(map(noted, given)) if isinstance(given, (list, tuple)) else noted(given)
    original(self, *args, **kwargs)


def _few_rows(
    steps: int, original: Any, self: Any, dataset: Any, words: Any, args: Any, packing: bool, *rest: Any
) -> Any:
    """Prepare no more rows of a large data set than a few steps need."""
    batch = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
    most = max(_ROWS, 4 * steps * batch)
    if not packing and hasattr(dataset, "select") and len(dataset) > most:
        dataset = dataset.select(range(most))
    return original(self, dataset, words, args, packing, *rest)


def _work_alone(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Process few rows in this process alone: starting others takes longer."""
    return original(*args, **kwargs | {"num_proc": None})


def _begin_anew(
    log: Log, original: Any, self: Any, resume_from_checkpoint: Any = None, *args: Any, **given: Any
) -> Any:
    """Start a training from the beginning if it should resume from a checkpoint that does not exist."""
    asked: Any = resume_from_checkpoint
    if asked is True:
        asked = _last_checkpoint(self.args.output_dir)
    if resume_from_checkpoint and not os.path.exists(asked):
        log.write(events.StandIn("a checkpoint that is not there"))
        resume_from_checkpoint = None
    return original(self, resume_from_checkpoint, *args, **given)


def _note_precision(log: Log, recorded: set[float], original: Any, self: Any, *args: Any, **given: Any) -> Any:
    """Record the precision of a loss, unless it is in `recorded`: the relative distance of two numbers of its type."""
    import torch

    loss = original(self, *args, **given)
    finest = torch.finfo(loss.dtype).eps
    if finest not in recorded:
        log.write(events.Precision(finest))
        recorded.add(finest)
    return loss


def _last_checkpoint(folder: str) -> str:
    """Return the last checkpoint in a folder, or ""."""
    from transformers.trainer_utils import get_last_checkpoint

    return (get_last_checkpoint(folder) if os.path.isdir(folder) else None) or ""


def lay(log: Log, steps: int) -> None:
    """Install these hooks once the libraries have been imported."""
    for name in ("map", "filter"):
        wrap("datasets.arrow_dataset", f"Dataset.{name}", _work_alone)
    wrap("trl.trainer.sft_trainer", "SFTTrainer._prepare_dataset", _few_rows, steps)
    wrap("transformers.training_args", "TrainingArguments.__post_init__", _shorten, steps, log)
    wrap("transformers.trainer", "Trainer.train", _begin_anew, log)
    wrap("transformers.trainer", "Trainer.training_step", _note_precision, log, set())
    after_import("transformers.trainer", lambda module: _follow(module, log))
    for name in ("DataLoaderShard", "DataLoaderDispatcher"):
        wrap("accelerate.data_loader", f"{name}.__iter__", _follow_rows, log)
    wrap("torch.utils.data.dataloader", "DataLoader.__iter__", _follow_rows_of_own, log)
    wrap("trl.trainer.grpo_trainer", "GRPOTrainer.__init__", _follow_rewards, log)
