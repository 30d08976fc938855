"""What accelerate, torch.distributed and trainers do in a process: meet the others, call what they are handed."""

from __future__ import annotations

import functools
import inspect
import os
import signal
from collections.abc import Callable
from typing import Any

from tests.imitation.data import Row, Table
from tests.imitation.process import Process
from tests.imitation.things import ANSWERS, CALLS, KINDS, Imitation, made

#: Given to each method of `transformers.TrainerCallback` that the notebook defines.
CALLBACK_EVENTS = (
    *("init_end", "train_begin", "epoch_begin", "step_begin", "substep_end", "pre_optimizer_step", "optimizer_step"),
    *("step_end", "prediction_step", "log", "evaluate", "predict", "save", "epoch_end", "train_end"),
)
#: What a model might answer: most extractions of the notebooks find something in it.
ANSWER = (
    "<think>Let me see.</think><reasoning>\nSix times seven.\n</reasoning>\n<answer>\n42\n</answer>"
    "<start_working_out>6 * 7<end_working_out><SOLUTION>42</SOLUTION>\n#### 42 \\boxed{42}\n"
    "```python\ndef strategy(board):\n    return 'W'\n```"
)


class State(Imitation):
    """`accelerate.PartialState` and `accelerate.Accelerator`."""

    rank = process_index = local_process_index = property(lambda self: self.process.rank)
    num_processes = property(lambda self: self.process.world if "WORLD_SIZE" in os.environ else 1)
    is_main_process = is_local_main_process = property(lambda self: self.process.rank == 0)
    is_last_process = property(lambda self: self.process.rank == self.process.world - 1)

    def wait_for_everyone(self) -> None:
        self.process.joint("wait_for_everyone")

    def destroy_process_group(self) -> None:
        self.process.joint("destroy_process_group")

    def main_process_first(self) -> Any:
        return MainFirst(self.process)

    local_main_process_first = main_process_first

    def on_main_process(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function if self.process.rank == 0 else lambda *args, **kwargs: None

    on_local_main_process = on_main_process


class MainFirst:
    """The main process goes through the block first."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def __enter__(self) -> None:
        if self.process.rank:
            self.process.joint("wait_for_everyone")

    def __exit__(self, *error: Any) -> None:
        if not self.process.rank:
            self.process.joint("wait_for_everyone")


class Trainer(Imitation):
    """Any trainer: trains by calling what it was handed, in every process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.__dict__.update(kwargs, _args=args, _callbacks=list(kwargs.get("callbacks") or ()))
        if hasattr(self, "reward_funcs") and "reward_funcs" in kwargs:
            self.process.seed(1000 + self.process.rank)  # as TRL: device_specific
            self.process.seeded.clear()

    def add_callback(self, callback: Any) -> None:
        self._callbacks.append(callback)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        self.process.joint("train", trainer=self.__dict__)
        self.use_callbacks()
        self.use_rewards()
        self.use_functions()
        self.process.shown_before = len(self.process.shown.getvalue())
        return made("trained")

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        self.process.joint("evaluate", trainer=self.__dict__)
        self.use_functions()
        return made("evaluated")

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        self.process.joint("predict", trainer=self.__dict__)
        return made("predicted")

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        """Trainers let one process save."""

    save_state = push_to_hub = save_metrics = log_metrics = save_model

    def use_callbacks(self) -> None:
        state = {"is_world_process_zero": self.process.rank == 0, "global_step": 10, "epoch": 1.0, "max_steps": 10}
        for callback in self._callbacks:
            callback = callback() if isinstance(callback, type) else callback
            for event in CALLBACK_EVENTS:
                if f"on_{event}" in {name for kind in type(callback).__mro__ for name in vars(kind)}:
                    getattr(callback, f"on_{event}")(
                        *(self.__dict__.get("args"), made("state", dict(state)), made("control")),
                        **{"model": made("model"), "logs": {"loss": 1.0}, "metrics": {"eval_loss": 1.0}},
                    )

    def some_rows(self) -> list[Any]:
        return list(Table.of(self.__dict__.get("train_dataset")))[:2] or [Row()]

    def use_rewards(self) -> None:
        rewards = self.__dict__.get("reward_funcs") or ()
        rows = self.some_rows()
        prompts = [row["prompt"] for row in rows for _ in range(2)]
        talks = isinstance(prompts[0], list)
        completions = [[{"role": "assistant", "content": ANSWER}] if talks else ANSWER for _ in prompts]
        for reward in rewards if isinstance(rewards, (list, tuple)) else [rewards]:
            if callable(reward) and not isinstance(reward, Imitation):
                names = {*rows[0], *(inspect.signature(reward).parameters if isinstance(rows[0], Row) else ())}
                names -= {"prompt", "prompts", "completions", "args", "kwargs", "_"}
                columns = {name: [row[name] for row in rows for _ in range(2)] for name in names}
                self.process.draws_alike(
                    getattr(reward, "__name__", type(reward).__name__),
                    inspect.unwrap(reward).__code__.co_firstlineno if inspect.isfunction(reward) else 0,
                    functools.partial(reward, prompts=prompts, completions=completions, **columns),
                )

    def use_functions(self) -> None:
        given = {"compute_metrics": 1, "preprocess_logits_for_metrics": 2, "formatting_func": 1, "data_collator": 1}
        for name, number in given.items():
            function = self.__dict__.get(name)
            if callable(function) and type(function) is not Imitation and not isinstance(function, Trainer):
                values = self.some_rows() if name == "data_collator" else made("eval_prediction")
                function(*[self.some_rows()[0] if name == "formatting_func" else values] * number)
        if "_imitates" not in vars(type(self)) and "compute_loss" in {n for k in type(self).__mro__ for n in vars(k)}:
            self.compute_loss(made("model"), made("inputs"))


def limited(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is stopped, as `unsloth.execute_with_time_limit` makes it."""

    def stop(*args: Any) -> None:
        raise TimeoutError("timed out")

    def call(*args: Any, **kwargs: Any) -> Any:
        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 2)
        try:
            return function(*args, **kwargs)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    return call


def broadcast(values: list[Any], *args: Any, **kwargs: Any) -> None:
    values[:] = Imitation.process.joint("broadcast_object_list", values)[0]


def gather(values: list[Any], *args: Any, **kwargs: Any) -> list[Any]:
    return [item for part in Imitation.process.joint("gather_object", values) for item in part]


for _name in "wait_for_everyone barrier destroy_process_group all_reduce broadcast reduce gather_for_metrics".split():
    ANSWERS[_name] = functools.partial(lambda name, process: process.joint(name)[0], _name)
KINDS |= {"PartialState": State, "Accelerator": State, "Trainer": Trainer}
CALLS |= {
    "gather_object": gather,
    "broadcast_object_list": broadcast,
    "set_seed": lambda seed, *args, **kwargs: Imitation.process.seed(seed),
    "execute_with_time_limit": lambda *args: limited,
    "unsloth_train": lambda trainer, *args: trainer.train(),
    "train_on_responses_only": lambda trainer, *args, **kwargs: trainer,
}
