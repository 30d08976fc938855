"""Kill a small training at random moments, and start it again: `python -m benchmarks.kills [--kills 100] [--write]`.

The training saves itself after every step. Each start is a fork of this process, which has imported all packages, and
gets SIGKILL after a random time, until the training has reached its end; then another one begins. What must hold: every
training ends, with the losses of one that nobody killed; no whole checkpoint is lost; no process is left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "kills.json"
STEPS = 24
_SECONDS = 600  # that a start may take before it counts as one that hangs


@dataclass(frozen=True)
class Kill:
    """One kill.

    Attributes:
        after: seconds from the start.
        where: `before` the first step of this start, in a `step`, or in a `save`.
        kept: the step of the newest whole checkpoint.
        resumed: the step that the next start went on from.
    """

    after: float
    where: str
    kept: int
    resumed: int = 0


def train(folder: Path) -> None:
    """One start of the training, in this process."""
    from datasets import Dataset
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed

    from nb2ddp.runtime.resume import last_checkpoint

    class Losses(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: object, state: object, control: object, **_: object) -> None:
            note({"resumed": state.global_step})  # type: ignore[attr-defined]

        def on_log(self, args: object, state: object, control: object, logs: object = None, **_: object) -> None:
            if "loss" in logs:  # type: ignore[operator]
                note({"step": state.global_step, **logs})  # type: ignore[attr-defined, dict-item]

    def note(what: dict[str, float]) -> None:
        with (folder / "log.jsonl").open("a") as lines:
            lines.write(json.dumps(what) + "\n")

    set_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=128, attention_dropout=0.1, **sizes))
    rows = [[random.Random(n).randrange(128) for _ in range(16)] for n in range(40)]
    args = TrainingArguments(
        output_dir=str(folder / "outputs"), per_device_train_batch_size=2, gradient_accumulation_steps=2,
        max_steps=STEPS, logging_steps=1, learning_rate=1e-2, report_to="none", save_strategy="no", use_cpu=True,
        disable_tqdm=True,
    )  # fmt: skip
    data = Dataset.from_dict({"input_ids": rows, "labels": rows})
    trainer = Trainer(model, args, train_dataset=data, callbacks=[Losses()])
    trainer.train(resume_from_checkpoint=last_checkpoint(trainer, minutes=0))


def started(folder: Path) -> int:
    """A start of the training in a process of its own; its id."""
    folder.mkdir(exist_ok=True)
    child = os.fork()
    with suppress(OSError):
        os.setpgid(child, child)  # in both, as either may be the first
    if child:
        return child
    with (folder / "printed.txt").open("ab") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    try:
        train(folder)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(1)
    os._exit(0)


def ended(child: int, seconds: float) -> bool:
    """Wait so long for a process; True where it has ended well.

    Raises:
        ChildProcessError: it failed.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found and status:
            raise ChildProcessError(f"a start ended with status {status}")
        if found:
            return True
        time.sleep(0.002)
    return False


def noted(folder: Path) -> list[dict[str, float]]:
    """What the starts of a training have noted; a line that a kill cut off is left out."""
    lines = (folder / "log.jsonl").read_text().split("\n") if (folder / "log.jsonl").exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def kill(folder: Path, child: int, after: float, before: int) -> Kill:
    """End a start with SIGKILL, and see what it left.

    Args:
        folder: the training's.
        child: the start.
        after: seconds since it began.
        before: how much was noted when it began.
    """
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    checkpoints = {int(path.name.rpartition("-")[2]): path for path in (folder / "outputs").glob("checkpoint-*")}
    whole = [step for step, path in checkpoints.items() if (path / "whole.json").exists()]
    steps = [each for each in noted(folder)[before:] if "step" in each]
    where = "save" if len(whole) < len(checkpoints) else "step" if steps else "before"
    return Kill(after, where, max(whole, default=0))


def kills(number: int, seed: int, folder: Path) -> Iterator[Kill]:
    """Train until so many starts were killed; the trainings of `folder` are numbered."""
    draw, training = random.Random(seed), 0
    whole = folder / "whole"
    begun = time.monotonic()
    assert ended(started(whole), _SECONDS)
    length = time.monotonic() - begun
    expected = losses(whole)
    done, last = 0, None
    while done < number or last is not None:
        home = folder / str(training)
        before = len(noted(home))
        child = started(home)
        after = draw.uniform(0, length) if done < number else _SECONDS
        has_ended = ended(child, after)
        resumed = next((int(each["resumed"]) for each in noted(home)[before:] if "resumed" in each), None)
        if last is not None and resumed is not None:
            assert resumed >= last.kept, f"went back from step {last.kept} to {resumed}"
            yield Kill(**{**asdict(last), "resumed": resumed})
            last = None
        elif last is not None:
            yield Kill(**{**asdict(last), "resumed": last.kept})  # killed again before its training began
            last = None
        if has_ended:
            assert losses(home) == expected, f"{home}: other losses"
            training += 1
        else:
            last, done = kill(home, child, after, before), done + 1


def losses(folder: Path) -> dict[int, tuple[float, float]]:
    """The loss and the learning rate of every step.

    Raises:
        ValueError: a step that was trained twice had another loss the second time.
    """
    found: dict[int, tuple[float, float]] = {}
    for each in noted(folder):
        if "step" in each:
            values = each["loss"], each["learning_rate"]
            if found.setdefault(int(each["step"]), values) != values:
                raise ValueError(f"{folder}: step {each['step']} has two losses")
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write results/kills.json")
    options = parser.parse_args()
    import torch
    from datasets import Dataset  # noqa: F401 - forks then have it
    from transformers import LlamaForCausalLM, Trainer  # noqa: F401

    import nb2ddp.runtime.resume  # noqa: F401

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = list(kills(options.kills, options.seed, Path(folder)))
        trainings = len([path for path in Path(folder).iterdir() if path.name.isdigit()])
    where = {name: sum(each.where == name for each in found) for name in ("before", "step", "save")}
    told = {"kills": len(found), "trainings": trainings, "steps": STEPS, "seed": options.seed, "where": where}
    print(json.dumps(told))
    if options.write:
        RESULTS.write_text(json.dumps({**told, "each": [asdict(each) for each in found]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
