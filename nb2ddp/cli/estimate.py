"""`nb2ddp estimate`: which GPU to rent, and how many."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nb2ddp.estimate.answer import BUSY, Answer, answer, counted, gain, in_short
from nb2ddp.estimate.gpus import SHOWN, Gpu, GpuError, gpu_of
from nb2ddp.estimate.shapes import ShapeError, shape_of

if TYPE_CHECKING:
    from nb2ddp.estimate.trainings import Training

_EXAMPLES = """\
\b
Examples:
  nb2ddp estimate finetune.ipynb                 the usual GPUs
  nb2ddp estimate finetune.ipynb --tokens 450    its rows are shorter than max_seq_length
  nb2ddp estimate finetune.ipynb --gpu H100 --gpu 48GB --gpus 4

\b
Exit code: 0 answered; 2 no answer, or wrong usage.
"""


class UnknownError(ShapeError):
    """The batch of a training, or its longest row, is unknown."""


@click.command(epilog=_EXAMPLES)
@click.argument("source", metavar="INPUT")
@click.option("--tokens", type=click.IntRange(1), help="Tokens of the longest row (default: the notebook's limit).")
@click.option("--gpu", "names", multiple=True, metavar="NAME", help="A GPU, such as H100 or 48GB; may be repeated.")
@click.option("--gpus", type=click.IntRange(1, 4096), default=1, help="GPUs of the job (default 1).")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="How to print the answer.")
@click.option("--offline", is_flag=True, help="Do not ask the Hub for the model's config.json.")
@click.pass_context
def estimate(
    ctx: click.Context, /, source: str, names: Sequence[str], tokens: int | None, gpus: int, form: str, offline: bool
) -> None:
    """Say which GPUs hold the training of INPUT, and how many its steps keep busy.

    INPUT is a notebook, a script, or a link to one. No GPU and no training library is needed. The figures come from
    the sizes of the model and the batch; docs/estimate.md compares them with measured runs.
    """
    from nb2ddp.project.files import decode, read
    from nb2ddp.project.inputs import named
    from nb2ddp.results import NotebookError

    notebook = named(source)
    try:
        kinds = [gpu_of(name) for name in names or SHOWN]
        trainings = trainings_in(decode(read(notebook.path, notebook.link)), notebook.path)
        if not trainings:
            raise NotebookError("nb2ddp finds no training in it: it builds no training arguments")
        trainings = [replace(training, tokens=tokens) for training in trainings] if tokens else trainings
        answers = _answers(trainings, notebook.path.parent, kinds, gpus, offline=offline)
    except (NotebookError, ShapeError, GpuError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        click.echo(f"{source}: {reason.removeprefix(f'{source}: ')}", err=True)
        ctx.exit(2)
    click.echo(as_json(answers) if form == "json" else "\n\n".join("\n".join(lines(each)) for each in answers))


def trainings_in(text: str, path: Path) -> list[Training]:
    """Return the trainings of a notebook or script."""
    from nb2ddp.estimate.trainings import trainings
    from nb2ddp.facts.program import Program
    from nb2ddp.notebook.marimo import is_marimo
    from nb2ddp.notebook.reader import read_notebook
    from nb2ddp.notebook.scripts import parse_script
    from nb2ddp.options import Options

    is_python = path.suffix.lower() == ".py" and not is_marimo(text)
    read = parse_script if is_python else read_notebook
    return trainings(Program(read(f"# %%\n{text}" if is_python else text, path.stem), Options()))


def in_one_line(found: Sequence[Training], folder: Path, gpus: int) -> str:
    """Return one line on trainings, without the hub, or why there is none; empty if the size of a model is unknown.

    Args:
        found: the trainings.
        folder: the folder of the notebook or script.
        gpus: GPUs of the job.
    """
    try:
        return in_short(_answers(found, folder, (), gpus, offline=True))
    except UnknownError as error:
        return str(error)
    except (ShapeError, OSError):
        return ""


def _answers(
    trainings: Sequence[Training], folder: Path, kinds: Sequence[Gpu], gpus: int, *, offline: bool
) -> list[Answer]:
    if not all(training.per_device for training in trainings):
        raise UnknownError(
            "unknown: the notebook computes its batch; write per_device_train_batch_size and its accumulation as"
            " numbers"
        )
    if not all(training.tokens for training in trainings):
        raise UnknownError("unknown: the notebook computes its longest row; give it with --tokens")
    shapes = {
        name: shape_of(str(folder / name) if name and (folder / name).is_dir() else name, offline=offline)
        for name in dict.fromkeys(training.model for training in trainings)
    }
    return [answer(training, shapes[training.model], kinds, gpus) for training in trainings]


def lines(estimate: Answer) -> list[str]:
    """Return the lines about one training for a terminal."""
    training, shape = estimate.training, estimate.shape
    size = f"{shape.parameters / 1e9:.1f}B parameters ({shape.source})"
    adapters = f"{training.precision.replace('bit', '-bit')} LoRA (r = {training.rank})"
    method = adapters if training.rank else "full fine-tuning"
    text = [
        f"{training.model or 'the model'}: {size}",
        f"{training.trainer or 'training'}, {method}, {counted(estimate)}",
        "",
        f"{'':20}{'fits':18}{'rows at a time':18}{'checkpointing':16}peak memory",
    ]
    for fit in estimate.fits:
        fits = ("with batch size 1" if fit.needs_option else "yes") if fit.fits else "no"
        rows = f"{fit.rows} x {fit.pieces}" + (f" x {estimate.processes} GPUs" if estimate.processes > 1 else "")
        on, peak = "on" if fit.checkpointing else "off", f"{fit.peak / 1e9:.0f} GB"
        text.append(f"{fit.gpu.name:20}{fits:18}{rows:18}{on:16}{peak:>8}")
    if any(fit.needs_option for fit in estimate.fits):
        text.append("with batch size 1: convert with --batch 1")
    if not any(fit.fits for fit in estimate.fits):
        text.append("None of these GPUs holds the whole model, as DDP requires: name a larger one with --gpu, or set")
        text.append("split-model = true in pyproject.toml: one process spreads the model over GPUs, which work in turn")
    text += ["", f"{gain(estimate)}."]
    if not estimate.is_measured:
        text.append("Models of this family were not measured: the real peak may differ by half of this figure.")
    return text


def as_json(answers: Sequence[Answer]) -> str:
    """Return the answers as JSON, with sizes in bytes."""
    trainings = [
        {
            "model": estimate.training.model,
            "parameters": int(estimate.shape.parameters),
            "source": estimate.shape.source,
            "trainer": estimate.training.trainer,
            "precision": estimate.training.precision,
            "lora_rank": estimate.training.rank or None,
            "tokens": estimate.training.tokens,
            "samples_a_step": estimate.training.samples,
            "gpus": estimate.processes,
            "busy_gpus": estimate.busy,
            "measured": estimate.is_measured,
            "fits": [
                {
                    "gpu": fit.gpu.name,
                    "memory": int(fit.gpu.memory),
                    "fits": fit.fits,
                    "rows": fit.rows,
                    "accumulation": fit.pieces,
                    "checkpointing": fit.checkpointing,
                    "peak": int(fit.peak),
                    "per_device_batch_size_1": fit.needs_option,
                }
                for fit in estimate.fits
            ],
        }
        for estimate in answers
    ]
    return json.dumps({"tokens_that_keep_a_gpu_busy": BUSY, "trainings": trainings}, indent=2)
