"""Runs side by side on one machine, each timed alone: the notebook's split of a batch beside the one for the GPU.

    python -m benchmarks.gpu.side_by_side write FOLDER --runs splits         # needs nb2ddp; no GPU
    python -m benchmarks.gpu.side_by_side run FOLDER --hub HUB --results FILE  # needs GPUs; nothing of nb2ddp

`write` converts the notebooks; `run` starts them all at once, lets each train its first steps, and then opens them one
after another (`gated/sitecustomize.py`), so that each has the machine for itself while it is timed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from benchmarks.grpo import free_port

HERE = Path(__file__).resolve().parent
WARM_UP = 5
TIMED = 8
PROFILED = 2
PATIENCE = 140  # seconds for all runs to get ready; one that hangs at its first step never does


@dataclass(frozen=True)
class Run:
    """A kind of training, with these of its settings replaced, on this many GPUs."""

    name: str
    gpus: int
    split: str = "gpu"  # "gpu" for the GPU at hand, "notebook", or "hand" for transformers, PEFT and TRL
    kind: str = "sft_3b"
    settings: dict[str, str] = field(default_factory=dict)
    trial_apart: bool = True  # the work-around for Unsloth's kernel trial
    profiled: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    by_hand: tuple[str, ...] = ()
    checkpointing: str = "chosen"  # or "kept": as the notebook has it
    early: bool = False  # it waits before it loads its model, as it needs much memory, and again before its first step


#: Rows of 450 tokens, or of 400 to 500, 8 a step.
EVEN = {"dataset": 'load_dataset("bench/books", split = "train")', "max_seq_length": "450"}
SHORT = {**EVEN, "gradient_accumulation_steps": "4"}
UNEVEN = {"dataset": 'load_dataset("bench/letters", split = "train")', "gradient_accumulation_steps": "4"}
WIDE = {**EVEN, "gradient_accumulation_steps": "16"}
WHOLE = {**SHORT, "use_gradient_checkpointing": "False"}
PLAIN = ("--no-checkpointing", "--accumulation=1")
HAND = ("--data=bench/books", "--max-length=450", "--four-bit")
TINY = {**UNEVEN, "max_seq_length": "32", "model_name": '"bench/Llama-small"', "load_in_4bit": "False"}
PADDED = {"UNSLOTH_DISABLE_AUTO_PADDING_FREE": "1"}
SETS: dict[str, list[Run]] = {
    "tiny": [
        Run("tiny", 1, settings=TINY, profiled=True),
        Run("tiny, notebook's split", 1, "notebook", settings=TINY),
        Run("tiny, late", 1, "notebook", settings=TINY, early=True),
        Run("tiny, late too", 1, "notebook", settings=TINY, early=True),
    ],
    "splits": [
        Run("8 a step, notebook's split", 1, "notebook", settings=SHORT),
        Run("8 a step", 1, settings=SHORT),
        Run("8 a step, notebook's split", 2, "notebook", settings=SHORT),
        Run("8 a step", 2, settings=SHORT),
        Run("8 a step, by hand", 1, "hand", by_hand=(*HAND, "--per-device=8", "--accumulation=1")),
        Run("8 a step, by hand", 2, "hand", by_hand=(*HAND, "--per-device=4", "--accumulation=1")),
        Run("32 a step", 1, settings=WIDE),
        Run("32 a step", 2, settings=WIDE),
        Run("8 a step, no checkpointing", 1, settings=WHOLE),
        Run("8 a step, no checkpointing", 2, settings=WHOLE),
        Run("8 a step, uneven, notebook's split", 1, "notebook", settings=UNEVEN),
        Run("8 a step, uneven", 1, settings=UNEVEN),
        Run("8 a step, uneven, padded", 1, settings=UNEVEN, environment=PADDED),
        *(
            Run(f"{kind}, {split}", gpus, split, kind)
            for kind in ("sft_8b", "full", "packing")
            for gpus in (1, 2)
            for split in ("notebook", "gpu")
        ),
    ],
    "choice": [
        Run("8 a step, notebook's split", 1, "notebook", settings=SHORT),
        Run("8 a step", 1, settings=SHORT),
        Run("8 a step", 2, settings=SHORT),
        Run("32 a step", 1, settings=WIDE, early=True),
        Run("32 a step", 2, settings=WIDE, early=True),
        Run("8 a step, by hand", 1, "hand", by_hand=(*HAND, "--per-device=8", "--accumulation=1")),
        Run("8 a step, by hand", 2, "hand", by_hand=(*HAND, "--per-device=4", "--accumulation=1")),
        Run("8 a step, by hand, no checkpointing", 1, "hand", by_hand=(*HAND, *PLAIN, "--per-device=8"), early=True),
        Run("8 a step, by hand, no checkpointing", 2, "hand", by_hand=(*HAND, *PLAIN, "--per-device=4"), early=True),
        Run("8 a step, checkpointing kept", 1, settings=SHORT, checkpointing="kept"),
        Run("32 a step, checkpointing kept", 2, settings=WIDE, checkpointing="kept"),
        Run("32 a step, checkpointing kept", 1, settings=WIDE, checkpointing="kept"),
        Run("8 a step, uneven, notebook's split", 1, "notebook", settings=UNEVEN),
        Run("8 a step, uneven", 1, settings=UNEVEN),
        Run("8 a step, uneven", 2, settings=UNEVEN),
        Run("8 a step, uneven, padded", 1, settings=UNEVEN, environment=PADDED),
    ],
    "kinds": [
        Run(f"{kind}, {split}", gpus, split, kind, early=True)
        for kind in ("full", "lora_16bit", "sft_8b", "packing")
        for split, gpus in (("notebook", 1), ("gpu", 1), ("gpu", 2))
    ],
    "trial": [
        Run("8 a step", 2, settings=UNEVEN),
        Run("8 a step, kernel trial as it is", 2, settings=UNEVEN, trial_apart=False),
        Run("8 a step, notebook's split", 2, "notebook", settings=UNEVEN),
        Run("8 a step, notebook's split, kernel trial as it is", 2, "notebook", settings=UNEVEN, trial_apart=False),
        Run("16-bit, 8 a step, kernel trial as it is", 2, "gpu", "lora_16bit", UNEVEN, trial_apart=False),
    ],
}


def folder_of(root: Path, run: Run) -> Path:
    return root.with_name(f"{root.name}-{run.name}-{run.gpus}".replace(", ", "-").replace(" ", "-").replace("'", ""))


def write(root: Path, name: str) -> None:
    """Write the scripts of a set of runs, with what `run` must know of them."""
    import nbformat

    from benchmarks.gpu import kinds, scripts
    from nb2ddp.api import convert_file
    from nb2ddp.options import Options
    from nb2ddp.script import render, versions

    for number, each in enumerate(SETS[name]):
        folder = folder_of(root / f"{number:02}", each)
        folder.mkdir(parents=True, exist_ok=True)
        steps = str(WARM_UP + TIMED + PROFILED)  # of all runs: the learning rate falls to 0 over them
        if each.split == "hand":
            shutil.copy(scripts.HANDWRITTEN, folder / "train.py")
        else:
            kind = kinds.KINDS[each.kind]
            settings = {**kind.settings, **each.settings, "max_steps": steps}
            book = scripts.changed(kind.notebook, settings)
            (folder / "notebook.ipynb").write_text(nbformat.writes(book))
            options = Options(
                per_device_batch_size="notebook" if each.split == "notebook" else None,
                ignore=frozenset({"DDP209"} if each.checkpointing == "kept" else ()),
            )
            with_trial = versions.tries_kernels if each.trial_apart else (lambda program: False)
            with patch.object(render, "tries_kernels", with_trial):
                convert_file(folder / "notebook.ipynb", folder / "train.py", options)
            (folder / "notebook.ipynb").unlink()
        (folder / "run.json").write_text(json.dumps({**asdict(each), "steps": steps}))


def start(folder: Path, gpu: int, hub: Path) -> subprocess.Popen[bytes]:
    """Start a run, which waits after its first steps; `gpu` is the one that it takes if it takes one alone."""
    about = json.loads((folder / "run.json").read_text())
    gpus = about["gpus"]
    work = folder / "work"
    work.mkdir()
    for name in ("train.py", "accelerate_config.yaml"):
        if (folder / name).exists():
            shutil.copy(folder / name, work / name)
    for entry in hub.iterdir():
        (work / entry.name).symlink_to(entry)
    arguments = [*about["by_hand"], f"--steps={about['steps']}"] if about["by_hand"] else []
    launch = [sys.executable]
    if gpus > 1:
        config = ["--config_file", "accelerate_config.yaml"] if not about["by_hand"] else ["--multi_gpu"]
        port = ["--main_process_port", str(free_port())]
        launch = [sys.executable, "-m", "accelerate.commands.launch", *config, *port, "--num_processes", str(gpus)]
    env = {
        **os.environ,
        "PYTHONPATH": f"{HERE / 'gated'}:{HERE.parents[1] / 'tests/e2e/site'}:{os.environ.get('PYTHONPATH', '')}",
        "GATE_FOLDER": str(folder),
        "GATE_WARM_UP": str(WARM_UP),
        **about["environment"],
        "GATE_PROFILED": str(PROFILED * about["profiled"]),
        "GATE_EARLY": str(int(about["early"])),
        "TORCHINDUCTOR_COMPILE_THREADS": "4",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "4",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(gpus))) if gpus > 1 else str(gpu),
    }
    with (folder / "log.txt").open("w") as log:
        return subprocess.Popen(
            [*launch, "train.py", *arguments],
            cwd=work,
            env=env,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def is_ready(folder: Path, gpus: int) -> bool:
    return all((folder / f"ready-{rank}").exists() for rank in range(gpus))


def summary(folder: Path, code: int | None) -> dict[str, Any]:
    """What a run's processes wrote down."""
    about = json.loads((folder / "run.json").read_text())
    files = [folder / f"{rank}.json" for rank in range(about["gpus"])]
    said = [line for line in (folder / "log.txt").read_text().splitlines() if line.startswith("Gradient checkpoi")]
    facts: dict[str, Any] = {**about, "exit_code": code, "chosen": said[0] if said else ""}
    if code or not all(file.exists() for file in files):
        return {**facts, "exit_code": 124 if code is None else code, "said": (folder / "log.txt").read_text()[-3000:]}
    ranks = [json.loads(file.read_text()) for file in files]
    at = [ranks[0]["began"], *(step["at"] for step in ranks[0]["steps"][WARM_UP : WARM_UP + TIMED])]
    seconds = [round(later - earlier, 4) for earlier, later in pairwise(at)]
    return {
        **facts,
        "seconds": seconds,
        "median": round(median(seconds), 4) if seconds else None,
        "losses": [step["loss"] for step in ranks[0]["steps"]],
        "grad_norms": [step.get("grad_norm") for step in ranks[0]["steps"]],
        "peak": [rank["memory"] for rank in ranks],
        "reserved": [rank["reserved"] for rank in ranks],
        **{name: ranks[0][name] for name in ("per_device", "accumulation", "gpu", "total") if name in ranks[0]},
        **({"profile": ranks[0]["profile"]} if "profile" in ranks[0] else {}),
    }


