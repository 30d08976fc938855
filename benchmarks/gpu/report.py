"""Print a table of the results, or write those of docs and README.md.

    python -m benchmarks.gpu.report speed rivals   # prints these tables; --help lists all
    python -m benchmarks.gpu.report [--check]      # writes the pages' tables, or says which page is stale

A page's table stands between `<!-- NAME -->` and `<!-- end -->`. The rest of the page stays as it is.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

from benchmarks.gpu import pinned
from benchmarks.gpu.kinds import KINDS, Job, Kind
from benchmarks.gpu.results import Facts, difference, outside, read, step_time
from nb2ddp.runtime.memory import MEASURED_MODELS, bytes_of_a_row, bytes_of_gradients_and_optimizer

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "gpu.json"
PAGE, README, WHERE, SETUP = (
    ROOT / name for name in ("docs/performance.md", "README.md", "docs/where-to-run.md", "docs/setup-block.md")
)
GIB = 2**30
SPLITS, MEMORY, TRIALS = (ROOT / "benchmarks" / "results" / f"{name}.json" for name in ("splits", "memory", "trials"))
#: What the name of a run of `side_by_side.py` says beside what is trained.
ASIDES = (
    ", 2 x 4",
    ", 4 x 2",
    ", notebook's split",
    ", no checkpointing",
    ", checkpointing kept",
    ", by hand",
    ", notebook",
    ", gpu",
    *(f", {again}" for again in ("again", "0", "1", "2")),
)
T4, H200 = 15.8e9, 150.1e9  # bytes that torch reports as `total_memory`
PRECISIONS = {"4bit": "4-bit LoRA", "16bit": "16-bit LoRA", "full": "full fine-tuning"}
MACHINES = "ABCD"  # one for each repetition
Runs = dict[str, Facts]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def good(runs: Runs, job: Job) -> Facts | None:
    """What a job did, if it ended with code 0."""
    run = runs.get(job.key)
    return run if run and not run["exit_code"] else None


def trained(runs: Runs, job: Job) -> Facts | None:
    """What a job did, if its trainings came to their end, whatever came after."""
    run = runs.get(job.key)
    return run if run and run["trainings"] and all("ended" in training for training in run["trainings"]) else None


def samples_a_step(run: Facts, gpus: int) -> int:
    first = run["trainings"][0]
    return int(first["per_device"] * first["accumulation"] * gpus)


def rate(run: Facts, gpus: int) -> float:
    """Samples a second, in steady training."""
    return samples_a_step(run, gpus) / step_time(run)


def repetitions(kind: Kind) -> range:
    """The repetitions that the tables tell apart: where time counts, all runs of one are of one machine."""
    return range(len(MACHINES) if kind.timed else 1)


def converted(runs: Runs, sizes: Sequence[int]) -> Iterator[tuple[Kind, int, int, Facts | None, Facts]]:
    """Each converted run on one of these numbers of GPUs: its kind, repetition, number, one GPU's good run, and it."""
    for name, kind in KINDS.items():
        for again in repetitions(kind):
            one = good(runs, Job(name, "converted", 1, again))
            for gpus in sizes:
                if run := runs.get(Job(name, "converted", gpus, again).key):
                    yield kind, again, gpus, one, run


def timed(runs: Runs, gpus: int) -> Iterator[tuple[str, int, Facts]]:
    """The converted runs that had so many GPUs for themselves and succeeded: kind, repetition, and the run."""
    for name, kind in KINDS.items():
        for again in repetitions(kind) if kind.timed else ():
            if run := good(runs, Job(name, "converted", gpus, again)):
                yield name, again, run


def speed(runs: Runs) -> str:
    rows = []
    for name, again, one in timed(runs, 1):
        own = good(runs, Job(name, "notebook", 1, again))
        row = [KINDS[name].title, MACHINES[again], str(samples_a_step(one, 1)), f"{step_time(own):.3f}" if own else ""]
        row.append(f"{step_time(one):.3f}")
        for gpus in (2, 4):
            many = good(runs, Job(name, "converted", gpus, again))
            row.append(f"{step_time(many):.3f} ({step_time(one) / step_time(many):.2f}x)" if many else "")
        rows.append(row)
    head = ["kind", "machine", "samples a step", "(a) notebook, 1 GPU", "(d) 1 GPU", "(d) 2 GPUs", "(d) 4 GPUs"]
    return table(head, rows)


