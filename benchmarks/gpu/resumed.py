"""Trainings that are ended twice, beside whole ones.

    python -m benchmarks.gpu.resumed --scripts FOLDER --convert    # where nb2ddp is installed
    python -m benchmarks.gpu.resumed --scripts FOLDER --work FOLDER --results FILE    # where the GPUs are

Each kind is converted with `--resume` and trained whole, whole once more, and ended: its last process gets SIGKILL, the
job is started again and gets SIGTERM, and is started a last time. What is compared: the losses of each step, as far as
two whole runs differ too, and the weights at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.gpu.processes import running, stop
from benchmarks.gpu.results import Facts, gpu_name, versions

STEPS = 12
ENDS = ((signal.SIGKILL, 4), (signal.SIGTERM, 8))  # what is sent after which step
SMALL = {"model_name": '"bench/Llama-1B"', "max_seq_length": "512"}
#: A kind: its notebook, the model that it trains, and what is set in the notebook.
TRAININGS: dict[str, tuple[str, str, dict[str, str]]] = {
    "4bit": ("sft", "Llama-1B", SMALL),
    "16bit": ("sft", "Llama-1B", SMALL | {"load_in_4bit": "False"}),
    "packing": ("sft", "Llama-1B", SMALL | {"packing": "True"}),
    "full": ("sft", "Llama-1B", SMALL | {"load_in_4bit": "False", "full_finetuning": "True", "learning_rate": "2e-5"}),
    "dpo": ("dpo", "Llama-small", {}),
    "grpo": ("grpo", "Llama-small", {}),
    "vision": ("vision", "Qwen2-VL", {}),
}


SITES = (Path(__file__).parent / "site", Path(__file__).parents[2] / "tests" / "e2e" / "site")


def convert(folder: Path) -> None:
    """Write the script of each kind; it saves after every step."""
    from benchmarks.gpu.scripts import changed
    from nb2ddp.convert import convert_source
    from nb2ddp.options import Options

    folder.mkdir(parents=True, exist_ok=True)
    for name, (notebook, _, settings) in TRAININGS.items():
        source = json.dumps(changed(notebook, settings | {"max_steps": str(STEPS)}))
        converted = convert_source(source, options=Options(resume=True, per_device_batch_size="notebook"))
        text = converted.files["train.py"]
        assert "minutes=10" in text
        (folder / f"{name}.py").write_text(text.replace("minutes=10", "minutes=0"))


def events_of(file: Path) -> list[list[Facts]]:
    """The events of each training that a process wrote down."""
    trainings: list[list[Facts]] = []
    for line in file.read_text().splitlines() if file.exists() else ():
        with suppress(ValueError):  # a line that is being written
            event = json.loads(line)
            if event["event"] == "begin":
                trainings.append([])
            trainings[-1].append(event)
    return trainings


def only(events: list[Facts], name: str) -> list[Facts]:
    return [event for event in events if event["event"] == name]


def wanted(events: list[Facts]) -> dict[int, list[float]]:
    """Of each step its loss, its gradient norm, and its reward where there is one."""
    names = ("loss", "grad_norm", "reward")
    return {each["step"]: [each[name] for name in names if name in each] for each in only(events, "step")}


def started(folder: Path, hub: Path, gpus: int, end: tuple[signal.Signals, int] | None) -> Facts:
    """Start the script of a folder once more, and end it where that is asked for."""
    mark, logs = uuid.uuid4().hex, folder / "events"
    logs.mkdir(exist_ok=True)
    done = len(events_of(logs / "0.jsonl"))
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={gpus}"]
    words = [sys.executable, *(launcher if gpus > 1 else []), "train.py"]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*map(str, SITES), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(gpus))),
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hf"),
        "OMP_NUM_THREADS": "4",
        "BENCH_FOLDER": str(logs),
        "BENCH_RUN": mark,
    }
    begun, sent = time.time(), ""
    with (folder / "log.txt").open("a") as log:
        job = subprocess.Popen(words, cwd=folder / "work", env=env, stdout=log, stderr=subprocess.STDOUT)
        while job.poll() is None and time.time() - begun < 280:
            training = events_of(logs / "0.jsonl")[done:]
            if end and not sent and training and max(wanted(training[-1]), default=0) >= end[1]:
                number = end[0]
                os.kill(_last(f"BENCH_RUN={mark}", job.pid) if number == signal.SIGKILL else job.pid, number)
                sent = f"{number.name} after step {end[1]}"
            time.sleep(0.02)
        if job.poll() is None:
            stop(f"BENCH_RUN={mark}")
        code = job.wait()
    time.sleep(0.5)
    left = list(running(f"BENCH_RUN={mark}").values())
    if left:
        stop(f"BENCH_RUN={mark}")
    facts: Facts = {"sent": sent, "code": code, "seconds": round(time.time() - begun, 1), "left_running": left}
    by_rank = [events_of(logs / f"{rank}.jsonl")[done:] for rank in range(gpus)]
    if by_rank[0]:
        facts |= {
            "resumed_at": by_rank[0][-1][0]["done"],
            "steps": wanted(by_rank[0][-1]),
            "weights": [found["weights"] for each in by_rank if each for found in only(each[-1], "end")],
        }
    return facts


def _last(mark: str, alone: int) -> int:
    """The process of the last rank."""
    ranks = {}
    for process in running(mark):
        words = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        about = dict(word.split(b"=", 1) for word in words if b"=" in word)
        parent = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]
        if b"RANK" in about and not _has_rank(int(parent)):
            ranks[int(about[b"RANK"])] = process
    return ranks[max(ranks)] if ranks else alone


def _has_rank(process: int) -> bool:
    return b"\0RANK=" in b"\0" + Path(f"/proc/{process}/environ").read_bytes()


def measure(name: str, script: Path, gpus: int, hub: Path, work: Path) -> Facts:
    """Train one kind whole, whole again, and ended twice."""
    found: dict[str, Any] = {"gpus": gpus}
    for run, ends in (("whole", (None,)), ("again", (None,)), ("ended", (*ENDS, None))):
        folder = work / f"{name}-{gpus}-{run}"
        (folder / "work").mkdir(parents=True)
        shutil.copy2(script, folder / "work" / "train.py")
        (folder / "work" / "bench").symlink_to(hub / "bench")
        found[run] = [started(folder, hub, gpus, end) for end in ends]
        if found[run][-1]["code"]:
            found["said"] = (folder / "log.txt").read_text(errors="replace")[-4000:]
        found[f"{run}_said"] = [
            line for line in (folder / "log.txt").read_text(errors="replace").splitlines()
            if "resumes from" in line or "told to end" in line or "skipped" in line
        ]  # fmt: skip
    return found | compared(found)


def compared(found: dict[str, Any]) -> Facts:
    """The largest differences of losses: of two whole runs, and of the ended one and the first."""
    losses = {run: {step: each[0] for start in found[run] for step, each in start.get("steps", {}).items()}
              for run in ("whole", "again", "ended")}  # fmt: skip
    whole = losses["whole"]
    return {
        f"{run}_differs_by": max((abs(loss - whole.get(step, float("inf"))) for step, loss in losses[run].items()),
                                 default=None)
        for run in ("again", "ended")
    } | {"all_steps": sorted(losses["ended"]) == sorted(whole) == list(range(1, STEPS + 1))}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.resumed")
    parser.add_argument("--scripts", type=Path, required=True, help="folder of the converted scripts")
    parser.add_argument("--convert", action="store_true", help="write them, and stop")
    parser.add_argument("--work", type=Path, default=Path("resumed"), help="folder for models, data and runs")
    parser.add_argument("--results", type=Path, default=Path("resumed.json"), help="JSON file that is written")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", choices=TRAININGS, default=list(TRAININGS), metavar="KIND")
    options = parser.parse_args()
    if options.convert:
        convert(options.scripts)
        return 0
    scripts, work = options.scripts.resolve(), options.work.resolve()
    hub = work / "hub"
    for model in dict.fromkeys(["datasets", *(TRAININGS[name][1] for name in options.kinds)]):
        subprocess.run([sys.executable, "-m", "benchmarks.gpu.hub", str(hub), model], check=True)
    what = f"{STEPS} steps of each kind: whole, whole again, and ended twice and started again; of each step its loss,"
    found: dict[str, Any] = {
        "what": f"{what} gradient norm and reward",
        "command": f"python -m benchmarks.gpu.resumed --gpus {options.gpus} --kinds {' '.join(options.kinds)}",
        "gpu": gpu_name(),
        "versions": versions(),
        "kinds": {},
    }
    with ThreadPoolExecutor(4) as together:
        runs = {
            name: together.submit(measure, name, scripts / f"{name}.py", options.gpus, hub, work)
            for name in options.kinds
        }
        for name, run in runs.items():
            try:
                found["kinds"][name] = run.result()
            except Exception as error:
                found["kinds"][name] = {"error": f"{type(error).__name__}: {error}"}
            told = {key: value for key, value in found["kinds"][name].items() if "differs" in key or key == "all_steps"}
            print(name, told or found["kinds"][name].get("error"), flush=True)
            options.results.write_text(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