def run(root: Path, options: argparse.Namespace) -> None:
    """Start every run below `root`, open one after another (or two on different GPUs), and keep what they measured."""
    deadline = time.monotonic() + options.seconds
    folders = sorted(path.parent for path in root.glob("*/run.json"))
    about = {folder: json.loads((folder / "run.json").read_text()) for folder in folders}
    alone = [folder for folder in folders if about[folder]["gpus"] == 1]
    running = {
        folder: start(folder, alone.index(folder) % 2 if folder in alone else 0, options.hub.resolve())
        for folder in folders
    }
    wait_for(options.load_after)
    for folder in folders:
        (folder / "load").touch()
    waiting = get_ready(folders, running, {folder: about[folder]["gpus"] for folder in folders})
    for folder in waiting:
        stop(running[folder])
    wait_for(options.open_after)
    for folder in folders:
        if not about[folder]["early"]:
            signal_all(running[folder], signal.SIGSTOP)
    found: list[dict[str, Any]] = []
    for group in groups(folders, about):
        time_together(group, running, deadline)
        for folder in group:
            facts = summary(folder, running[folder].poll())
            found.append(facts)
            print(folder.name, facts["exit_code"], facts.get("median"), facts.get("peak"), flush=True)
        options.results.write_text(json.dumps({"runs": found}, indent=1) + "\n")