def rivals(runs: Runs) -> str:
    rows = []
    for name, again, ours in timed(runs, 4):
        row = [KINDS[name].title, MACHINES[again], f"{rate(ours, 4):.1f}"]
        for variant in ("handwritten", "exported_equal", "exported"):
            other = trained(runs, Job(name, variant, 4, again))
            if other is None:
                row.append("")
                continue
            notes = [f"{rate(ours, 4) / rate(other, 4):.2f}x"]
            if samples_a_step(other, 4) != samples_a_step(ours, 4):
                notes.append(f"{samples_a_step(other, 4)} a step")
            if other["exit_code"]:
                notes.append(f"ended with code {other['exit_code']}")
            row.append(f"{rate(other, 4):.1f} ({', '.join(notes)})")
        if any(row[3:]):
            rows.append(row)
    head = ["kind", "machine", "(d) converted", "(c) by hand"]
    return table([*head, "(b') exported, same batch", "(b) exported, as it is"], rows)


def norms(run: Facts) -> list[float]:
    return [step["grad_norm"] for training in run["trainings"] for step in training["steps"] if "grad_norm" in step]


def agreement(runs: Runs) -> str:
    rows = []
    for kind, again, gpus, one, many in converted(runs, (2, 4)):
        if not one or many["exit_code"]:
            continue
        why = kind.chance
        if samples_a_step(one, 1) != samples_a_step(many, gpus):
            why = f"{samples_a_step(many, gpus)} samples a step, not {samples_a_step(one, 1)}"
        drift = max(abs(a - b) / a for a, b in zip(norms(one), norms(many), strict=True) if a)
        ends = list(zip(one["trainings"], many["trainings"], strict=True))
        rows.append(
            [
                kind.title,
                MACHINES[again] if kind.timed else "",
                str(gpus),
                str(sum(len(training["steps"]) for training in many["trainings"])),
                why or f"{difference(one, many):.1e}",
                "" if why else f"{drift:.1e}",
                "yes" if all(len(set(b["weights"])) == 1 for _, b in ends) else "NO",
                "" if why else "yes" if all(a["which"] == b["which"] for a, b in ends) else "NO",
                "" if why else str(sum(b["rows"] - a["rows"] for a, b in ends)),
            ]
        )
    head = ["kind", "machine", "GPUs", "steps", "loss, at most", "gradient norm, relative, at most"]
    return table([*head, "ranks hold equal weights", "same rows as on one GPU", "rows repeated"], rows)


def apart(pairs: Iterable[tuple[Facts | None, Facts | None]]) -> str:
    """The largest difference between the losses of two runs of a pair; nothing where no pair is whole."""
    found = [difference(one, other) for one, other in pairs if one and other]
    return f"{max(found):.1e}" if found else ""


def rounding(runs: Runs) -> str:
    """How much the losses of one GPU differ from themselves: run again, and with weights moved by rounding's size."""
    rows = []
    for name, kind in KINDS.items():
        ours = [good(runs, Job(name, "converted", 1, again)) for again in range(len(MACHINES))]
        moved = [good(runs, Job(name, "nudged", 1, again)) for again in range(len(MACHINES))]
        own = good(runs, Job(name, "notebook", 1))
        row = [apart([(ours[0], own)]), apart(itertools.combinations(ours, 2)), apart(zip(ours, moved, strict=True))]
        if any(row):
            rows.append([kind.title, *row])
    return table(["kind", "as (a) and as (d)", "on two machines", "its weights moved by 1e-7"], rows)


def endings(runs: Runs) -> str:
    """Every converted run: its code, what it left, and its time outside training."""
    rows = []
    for kind, again, gpus, one, run in converted(runs, (1, 2, 4)):
        share = ""
        if kind.timed and one and not run["exit_code"]:
            share = f"{outside(run):.0f} s ({outside(run) / outside(one):.2f}x)"
        peak = max((max(training.get("memory", [0])) for training in run["trainings"]), default=0)
        rows.append(
            [
                kind.title,
                MACHINES[again] if kind.timed else "",
                str(gpus),
                str(run["exit_code"]),
                f"{run['seconds']:.0f} s",
                share,
                str(len(run["left_running"])),
                str(len(run["written_by_several"])),
                f"{peak / GIB:.1f}",
            ]
        )
    head = ["kind", "machine", "GPUs", "exit code", "launch to end", "outside training", "processes left"]
    return table([*head, "files written by several ranks", "peak GiB a GPU"], rows)


