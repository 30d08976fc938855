"""Runs side by side on one machine, each timed alone: the notebook's split of a batch beside the one for the GPU.

    python -m benchmarks.gpu.side_by_side write FOLDER --runs kinds          # needs nb2ddp; no GPU
    python -m benchmarks.gpu.side_by_side run FOLDER --hub HUB --results FILE  # needs GPUs; nothing of nb2ddp

`write` converts the notebooks. `run` starts a process for each lane (one a GPU), which runs the scripts of its lane one
after another (`lane.py`), or tries settings (`trials.py`). In each round every lane gets its next run ready, up to its
first steps; then they are timed one after another, each alone on the machine while the others wait
(`gated/sitecustomize.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.grpo import free_port

HERE = Path(__file__).resolve().parent
WARM_UP = 5
TIMED = 8
STEPS = WARM_UP + TIMED + 2  # of a training: the learning rate falls to 0 over them; it is left after the timed ones
PATIENCE = 220, 90  # seconds for the runs of the first round, and of others, to get ready; one that hangs never does


@dataclass(frozen=True)
class Run:
    """A kind of training, with these of its settings replaced, on this many GPUs."""

    name: str
    gpus: int
    split: str = "gpu"  # for the GPU at hand, "notebook", a number, "hand" (transformers, PEFT and TRL), or "trial"
    kind: str = "sft_3b"
    settings: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()  # of what is no converted script
    checkpointing: str = "chosen"  # or "kept": as the notebook has it
    lane: str = ""  # its process: runs of one lane follow each other; what follows "@" is the one GPU that it takes
    together: bool = False  # timed at once with the others of its round that say so


#: Rows of 450 tokens, or of 400 to 500, 8 a step.
EVEN = {"dataset": 'load_dataset("bench/books", split = "train")', "max_seq_length": "450"}
SHORT = {**EVEN, "gradient_accumulation_steps": "4"}
WIDE = {**EVEN, "gradient_accumulation_steps": "16"}
UNEVEN = {"dataset": 'load_dataset("bench/letters", split = "train")', "gradient_accumulation_steps": "4"}
TINY = {**UNEVEN, "max_seq_length": "32", "model_name": '"bench/Llama-small"', "load_in_4bit": "False"}
HAND = ("--data=bench/books", "--max-length=450", "--four-bit", "--accumulation=1", f"--steps={STEPS}")
PLAIN = ("--no-checkpointing",)
EIGHT = "--model=bench/Llama-8B"
NONE = {"use_gradient_checkpointing": "False"}
TRIED = (
    "warm-up",
    "base",
    "cores of its own",
    "GPU not named at each launch",
    "broadcast_buffers = False",
    "log every 20 steps",
    "own mean, log every 20 steps",
    "backward in one thread",
    "base again",
    "base, profiled",
    "CUDA graphs",
)
ONE, TWO = ("--rows=16", "--accumulation=2"), ("--rows=16",)


def trial(name: str, lane: str, *arguments: str, together: bool = False) -> Run:
    return Run(name, 1 if "@" in lane else 2, "trial", arguments=arguments, lane=lane, together=together)


def by_hand(name: str, per_device: int, lane: str, *arguments: str) -> Run:
    """A run of 8 rows a step with transformers, PEFT and TRL."""
    split = (f"--per-device={per_device}", f"--accumulation={8 // per_device}", f"--steps={STEPS}")
    return Run(name, 1, "hand", arguments=("--data=bench/books", "--four-bit", *arguments, *split), lane=lane)


def kinds_on(names: str, gpus: int, split: str, lane: str) -> list[Run]:
    return [Run(f"{kind}, {split}", gpus, split, kind, lane=lane) for kind in names.split()]


SETS: dict[str, list[Run]] = {
    "tiny": [
        Run("tiny", 1, settings=TINY, lane="one@0"),
        Run("tiny, notebook's split", 1, "notebook", settings=TINY, lane="one@0"),
        Run("tiny", 2, settings=TINY, lane="two"),
        Run("tiny, notebook's split", 2, "notebook", settings=TINY, lane="two"),
        *(
            trial(name, "trials", "--rows=2", "--model=bench/Llama-small", "--length=32")
            for name in ("base", "2 workers")
        ),
    ],
    "choice": [
        Run("8 a step, notebook's split", 1, "notebook", settings=SHORT, lane="notebook@0"),
        Run("8 a step", 1, settings=SHORT, lane="gpu@1"),
        Run("8 a step", 2, settings=SHORT, lane="two"),
        Run(
            "8 a step, by hand, no checkpointing", 1, "hand", arguments=(*HAND, *PLAIN, "--per-device=8"), lane="hand@0"
        ),
        Run("8 a step, by hand, no checkpointing", 2, "hand", arguments=(*HAND, *PLAIN, "--per-device=4"), lane="hand"),
        Run("8 a step, by hand", 2, "hand", arguments=(*HAND, "--per-device=4"), lane="hand"),
        *kinds_on("full", 1, "notebook", "full@0"),
        *kinds_on("full", 1, "gpu", "full@0"),
        *kinds_on("full", 2, "gpu", "full"),
        *(trial(name, "trials", *TWO) for name in TRIED),
        trial("warm-up", "trials@0", *ONE),
        trial("base", "trials@0", *ONE),
        trial("base, on both GPUs at once", "trials@0", *ONE, together=True),
        *(trial(name, "trials@0", *ONE) for name in ("base, profiled", "CUDA graphs")),
        trial("warm-up", "trials@1", *ONE),
        trial("warm-up", "trials@1", *ONE),
        trial("base, on both GPUs at once", "trials@1", *ONE, together=True),
    ],
    "kinds": [
        *kinds_on("lora_16bit cpt packing", 1, "notebook", "notebook@0"),
        Run("32 a step", 1, settings=WIDE, lane="8b@0"),
        *kinds_on("sft_8b", 1, "notebook", "8b@0"),
        *kinds_on("lora_16bit cpt packing", 1, "gpu", "gpu@1"),
        Run("8 a step", 1, settings=SHORT, lane="8b@1"),
        *kinds_on("sft_8b", 1, "gpu", "8b@1"),
        Run("sft_8b, 4 x 2, no checkpointing", 1, "4", "sft_8b", settings=NONE, lane="8b@1"),
        Run("32 a step", 2, settings=WIDE, lane="two"),
        *kinds_on("lora_16bit packing", 2, "gpu", "two"),
        Run("8 a step", 2, settings=SHORT, lane="8b"),
        *kinds_on("sft_8b cpt", 2, "gpu", "8b"),
        *kinds_on("full", 1, "gpu", "full@0"),
        *kinds_on("full", 1, "notebook", "full@0"),
        Run("sft_8b, gpu, checkpointing kept", 1, "gpu", "sft_8b", checkpointing="kept", lane="8b@1"),
    ],
    "pairs": [
        *kinds_on("cpt packing", 1, "notebook", "notebook@0"),
        Run("32 a step", 1, settings=WIDE, lane="one@1"),
        Run("8 a step, notebook's split", 1, "notebook", settings=SHORT, lane="one@1"),
        Run("8 a step", 1, settings=SHORT, lane="one@1"),
        Run("32 a step", 2, settings=WIDE, lane="two"),
        *kinds_on("packing", 2, "gpu", "two"),
        Run("8 a step", 2, settings=SHORT, lane="two"),
        *kinds_on("cpt", 2, "gpu", "cpt"),
        Run("32 a step, again", 2, settings=WIDE, lane="cpt"),
        Run("32 a step, again", 1, settings=WIDE, lane="notebook@0"),
    ],
    "wide": [  # each in a process of its own
        *(Run(f"32 a step, {n}", 1, settings=WIDE, lane=f"one-{n}@{n % 2}") for n in range(3)),
        *(Run(f"32 a step, {n}", 2, settings=WIDE, lane=f"two-{n}") for n in range(3)),
    ],
    "fewer": [  # for one GPU of 80 GB; those by hand with long rows come last, when the other lanes have left it
        *kinds_on("sft_8b", 1, "notebook", "8b@0"),
        Run("sft_8b, gpu, checkpointing kept", 1, "gpu", "sft_8b", checkpointing="kept", lane="8b@0"),
        *kinds_on("sft_8b", 1, "gpu", "8b@0"),
        Run("8 a step, notebook's split", 1, "notebook", settings=SHORT, lane="3b@0"),
        Run("8 a step", 1, settings=SHORT, lane="3b@0"),
        by_hand("8 a step, by hand", 8, "hand@0", "--max-length=450"),
        by_hand("8 a step, by hand, no checkpointing", 8, "hand@0", "--max-length=450", *PLAIN),
        by_hand("sft_8b, by hand", 8, "hand@0", EIGHT),
        by_hand("sft_8b, by hand, 2 x 4, no checkpointing", 2, "hand@0", EIGHT, *PLAIN),
        by_hand("sft_8b, by hand, 4 x 2, no checkpointing", 4, "hand@0", EIGHT, *PLAIN),
    ],
}


def write(root: Path, name: str) -> None:
    """Write the scripts of a set of runs, with what `run` must know of them."""
    import nbformat

    from benchmarks.gpu import kinds, scripts
    from nb2ddp.api import convert_file
    from nb2ddp.options import Options

    for number, each in enumerate(SETS[name]):
        folder = root / f"{number:02}-{each.name}-{each.gpus}".replace(", ", "-").replace(" ", "-").replace("'", "")
        work = folder / "work"
        work.mkdir(parents=True, exist_ok=True)
        if each.split == "hand":
            shutil.copy(scripts.HANDWRITTEN, work / "train.py")
        elif each.split != "trial":
            kind = kinds.KINDS[each.kind]
            book = scripts.changed(kind.notebook, {**kind.settings, **each.settings, "max_steps": str(STEPS)})
            (work / "notebook.ipynb").write_text(nbformat.writes(book))
            fixed: dict[str, Any] = {"gpu": None, "notebook": "notebook"}
            options = Options(
                per_device_batch_size=fixed[each.split] if each.split in fixed else int(each.split),
                ignore=frozenset({"DDP209"} if each.checkpointing == "kept" else ()),
            )
            convert_file(work / "notebook.ipynb", work / "train.py", options)
        (folder / "run.json").write_text(json.dumps({**asdict(each), "steps": STEPS}))


@dataclass
class Lane:
    """A process, or one for each of two GPUs, and its runs in their order."""

    name: str
    folders: list[Path]
    about: list[dict[str, Any]]
    process: subprocess.Popen[bytes]

    def state(self, number: int, name: str) -> bool:
        """True if all processes of its run `number` have left a file of this name."""
        return all((self.folders[number] / f"{name}-{rank}").exists() for rank in range(self.about[number]["gpus"]))

    def is_alive(self) -> bool:
        return self.process.poll() is None


def start(name: str, folders: list[Path], options: argparse.Namespace) -> Lane:
    """Start a lane's process: `lane.py` for scripts, `trials.py` for trials of one model."""
    about = [json.loads((folder / "run.json").read_text()) for folder in folders]
    gpus = about[0]["gpus"]
    for folder in folders:
        for entry in options.hub.resolve().iterdir():
            (folder / "work" / entry.name).symlink_to(entry)
    if about[0]["split"] == "trial":
        out = options.results.resolve().with_name(f"{name.replace('@', '-')}.json")
        what = ["benchmarks.gpu.trials", *about[0]["arguments"], f"--out={out}", "--folders"]
    else:
        what = ["benchmarks.gpu.lane"]
    command = [sys.executable, "-m", *what, *map(str, folders)]
    if gpus > 1:
        launch = ["torch.distributed.run", f"--nproc_per_node={gpus}", f"--master_port={free_port()}"]
        command[1:2] = ["-m", *launch, "-m"]
    env = {
        **os.environ,
        "PYTHONPATH": f"{HERE / 'gated'}:{HERE.parents[1] / 'tests/e2e/site'}:{HERE.parents[1]}"
        f":{os.environ.get('PYTHONPATH', '')}",
        "GATE_WARM_UP": str(WARM_UP),
        "GATE_TIMED": str(TIMED),
        "GATE_LOAD": str(options.load_after or HERE),
        "TORCHINDUCTOR_COMPILE_THREADS": "4",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "4",
        "CUDA_VISIBLE_DEVICES": name.partition("@")[2] or ",".join(map(str, range(gpus))),
    }
    with (folders[0] / "log.txt").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folders[0] / "work", env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    return Lane(name, folders, about, process)


