"""Train notebooks of every kind of GRPO on one and two GPUs: `python -m benchmarks.grpo {write,run} FOLDER`.

`write` converts the notebooks of `grpo_cases.py` and of `once_more.py` into FOLDER/scripts; it needs no GPU. `run` runs
jobs such as `engine-1B/2` (a case and its number of processes) there and adds what was seen to FOLDER/grpo.json:

- the seconds of each step and of its parts (`benchmarks/grpo_phases.py`), peak memory, losses and rewards;
- a hash of each process's adapter, and the prompts and completions that each process had;
- the exit code, what a job that failed said, and the processes that were still there when the job had ended.

Jobs share the GPUs, as many as fit. Those of `--timed` start beside them, wait after two steps, and go on alone, one
after another, when the others have ended; what the GPUs do meanwhile goes to FOLDER/gpus.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from benchmarks import grpo_cases, once_more
from benchmarks.gpu import schedule
from benchmarks.gpu.processes import running, stop
from benchmarks.grpo_cases import CASES, STARTS, Case, Start
from benchmarks.once_more import TWO_GPUS_IN_ONE_PROCESS

ROOT = Path(__file__).resolve().parents[1]
SITES = (ROOT / "benchmarks" / "gpu" / "site", ROOT / "tests" / "e2e" / "site", ROOT / "benchmarks")
PORTS = itertools.count(21000)
OLDER = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.9.0\n"
#: Takes the memory of the first GPU that it sees, but for so many GiB, and holds it.
TAKE = "import sys, time, torch; free = torch.cuda.mem_get_info()[0] - (int(sys.argv[1]) << 30); "
TAKE += "kept = torch.empty(free, dtype=torch.uint8, device='cuda'); print('taken', flush=True); time.sleep(3600)"


class Bench:
    """What all jobs share: the folder, how they are shared out, and when time is over."""

    def __init__(self, folder: Path, seconds: float, within: float, reserved: float) -> None:
        self.folder, self.seconds, self.last = folder, seconds, time.monotonic() + within
        self.deadline = self.last - reserved  # for jobs that are not timed
        self.lock, self.begun = threading.Lock(), time.time()

    @property
    def patience(self) -> float:
        """Seconds that a job may take now."""
        return max(min(self.seconds, self.deadline - time.monotonic()), 1)

    def keep(self, found: dict[str, Any]) -> None:
        """Add a job's result to FOLDER/grpo.json, and say it."""
        file = self.folder / "grpo.json"
        with self.lock:
            results = json.loads(file.read_text()) if file.exists() else {}
            results[found["job"]] = found
            file.write_text(json.dumps(results, indent=1, default=str) + "\n")
            hashes = [[each["weights"][-1:] for each in rank] for rank in found["ranks"]]
            steps = [[len(each["steps"]) for each in rank] for rank in found["ranks"]]
            said = f"{found['job']} code {found['code']} {found['seconds']} s, steps {steps}, adapters {hashes}"
            print(f"{time.time() - self.begun:.0f} s:", said, found["left"], *found["said"][-700:].splitlines()[-7:])
            sys.stdout.flush()

    def do(self, job: str, devices: list[str], gate: Path | None = None) -> bool:
        """Run a job and keep its result; True where it ended well."""
        name, _, processes = job.partition("/")
        earlier = self.folder / "runs" / f"checkpoint-{processes}" / "work" if name == "resumed" else None
        seconds = self.patience if gate is None else max(self.last - time.monotonic(), 1)
        found = run(self.folder, job, devices, seconds, earlier, gate)
        self.keep(found)
        return not found["code"]

    def task(self, job: str) -> schedule.Task:
        """The task that runs a job; a resumed training waits for the one that left its checkpoint."""
        name, _, processes = job.partition("/")
        needs = frozenset({f"checkpoint/{processes}"}) if name == "resumed" else frozenset[str]()
        makes = job if name == "checkpoint" else ""
        gpus = int(processes) + (name in TWO_GPUS_IN_ONE_PROCESS or CASES.get(name, Case()).server > 0)
        return schedule.Task(lambda devices: self.do(job, sorted(devices)), gpus, needs, makes, 40)