def wait_for(file: Path | None) -> None:
    while file and not file.exists():
        time.sleep(0.1)


def get_ready(folders: list[Path], running: dict[Path, subprocess.Popen[bytes]], gpus: dict[Path, int]) -> list[Path]:
    """Wait until all runs are ready, but not for ever.

    Returns:
        Those that are not.
    """
    began = time.monotonic()
    waiting = folders
    while waiting and time.monotonic() < began + PATIENCE:
        time.sleep(0.2)
        waiting = [f for f in folders if running[f].poll() is None and not is_ready(f, gpus[f])]
    print(f"ready after {time.monotonic() - began:.0f} s; not ready:", [f.name for f in waiting], flush=True)
    return waiting


def groups(folders: list[Path], about: dict[Path, dict[str, Any]]) -> list[list[Path]]:
    """What is timed at once: each run alone, but two neighbours that load late, on one GPU each, together."""
    found: list[list[Path]] = []
    for folder in folders:
        pairs = (
            found
            and len(found[-1]) == 1
            and all(about[each]["early"] and about[each]["gpus"] == 1 for each in (found[-1][0], folder))
        )
        if pairs:
            found[-1].append(folder)
        else:
            found.append([folder])
    return found


def time_together(group: list[Path], running: dict[Path, subprocess.Popen[bytes]], deadline: float) -> None:
    """Open these runs, and wait until they end or the time is over."""
    alive = [folder for folder in group if running[folder].poll() is None]
    for folder in alive if time.monotonic() < deadline else ():
        (folder / "go").touch()
        signal_all(running[folder], signal.SIGCONT)
    while any(running[folder].poll() is None for folder in alive) and time.monotonic() < deadline:
        time.sleep(0.05)
    for folder in alive:
        if running[folder].poll() is None:
            stop(running[folder])


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a run and the processes that its launcher started."""
    signal_all(process, signal.SIGKILL)
    process.wait()


def signal_all(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a run and to the processes that its launcher started, where it still runs."""
    import psutil

    if process.poll() is None:
        for each in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.send_signal(number)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.side_by_side", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["write", "run"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", choices=SETS, default="splits")
    parser.add_argument("--hub", type=Path)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--load-after", type=Path, help="what loads late does so when this file is there")
    parser.add_argument("--open-after", type=Path, help="the first run is timed when this file is there")
    options = parser.parse_args()
    if options.what == "write":
        write(options.folder, options.runs)
    else:
        run(options.folder.resolve(), options)


if __name__ == "__main__":
    main()