def summary(folder: Path) -> dict[str, Any]:
    """What a run's processes wrote down."""
    about = json.loads((folder / "run.json").read_text())
    files = [folder / f"{rank}.json" for rank in range(about["gpus"])]
    logs = [folder / "log.txt", *(folder / f"log-{rank}.txt" for rank in range(about["gpus"]))]
    said = "".join(log.read_text() for log in logs if log.exists())
    chosen = [line for line in said.splitlines() if line.startswith("Gradient checkpointing is ")]
    facts = {**about, "chosen": chosen[0] if chosen else ""}
    if not all(file.exists() for file in files):
        return {**facts, "exit_code": 1, "said": said[-3000:]}
    ranks = [json.loads(file.read_text()) for file in files]
    at = [ranks[0]["began"], *(step["at"] for step in ranks[0]["steps"][WARM_UP:])]
    seconds = [round(later - earlier, 4) for earlier, later in pairwise(at)]
    return {
        **facts,
        "exit_code": 0,
        "seconds": seconds,
        "median": round(median(seconds), 4),
        "losses": [step["loss"] for step in ranks[0]["steps"]],
        "grad_norms": [step.get("grad_norm") for step in ranks[0]["steps"]],
        "peak": [rank["memory"] for rank in ranks],
        **{name: [rank[name] for rank in ranks] for name in ("held", "before", "reserved", "processor")},
        **{name: ranks[0][name] for name in ("per_device", "accumulation", "gpu", "total")},
    }