def splits(_: Runs) -> str:
    """Each training with the notebook's split and with the one for the GPU at hand."""
    rows = []
    for run in beside():
        if run["exit_code"] or run["profile_only"]:
            continue
        base = notebook_on_one(run)
        seconds = f"{run['median']:.3f}"
        rows.append(
            [
                run["title"],
                run["machine"],
                str(run["gpus"]),
                f"{run['per_device']} x {run['accumulation']}",
                "off" if run["whole"] else "on",
                f"{seconds} ({base['median'] / run['median']:.2f}x)" if base else seconds,
                f"{peak(run) / GIB:.1f}",
                f"{run['losses'][12]:.4f}",
            ]
        )
    head = ["training", "machine", "GPUs", "per device x accumulation", "checkpointing"]
    return table([*head, "seconds a step (against the notebook's split)", "peak GiB", "loss of step 13"], rows)


def beside() -> list[Facts]:
    """The runs of `side_by_side.py`, with titles for a reader."""
    runs: list[Facts] = json.loads(SPLITS.read_text())["runs"]
    for run in runs:
        name = run["name"]
        for aside in ASIDES:
            name = name.replace(aside, "")
        run["base"] = name.removesuffix(", padded")
        run["whole"] = "no checkpointing" in run["name"] or "is off" in run.get("chosen", "")
        tokens = "400 to 500" if "uneven" in name else "450"
        short = f"4-bit LoRA, 3.2B, {tokens} tokens, {name.replace(', uneven', '')}"
        run["title"] = (KINDS[name].title if name in KINDS else short) + ", by hand" * ("by hand" in run["name"])
        run["profile_only"] = "kernel trial" in name
    return runs


def peak(run: Facts) -> float:
    """The most memory that a process had, less what was held of the script before it in the same process."""
    return max(float(most - held) for most, held in zip(run["peak"], run.get("held", [0] * run["gpus"]), strict=True))


def notebook_on_one(run: Facts) -> Facts | None:
    """The run on one GPU of that machine with the notebook's own split; of a step of 32 samples there is none."""
    found = [each for each in beside() if each["split"] == "notebook" and each["gpus"] == 1 and not each["exit_code"]]
    return next((e for e in found if e["machine"] == run["machine"] and e["base"] == run["base"]), None)


def room(_: Runs) -> str:
    """How full a GPU is with the notebook's batch on a T4 and with the larger one on an H200."""
    rows = []
    for model in json.loads(MEMORY.read_text())["models"]:
        peaks = {(run["rows"], run["tokens"]): run["peak"] for run in model["runs"] if "peak" in run}
        for (count, tokens), peak in peaks.items() if model["checkpointing"] else ():
            larger = peaks.get((16, tokens))
            if count == 2 and larger:
                rows.append(
                    [
                        f"{model['model'].removeprefix('bench/Llama-')}, {PRECISIONS[model['precision']]}",
                        f"{tokens:,}",
                        f"{peak / GIB:.1f} ({100 * peak / T4:.0f}%)",
                        f"{larger / GIB:.1f} ({100 * larger / H200:.0f}%)",
                    ]
                )
    return table(["model", "tokens a row", "2 rows: GiB (of a T4)", "16 rows: GiB (of an H200)"], rows)


def kept(_: Runs) -> str:
    """What training needs beside the weights without gradient checkpointing, beside what a script estimates."""
    rows = []
    for model in json.loads(MEMORY.read_text())["models"]:
        for run in model["runs"] if not model["checkpointing"] and model["type"] in MEASURED_MODELS else ():
            measured, needed = (run["peak"] - run["before"]) / GIB, estimate(model, run) / GIB
            rows.append(
                [
                    f"{model['model'].removeprefix('bench/')}, {PRECISIONS[model['precision']]}"
                    + ", two GPUs" * (model.get("gpus", 1) > 1),
                    f"{run['rows']} x {run['tokens']:,}",
                    f"{measured:.2f}",
                    f"{needed:.2f} ({needed / measured:.2f}x)",
                ]
            )
    return table(["model", "rows x tokens", "needed, GiB", "estimate, GiB"], rows)


def estimate(model: Facts, run: Facts) -> float:
    """The bytes that a script works out for a run of `memory.py`."""
    config = SimpleNamespace(**{name: size for name, size in model["config"].items() if size is not None})
    row = bytes_of_a_row(config, run["tokens"], 2)
    return float(run["rows"] * row + bytes_of_gradients_and_optimizer(model["trained"], model.get("gpus", 1)))


