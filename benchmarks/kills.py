"""Kill a small training at random moments, and start it again: `python -m benchmarks.kills [--processes 2] [--write]`.

The training saves itself after every step. Each start is a fork of this process, which has imported all packages, for
each process of the job. One of them gets SIGKILL after a random time, until the training has reached its end; then
another training begins. What must hold: every training ends, with the losses of one that nobody killed; the next start
resumes from the newest whole checkpoint of the last or a newer one; the other processes, told to end as torchrun tells
them, end.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed

from nb2ddp.rehearsal.run import free_port, launched
from nb2ddp.runtime import process, resume

RESULTS = Path(__file__).parent / "results" / "kills.json"
STEPS = 24
_SECONDS = 600  # that a start may take before it counts as one that hangs
_GRACE = 30  # seconds in which the other processes must end; torchrun kills them then


@dataclass(frozen=True)
class Kill:
    """One kill.

    Attributes:
        after: seconds from the start.
        where: `before` the first step of this start, in a `step`, or in a `save`.
        kept: the step of the newest whole checkpoint.
        ended: seconds after which no process of the start was left.
        resumed: the step that the next start went on from.
    """

    after: float
    where: str
    kept: int
    ended: float
    resumed: int = 0


def train(folder: Path) -> None:
    """One start of the training, in this process."""

    class Losses(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: object, state: object, control: object, **_: object) -> None:
            note({"resumed": state.global_step})  # type: ignore[attr-defined]

        def on_log(self, args: object, state: object, control: object, logs: object = None, **_: object) -> None:
            if "loss" in logs:  # type: ignore[operator]
                note({"step": state.global_step, **logs})  # type: ignore[attr-defined, dict-item]

    def note(what: dict[str, float]) -> None:
        if os.environ.get("RANK", "0") != "0":
            return
        with (folder / "log.jsonl").open("a") as lines:
            lines.write(json.dumps(what) + "\n")

    set_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=128, attention_dropout=0.1, **sizes))
    rows = [[random.Random(n).randrange(128) for _ in range(16)] for n in range(40)]
    args = TrainingArguments(
        output_dir=str(folder / "outputs"), per_device_train_batch_size=1,
        gradient_accumulation_steps=4 // process.world_size,
        max_steps=STEPS, logging_steps=1, learning_rate=1e-2, report_to="none", save_strategy="no", use_cpu=True,
        disable_tqdm=True,
    )  # fmt: skip
    data = Dataset.from_dict({"input_ids": rows, "labels": rows})
    trainer = Trainer(model, args, train_dataset=data, callbacks=[Losses()])
    trainer.train(resume_from_checkpoint=resume.last_checkpoint(trainer, minutes=0))


def started(folder: Path, processes: int) -> list[int]:
    """A start of the training in processes of its own; their ids."""
    folder.mkdir(exist_ok=True)
    port = free_port()
    jobs = []
    for rank in range(processes):
        child = os.fork()
        if child:
            jobs.append(child)
            continue
        with (folder / "printed.txt").open("ab") as printed:
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
        try:
            os.environ.update(
                launched(rank, processes, port, folder)
                | {"GLOO_SOCKET_IFNAME": "lo", "TORCHELASTIC_USE_AGENT_STORE": "False"}
            )
            importlib.reload(process)
            importlib.reload(resume)
            train(folder)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            os._exit(1)
        os._exit(0)
    return jobs


def codes(jobs: list[int], seconds: float) -> dict[int, int]:
    """Wait so long for processes; how those that have ended did."""
    deadline, found = time.monotonic() + seconds, dict[int, int]()
    while len(found) < len(jobs) and time.monotonic() < deadline:
        for job in set(jobs) - found.keys():
            child, status = os.waitpid(job, os.WNOHANG)
            if child:
                found[child] = status
        time.sleep(0.002)
    return found


def ended(jobs: list[int], seconds: float) -> bool:
    """Wait so long for a start; True where it has ended well.

    Raises:
        ChildProcessError: a process failed.
    """
    found = codes(jobs, seconds)
    if any(found.values()):
        raise ChildProcessError(f"a start ended with {found}")
    if found and len(found) < len(jobs):  # the others are at their end, too
        return ended([job for job in jobs if job not in found], _GRACE)
    return bool(found)


def noted(folder: Path) -> list[dict[str, float]]:
    """What the starts of a training have noted; a line that a kill cut off is left out."""
    lines = (folder / "log.jsonl").read_text().split("\n") if (folder / "log.jsonl").exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def kill(folder: Path, jobs: list[int], which: int, after: float, before: int) -> Kill:
    """End one process of a start with SIGKILL, and see what it left.

    Args:
        folder: the training's.
        jobs: the start.
        which: of its processes.
        after: seconds since it began.
        before: how much was noted when it began.

    Raises:
        ChildProcessError: a process is left.
    """
    begun = time.monotonic()
    os.kill(jobs[which], signal.SIGKILL)
    for other in set(jobs) - {jobs[which]}:  # as torchrun does
        os.kill(other, signal.SIGTERM)
    left = set(jobs) - codes(jobs, _GRACE).keys()
    seconds = time.monotonic() - begun
    for job in left:
        os.kill(job, signal.SIGKILL)
    if left:
        raise ChildProcessError(f"{len(left)} of {len(jobs)} processes are left {_GRACE} seconds after the kill")
    saved = resume.checkpoints(str(folder / "outputs"))
    whole = [int(path.name.rpartition("-")[2]) for path, written in saved if "files" in written]
    steps = [each for each in noted(folder)[before:] if "step" in each]
    where = "save" if len(whole) < len(saved) else "step" if steps else "before"
    return Kill(after, where, max(whole, default=0), round(seconds, 3))


def kills(number: int, seed: int, processes: int, folder: Path) -> Iterator[Kill]:
    """Train until so many starts were killed; the trainings of `folder` are numbered."""
    draw, training = random.Random(seed), 0
    whole = folder / "whole"
    begun = time.monotonic()
    assert ended(started(whole, processes), _SECONDS)
    length = time.monotonic() - begun
    expected = losses(whole)
    done, last = 0, None
    while done < number or last is not None:
        home = folder / str(training)
        before = len(noted(home))
        jobs = started(home, processes)
        after = draw.uniform(0, length) if done < number else _SECONDS
        has_ended = ended(jobs, after)
        new = None if has_ended else kill(home, jobs, draw.randrange(processes), after, before)
        resumed = next((int(each["resumed"]) for each in noted(home)[before:] if "resumed" in each), None)
        if last is not None:  # without `resumed` it was killed again before its training began
            resumed = last.kept if resumed is None else resumed
            assert resumed >= last.kept, f"went back from step {last.kept} to {resumed}"
            yield replace(last, resumed=resumed)
        if has_ended:
            assert losses(home) == expected, f"{home}: other losses"
            training += 1
        last, done = new, done + (new is not None)


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
    parser.add_argument("--processes", type=int, default=1, choices=(1, 2, 4))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write results/kills.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load = (
        torch.load
    )  # which does not know "cpu:0", where transformers loads the optimizer of several processes on CPUs
    torch.load = lambda *args, map_location=None, **given: load(*args, map_location="cpu", **given)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = list(kills(options.kills, options.seed, options.processes, Path(folder)))
        trainings = len([path for path in Path(folder).iterdir() if path.name.isdigit()])
    where = {name: sum(each.where == name for each in found) for name in ("before", "step", "save")}
    told = {"kills": len(found), "processes": options.processes, "trainings": trainings, "steps": STEPS}
    told |= {"seed": options.seed, "seconds": round(time.monotonic() - begun), "where": where}
    told["longest_end"] = max(each.ended for each in found)
    print(json.dumps(told))
    if options.write:
        runs = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        runs[str(options.processes)] = {**told, "each": [asdict(each) for each in found]}
        RESULTS.write_text(json.dumps(dict(sorted(runs.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