def run(root: Path, options: argparse.Namespace) -> None:
    """Start every lane below `root`, time their runs round by round, and keep what they measured."""
    deadline = time.monotonic() + options.seconds
    by_lane: dict[str, list[Path]] = {}
    for folder in sorted(path.parent for path in root.glob("*/run.json")):
        by_lane.setdefault(json.loads((folder / "run.json").read_text())["lane"], []).append(folder)
    lanes = [start(name, folders, options) for name, folders in by_lane.items()]
    found: list[dict[str, Any]] = []
    for number in range(max(len(lane.folders) for lane in lanes)):
        here = [lane for lane in lanes if number < len(lane.folders) and lane.is_alive()]
        get_ready(here, number, min(deadline, time.monotonic() + PATIENCE[min(number, 1)]))
        until(lambda: not options.open_after or options.open_after.exists(), deadline)
        for group in groups(here, number):
            for lane in group:
                (lane.folders[number] / "go").touch()
            until(partial(all_over, group, number), deadline)
            for lane in group:
                say(lane.folders[number].name)
                if lane.about[number]["split"] != "trial":  # those are written down by themselves
                    found.append(summary(lane.folders[number]))
                    say(*(found[-1].get(name) for name in ("exit_code", "median", "per_device", "peak", "chosen")))
            options.results.write_text(json.dumps({"runs": found}, indent=1) + "\n")
        for lane in here:
            (lane.folders[number] / "next").touch()
    for lane in lanes:
        stop(lane.process)


