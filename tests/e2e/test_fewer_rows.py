"""Fewer rows at a time, where those of the split do not fit without gradient checkpointing: the same training."""

from __future__ import annotations

from pathlib import Path

import pytest

from nb2ddp.api import convert_file
from nb2ddp.options import Options

from .runner import difference, run

pytestmark = pytest.mark.e2e

NOTEBOOK = Path(__file__).resolve().parents[2] / "fixtures" / "notebooks" / "alpaca.ipynb"
#: Another batch than 2 x 4, and as many steps as show it.
BATCH = {
    "per_device_train_batch_size = 2": "per_device_train_batch_size = 4",
    "gradient_accumulation_steps = 4": "gradient_accumulation_steps = 3",
    "max_steps = 20": "max_steps = 4",
}
#: Free and whole memory of a GPU in which a process can keep so many rows: the first has room for 3, the other for 100.
MEMORY = """
def memory(rows):
    config, weights = trainer.model.config, trainer.model.parameters()
    value = 2 if trainer.args.fp16 or trainer.args.bf16 else 4
    row = value * config.num_hidden_layers * (8.5 * config.hidden_size + 3 * config.intermediate_size)
    row *= max(map(len, trainer.train_dataset["input_ids"]))
    return (rows * row + 4 * sum(weight.nbytes for weight in weights if weight.requires_grad) + 3e8) / 0.85, 0


"""
ASKED = {
    "default=default)": "default=150e9)",
    "def skip_checkpointing_if_it_fits": MEMORY.lstrip() + "def skip_checkpointing_if_it_fits",
    "not torch.cuda.is_available() or model.config": "model.config",
    "*torch.cuda.mem_get_info()": '*memory([3.5, 100][int(os.environ["RANK"])])',
}


def write(script: Path, told: dict[str, str], options: Options) -> Path:
    """The notebook's script with another batch, and with these answers in place of these questions."""
    book = NOTEBOOK.read_text()
    for ours, other in BATCH.items():
        assert book.count(ours) == 1
        book = book.replace(ours, other)
    script.parent.mkdir()
    script.with_name("notebook.ipynb").write_text(book)
    convert_file(script.with_name("notebook.ipynb"), script, options)
    source = script.read_text()
    for asked, answer in told.items():
        assert source.count(asked) == 1
        source = source.replace(asked, answer)
    script.write_text(source)
    return script


def test_processes_with_unequal_memory_train_as_the_notebook_does(hub: Path, tmp_path: Path) -> None:
    kept = write(tmp_path / "kept" / "train.py", {}, Options(per_device_batch_size="notebook"))
    fewer = write(tmp_path / "fewer" / "train.py", ASKED, Options())
    one = run(kept, hub, tmp_path / "one", cuda_is_cpu=True)
    both = run(fewer, hub, tmp_path / "both", 2, cuda_is_cpu=True)
    assert [*one.problems(), *both.problems()] == []
    assert "Samples a step: 12 (per-device batch 6 x accumulation 1 x processes 2)" in both.ranks[0].stdout
    assert "Gradient checkpointing is off: without it 3 rows need 0.3 GB beside the model" in both.ranks[0].stdout
    assert "So the split is: per-device batch 3 x accumulation 2" in both.ranks[0].stdout
    assert difference(one.trainings, both.trainings, 4) < 1e-3
    norms = [[step.grad_norm for step in each.trainings[0]] for each in (one, both)]
    assert norms[0] == pytest.approx(norms[1], rel=2e-3)