def trials(_: Runs) -> str:
    """One training with one setting changed at a time: the slowest process's median, and all its steps."""
    runs = json.loads(TRIALS.read_text())["runs"]
    rows = []
    for where in dict.fromkeys(run["where"] for run in runs):
        ranks = [run for run in runs if run["where"] == where]
        for number, trial in enumerate(ranks[0]["trials"]):
            seconds = max((rank["trials"][number] for rank in ranks), key=lambda each: each["median"])
            parts = trial["milliseconds"]
            rows.append(
                [
                    f"{where}, {ranks[0]['rows']} x {ranks[0]['accumulation']}",
                    trial["trial"],
                    f"{seconds['median']:.3f} ({min(seconds['seconds']):.2f} to {max(seconds['seconds']):.2f})",
                    f"{parts['forward and backward']:.0f}, {parts['optimizer']:.0f}, {parts['rows']:.0f}",
                    f"{trial['peak'] / GIB:.1f}",
                    f"{trial['losses'][6]:.4f}" if trial["losses"] else "",
                ]
            )
    head = ["machine, split", "setting", "seconds a step", "processor's ms: forward and backward, optimizer, rows"]
    return table([*head, "peak GiB", "loss of step 7"], rows)


def span(values: Iterable[float], form: str) -> str:
    """The lowest and the highest of some values."""
    shown = [format(value, form) for value in sorted(values)]
    return " to ".join(dict.fromkeys([*shown[:1], *shown[-1:]])) or "not measured"


def suited(title: str, gpus: int = 1) -> list[float]:
    """How many times as fast the script's own settings are on these GPUs as the notebook's settings on one.

    If a training was timed without gradient checkpointing, which scripts then choose, only those runs count.
    """
    plain = [run for run in beside() if run["split"] == "gpu" and run["gpus"] == gpus and not run["exit_code"]]
    plain = [run for run in plain if run["title"].startswith(title) and "padded" not in run["name"]]
    found = [(run["whole"], base["median"] / run["median"]) for run in plain if (base := notebook_on_one(run))]
    most = any(whole for whole, _ in found)
    return [times for whole, times in found if whole is most]


def same_batch(one: Facts, four: Facts) -> str:
    """The samples of a step on four GPUs, and whether they are those of one."""
    samples = samples_a_step(four, 4)
    return f"{samples} ({'as' if samples == samples_a_step(one, 1) else 'NOT as'} on one)"


#: What a user compares: the trainings of the page's one table, by their titles.
SHORT_ROWS = ("4-bit LoRA, 3.2B, 450 tokens, 8 a step", "4-bit LoRA, 3.2B, 400 to 500 tokens, 8 a step")
COMPARED = (
    *("sft_3b", "sft_8b", "sft_3b_uneven", "sft_8b_uneven", "lora_16bit", "full", "packing", "cpt"),
    *("moe", "vision", "dpo", "orpo", "classification"),
)


def times(values: Iterable[float]) -> str:
    """Ratios as their lowest and highest; nothing where there is none."""
    found = list(values)
    return span(found, ".2f") if found else ""


def kinds(runs: Runs) -> str:
    """Each kind of training: how many times as fast on one, two and four GPUs, and how far its losses are apart."""
    rows = [[title, times(suited(title)), times(suited(title, 2)), "", "", ""] for title in SHORT_ROWS]
    for name in COMPARED:
        kind = KINDS[name]
        one, two, four, by_hand = (
            [good(runs, Job(name, variant, gpus, again)) for again in repetitions(kind)]
            for variant, gpus in (("converted", 1), ("converted", 2), ("converted", 4), ("handwritten", 4))
        )
        faster = [step_time(a) / step_time(b) for a, b in zip(one, four, strict=True) if a and b and kind.timed]
        rivals = [rate(a, 4) / rate(b, 4) for a, b in zip(four, by_hand, strict=True) if a and b]
        pairs = [*zip(one, two, strict=True), *zip(one, four, strict=True)]
        chosen = [times(suited(kind.title, gpus)) for gpus in (1, 2)]
        rows.append([kind.title, *chosen, times(faster), times(rivals), apart(pairs)])
    head = ["training", "one GPU", "two GPUs", "four GPUs", "four GPUs, against by hand", "losses differ by at most"]
    return table(head, rows)