def free_port() -> int:
    """A port that no other job gets, below those that the system gives out by itself."""
    while True:
        port = next(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def command(script: Path, processes: str, port: int, devices: list[str]) -> list[str]:
    """The command that trains a script; accelerate starts one process on CPU."""
    if processes == "1":
        return [sys.executable, str(script)]
    if devices[0] == "cpu0":
        start = ["-m", "torch.distributed.run", f"--nproc_per_node={processes}", f"--master_port={port}"]
        return [sys.executable, *start, str(script)]
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", f"--num_processes={processes}"]
    launch += ["--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no", f"--main_process_port={port}"]
    return [*launch, str(script)]


def environment(folder: Path, name: str, logs: Path, devices: list[str], gate: Path | None) -> dict[str, str]:
    """The environment of a job, with what is wrong in it where it must fail."""
    start = STARTS.get(name) or Start(CASES.get(name, Case()))
    path = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if start.without:
        path = [part for part in path if start.without not in part]
    if start.older:
        about = folder / "older" / "vllm-0.9.0.dist-info"
        about.mkdir(parents=True, exist_ok=True)
        (about / "METADATA").write_text(OLDER)
        path.insert(0, str(about.parent))
    return {
        **os.environ,
        "UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE": "1",  # an engine in standby takes no more than the case says
        "PYTHONFAULTHANDLER": "1",
        **start.environment,
        "CUDA_VISIBLE_DEVICES": ",".join(devices),
        "PYTHONPATH": os.pathsep.join([*map(str, SITES), *path]),
        "BENCH_FOLDER": str(logs),
        "BENCH_CACHE": str(start.case.cache << 30),
        **({"BENCH_GATE": str(gate)} if gate else {}),
    }


@contextmanager
def server(case: Case, device: str, work: Path, mark: str) -> Iterator[None]:
    """A vLLM server on one GPU while a job runs, started by `trl vllm-serve`, which says what it does in server.log."""
    words = [
        "--model",
        f"bench/{case.model}",
        "--port",
        str(case.server),
        "--gpu_memory_utilization",
        "0.1",
        "--max_model_len",
        "1024",
    ]
    words = [sys.executable, "-m", "trl.scripts.vllm_serve", *words, "--kv-cache-memory-bytes", str(1 << 30)]
    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": device, "BENCH_RUN": mark}
    with (work / "server.log").open("w") as log:
        serves = subprocess.Popen(words, cwd=work, env=variables, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            serves.terminate()
            with suppress(subprocess.TimeoutExpired):
                serves.wait(20)


@contextmanager
def surroundings(name: str, devices: list[str]) -> Iterator[int]:
    """Take memory of the last GPU, or the port, where a start must fail for that; the port of the job."""
    start = STARTS.get(name, Start(Case()))
    taker = None
    if start.spared:
        seen = {**os.environ, "CUDA_VISIBLE_DEVICES": devices[-1]}
        taker = subprocess.Popen([sys.executable, "-c", TAKE, str(start.spared)], env=seen, stdout=subprocess.PIPE)
        assert taker.stdout
        taker.stdout.readline()
    with socket.socket() as held:
        held.bind(("0.0.0.0", 0))
        if start.port_in_use:
            held.listen()
        try:
            yield held.getsockname()[1] if start.port_in_use else free_port()
        finally:
            if taker:
                taker.kill()
                taker.wait()


def run(
    folder: Path, job: str, devices: list[str], seconds: float, work: Path | None = None, gate: Path | None = None
) -> dict[str, Any]:
    """Run a job on some GPUs, for so many seconds at most.

    Args:
        folder: where the scripts and the models (`hub`) are.
        job: a case and its number of processes, such as `engine-1B/2`.
        devices: the GPUs.
        seconds: after which the job is ended.
        work: an earlier job's folder to go on in; None for a new one.
        gate: a folder in which a file "go" lets the job go on after its first steps.
    """
    name, _, processes = job.partition("/")
    case = CASES.get(name, Case())
    logs = folder / "runs" / job.replace("/", "-")
    work = work or logs / "work"
    work.mkdir(parents=True, exist_ok=True)
    logs.mkdir(parents=True, exist_ok=True)
    if not (work / "bench").exists():
        (work / "bench").symlink_to(folder / "hub" / "bench")
    mark = f"BENCH_RUN={uuid.uuid4().hex}"
    start, number = time.monotonic(), mark.partition("=")[2]
    serving = server(case, devices[-1], work, number) if case.server else nullcontext()
    seen_by_job = devices[:-1] if case.server else devices
    variables = environment(folder, name, logs, seen_by_job, gate) | {"BENCH_RUN": number}
    with serving, surroundings(name, devices) as port, (logs / "log").open("w") as log:
        words = command(folder / "scripts" / f"{name}.py", processes, port, devices)
        ran = subprocess.Popen(words, cwd=work, env=variables, stdout=log, stderr=subprocess.STDOUT)
        try:
            code = ran.wait(seconds)
        except subprocess.TimeoutExpired:
            stop(mark)
            code = ran.wait()
        took = time.monotonic() - start
    time.sleep(1)
    remaining = list(running(mark).values())
    if remaining:
        stop(mark)
    said = (logs / "log").read_text(errors="replace") if code or name in STARTS else ""
    ended = "in time" if took < seconds else "ended by us"
    facts = {"job": job, "gpus": devices, "code": code, "seconds": round(took, 1), "ended": ended, "left": remaining}
    served = logs / "server.json"
    facts |= {"served": json.loads(served.read_text())} if served.exists() else {}
    return {**facts, "ranks": seen(logs), "said": said[-9000:]}


def seen(logs: Path) -> list[list[dict[str, Any]]]:
    """What each process wrote down of each training: its steps, its weights, and the parts of each GRPO step."""
    ranks = []
    for file in sorted(logs.glob("[0-9].jsonl")):
        events = [json.loads(line) for line in file.read_text().splitlines()]
        begun = [place for place, event in enumerate(events) if event["event"] == "begin"]
        trainings = [events[at:until] for at, until in zip(begun, [*begun[1:], None], strict=False)]
        phases = logs / f"{file.stem}.phases.jsonl"
        parts = map(json.loads, phases.read_text().splitlines() if phases.exists() else ())
        is_grpo = [any("reward" in event for event in each) for each in trainings]
        ranks.append([training(each, next(parts, []) if is_grpo[n] else []) for n, each in enumerate(trainings)])
    return ranks


def training(events: list[dict[str, Any]], parts: list[dict[str, Any]]) -> dict[str, Any]:
    """One training of one process."""
    begin, ends = events[0], [event for event in events if event["event"] == "end"]
    return {
        "batch": (begin["per_device"], begin["accumulation"]),
        "done": begin["done"],
        "steps": [{k: v for k, v in event.items() if k != "event"} for event in events if event["event"] == "step"],
        "weights": [event["weights"] for event in [begin, *ends]],
        "memory": ends[0]["reserved"] if ends else None,
        "by_gpu": ends[0]["by_gpu"] if ends else None,
        "parts": parts,
    }


class Timed:
    """Jobs that train alone: started with the others, each wave opened when the one before has ended."""

    def __init__(self, bench: Bench, waves: list[str]) -> None:
        self.bench = bench
        self.waves = [[self.begin(one) for one in wave.split("+")] for wave in waves]

    def begin(self, one: str) -> tuple[Path, int, threading.Thread]:
        """Start a job up to its gate."""
        job, _, device = one.partition("@")
        gate, processes = self.bench.folder / "gates" / job.replace("/", "-"), int(job.rpartition("/")[2])
        gate.mkdir(parents=True)
        devices = [device] if device else [str(number) for number in range(processes)]
        thread = threading.Thread(target=self.bench.do, args=(job, devices, gate))
        thread.start()
        return gate, processes, thread

    def open(self) -> None:
        """Let the waves go on, one after another."""
        jobs = [job for wave in self.waves for job in wave]
        while time.monotonic() < self.bench.last and not all(map(self.is_ready, jobs)):
            time.sleep(0.2)
        for wave in self.waves:
            print(f"{time.time() - self.bench.begun:.0f} s: open", *(gate.name for gate, _, _ in wave), flush=True)
            for gate, _, _ in wave:
                (gate / "go").touch()
            for _, _, thread in wave:
                thread.join()

    @staticmethod
    def is_ready(job: tuple[Path, int, threading.Thread]) -> bool:
        """True for a job that waits at its gate, or has ended."""
        gate, processes, thread = job
        return not thread.is_alive() or len(list(gate.glob("ready-*"))) == processes


def follow_gpus(file: Path, ended: threading.Event) -> None:
    """Write down every tenth of a second the MiB in use on each GPU, and the percent of time that it computes."""
    import pynvml

    pynvml.nvmlInit()
    gpus = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
    found: list[tuple[float, list[int], list[int]]] = []
    while not ended.wait(0.1):
        used = [pynvml.nvmlDeviceGetMemoryInfo(gpu).used >> 20 for gpu in gpus]
        busy = [pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu for gpu in gpus]
        found.append((round(time.time(), 2), used, busy))
    file.write_text(json.dumps(found) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grpo", description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("write", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("jobs", nargs="*", help="CASE/PROCESSES")
    parser.add_argument("--timed", nargs="+", default=[], help="CASE/PROCESSES[@GPU][+...]: those joined by + at once")
    parser.add_argument("--timed-after", type=float, default=0, help="seconds after which those are started")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="run on CPU instead, in up to eight processes at once")
    parser.add_argument("--share", type=int, default=8, help="processes that share a GPU")
    parser.add_argument("--seconds", type=float, default=200, help="for each job")
    parser.add_argument("--reserved", type=float, default=0, help="seconds of these that are the timed jobs'")
    parser.add_argument("--within", type=float, default=1e9, help="seconds in which all must be over")
    options = parser.parse_args()
    folder = options.folder.resolve()
    if options.action == "write":
        grpo_cases.write(folder / "scripts")
        once_more.write(folder / "scripts")
        return
    bench, ended = Bench(folder, options.seconds, options.within, options.reserved), threading.Event()
    follower = threading.Thread(target=follow_gpus, args=(folder / "gpus.json", ended))
    timed: list[Timed] = []
    delay = threading.Timer(options.timed_after, lambda: timed.append(Timed(bench, options.timed)))
    if options.timed:
        follower.start()
        delay.start()
    devices = [f"cpu{n}" for n in range(8)] if options.cpu else [str(n) for n in range(options.gpus)] * options.share
    schedule.run([bench.task(job) for job in options.jobs], devices, options.within - options.reserved)
    if options.timed:
        delay.join()
        timed[0].open()
        ended.set()
        follower.join()


if __name__ == "__main__":
    main()