def say(*words: Any) -> None:
    print(f"{time.monotonic():.0f}", *words, flush=True)


def until(true: Callable[[], bool], deadline: float) -> None:
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)


def all_over(lanes: list[Lane], number: int) -> bool:
    return all(over(lane, number) for lane in lanes)


def over(lane: Lane, number: int) -> bool:
    return lane.state(number, "over") or not lane.is_alive()


def get_ready(lanes: list[Lane], number: int, deadline: float) -> None:
    """Wait until the run `number` of these lanes is ready to be timed; a lane that is not is ended."""
    began = time.monotonic()
    until(lambda: all(lane.state(number, "ready") or over(lane, number) for lane in lanes), deadline)
    late = [lane for lane in lanes if not lane.state(number, "ready") and not over(lane, number)]
    say(f"round {number} ready after {time.monotonic() - began:.0f} s; not ready:", [lane.name for lane in late])
    for lane in late:
        stop(lane.process)


def groups(lanes: list[Lane], number: int) -> list[list[Lane]]:
    """What is timed at once: each run alone, but those that are to be timed together."""
    together = [lane for lane in lanes if lane.about[number]["together"]]
    return [[lane] for lane in lanes if lane not in together] + ([together] if together else [])


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a lane and the processes that its launcher started."""
    import psutil

    if process.poll() is None:
        for each in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.side_by_side", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["write", "run"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", choices=SETS, default="kinds")
    parser.add_argument("--hub", type=Path)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--load-after", type=Path, help="models are loaded when this file is there")
    parser.add_argument("--open-after", type=Path, help="the first run is timed when this file is there")
    options = parser.parse_args()
    if options.what == "write":
        write(options.folder, options.runs)
    else:
        run(options.folder.resolve(), options)


if __name__ == "__main__":
    main()