def measured(runs: Runs) -> str:
    """What a reader of the README is to know, of two sizes of model."""
    columns = []
    for name, size in (("sft_3b", "3.2B"), ("sft_8b", "8.0B")):
        one, four, by_hand, exported = (
            [trained(runs, Job(name, variant, gpus, again)) for again in range(len(MACHINES))]
            for variant, gpus in (("converted", 1), ("converted", 4), ("handwritten", 4), ("exported", 4))
        )
        pairs = [(a, b) for a, b in zip(one, four, strict=True) if a and b]
        rivals = [(a, b) for a, b in zip(four, by_hand, strict=True) if a and b]
        multiplied = {str(samples_a_step(run, 4)) for run in exported if run}
        columns.append(
            [
                f"{span((step_time(a) / step_time(b) for a, b in pairs), '.2f')} times",
                f"{span(suited(f'4-bit LoRA, {size}'), '.2f')} times",
                f"{span((rate(a, 4) / rate(b, 4) for a, b in rivals), '.2f')} times",
                f"{apart(pairs)} ({apart(itertools.combinations(one, 2))})",
                ", ".join([*sorted({same_batch(a, b) for a, b in pairs}), *(f"nbconvert's {m}" for m in multiplied)]),
            ]
        )
    subjects = [
        "speed of four GPUs against one, with the notebook's per-device batch",
        "speed of one GPU with the script's batch and checkpointing against the notebook's (450 and 2,048 tokens)",
        "speed of four GPUs against transformers, PEFT and TRL by hand",
        "largest difference of losses in 30 steps, four GPUs against one (in brackets: two machines)",
        "samples a step on four GPUs",
    ]
    head = ["4-bit LoRA on H200s (one GPU: H100 too)", "3.2B", "8.0B"]
    return table(head, list(zip(subjects, *columns, strict=True)))


def expect(runs: Runs) -> str:
    """How many times as fast as one GPU several are: with the script's own batch and no checkpointing, then with the
    notebook's per-device batch."""
    chosen = [run for run in beside() if run["split"] == "gpu" and run["whole"] and not run["exit_code"]]
    ones = {(run["machine"], run["name"]): run for run in chosen if run["gpus"] == 1}
    found: dict[tuple[str, int, str], dict[int, list[float]]] = {}
    for run in chosen:
        one = ones.get((run["machine"], run["name"]))
        if run["gpus"] > 1 and one:
            key = run["title"].partition(" a step")[0], run["per_device"] * run["accumulation"] * run["gpus"], "script"
            found.setdefault(key, {}).setdefault(run["gpus"], []).append(one["median"] / run["median"])
    for gpus in (2, 4):
        for name, again, run in timed(runs, gpus):
            if first := good(runs, Job(name, "converted", 1, again)):
                key = KINDS[name].title, samples_a_step(run, gpus), "notebook"
                found.setdefault(key, {}).setdefault(gpus, []).append(step_time(first) / step_time(run))
    rows = [
        [
            re.sub(r", \d+$", "", title),
            str(samples),
            "the script's" if chooses == "script" else "the notebook's",
            *(f"{span(times[gpus], '.1f')} times" if gpus in times else "" for gpus in (2, 4)),
        ]
        for (title, samples, chooses), times in found.items()
    ]
    return table(["training", "samples a step", "batch of a GPU", "two GPUs", "four GPUs"], rows)


TABLES: dict[str, Callable[[Runs], str]] = {
    "speed": speed,
    "rivals": rivals,
    "agreement": agreement,
    "rounding": rounding,
    "endings": endings,
    "splits": splits,
    "room": room,
    "kept": kept,
    "trials": trials,
    "kinds": kinds,
    "measured": measured,
    "expect": expect,
    "pinned": lambda _: pinned.table(),
}
PAGES = {PAGE: ("kinds",), SETUP: ("pinned",), README: ("measured",), WHERE: ("expect",)}


def fill(page: str, runs: Runs, tables: dict[str, Callable[[Runs], str]]) -> str:
    """Replace the tables of a page.

    Raises:
        ValueError: the page has no place for a table.
    """
    for name, make in tables.items():
        before, found, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not found or not end:
            raise ValueError(f"the page has no place for the table {name}")
        page = f"{before}{found}{make(runs)}\n{end}{after}"
    return page


def filled(page: Path) -> str:
    """The text of a page with its tables as the results have them."""
    return fill(page.read_text(encoding="utf-8"), read(RESULTS), {name: TABLES[name] for name in PAGES[page]})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.report", description="Print or write tables.")
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], help="print these instead of writing the pages")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is stale")
    options = parser.parse_args()
    for name in options.tables:
        print(TABLES[name](read(RESULTS)), end="\n\n")
    code = 0
    for page in () if options.tables else PAGES:
        text = filled(page)
        if not options.check:
            page.write_text(text, encoding="utf-8")
        elif page.read_text(encoding="utf-8") != text:
            print(f"{page.name} is stale: python -m benchmarks.gpu.report")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
