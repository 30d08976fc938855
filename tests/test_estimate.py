"""`nb2ddp estimate`: its output for notebooks, and how close it is to measurements."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.estimates import Run, runs
from nb2ddp.cli.main import main
from nb2ddp.estimate import hub
from nb2ddp.estimate.answer import BUSY, Fit, answer, gain, in_short
from nb2ddp.estimate.gpus import GpuError, gpu_of
from nb2ddp.estimate.shapes import ShapeError, from_config, from_name, shape_of
from nb2ddp.estimate.trainings import Training, trainings
from nb2ddp.facts.program import Program
from nb2ddp.notebook.scripts import parse_script
from nb2ddp.options import Options
from tests.examples import table
from tests.notebooks import write

ALPACA = Path(__file__).parent.parent / "fixtures" / "notebooks" / "alpaca.ipynb"
LOAD = """\
from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.1-8B", max_seq_length = 2048, {})
model = FastLanguageModel.get_peft_model(model, r = 16)
trainer = SFTTrainer(model = model, train_dataset = dataset, args = SFTConfig(
    per_device_train_batch_size = 2, gradient_accumulation_steps = 4))
trainer.train()
"""

SHORT = (
    "2 GPUs need more than 8 samples of up to 400 tokens a step (two were 0.6 to 0.9 times as fast as one): "
    "gradient_accumulation_steps = 15 makes 30"
)


def training(source: str) -> Training:
    (found,) = trainings(Program(parse_script(f"# %%\n{source}", "made up"), Options()))
    return found


def estimated(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["estimate", *words, "--offline"])
    return result.exit_code, result.output


def fit(source: str, gpu: str, processes: int = 1) -> Fit:
    found = training(source)
    return answer(found, from_name(found.model), [gpu_of(gpu)], processes).fits[0]


def test_each_training_has_its_own_adapters_and_rows() -> None:
    first = LOAD.format("load_in_4bit = True").replace("dataset, args", "dataset, max_seq_length = 512, args")
    second = LOAD.format("load_in_4bit = True").replace("r = 16", "r = 8").replace("dataset, args", "rows, args")
    found = trainings(Program(parse_script(f"# %%\n{first}# %%\n{second}", "made up"), Options()))
    assert [(each.rank, each.tokens) for each in found] == [(16, 512), (8, 2048)]


@pytest.mark.parametrize("run", list(runs()), ids=lambda run: f"{run.kind}-{run.precision}-{run.rows}x{run.tokens}")
def test_no_estimate_is_below_the_measured_peak(run: Run) -> None:
    assert 1.0 <= run.ratio <= 1.5


def test_what_is_read_of_a_notebook() -> None:
    found = training(LOAD.format("load_in_4bit = True"))
    assert (found.trainer, found.precision, found.rank) == ("SFTTrainer", "4bit", 16)
    assert (found.samples, found.tokens, found.can_skip) == (8, 2048, True)


@table(__file__, "numbers of settings")
def test_numbers_of_settings(code: str, answers: list[str]) -> None:
    found = training(code)
    assert (found.per_device, found.samples, found.tokens) == (4, 16, 512)


@table(__file__, "unknown batch")
def test_what_nothing_tells_is_said(code: str, answers: list[str], tmp_path: Path) -> None:
    assert training(code).per_device == 0
    notebook = str(write(tmp_path / "sft.ipynb", code))
    output = CliRunner().invoke(main, [notebook]).output
    assert "Estimate: unknown: the notebook computes its batch; write per_device_train_batch_size" in output
    exit_code, output = estimated(notebook)
    assert exit_code == 2
    assert "sft.ipynb: unknown: the notebook computes its batch" in output


def test_a_length_that_nothing_tells_may_be_given(tmp_path: Path) -> None:
    notebook = write(tmp_path / "sft.ipynb", LOAD.replace("2048", "longest(rows)").format(""))
    code, output = estimated(str(notebook))
    assert code == 2
    assert "unknown: the notebook computes its longest row; give it with --tokens" in output
    code, output = estimated(str(notebook), "--tokens", "450")
    assert code == 0
    assert "8 samples of up to 450 tokens a step" in output


def test_a_script_of_shared_batches_is_told_as_its_notebook() -> None:
    shared = training(
        "from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments\n"
        "from sentence_transformers.losses import MultipleNegativesRankingLoss\n"
        "shared_batch = share_batches(256)\n"
        "args = SentenceTransformerTrainingArguments(per_device_train_batch_size = shared_batch)\n"
        "trainer = SentenceTransformerTrainer(model, args = args, loss = MultipleNegativesRankingLoss(model))\n"
        "trainer.train()\n"
    )
    assert shared.per_device == 256


@pytest.mark.parametrize(
    ("argument", "precision"),
    [
        ("load_in_4bit = True", "4bit"),
        ("load_in_4bit = False", "16bit"),
        ("load_in_8bit = True", "8bit"),
        ("load_in_4bit = False, full_finetuning = True", "full"),
        ("load_in_4bit = False, dtype = torch.float32", "32bit"),
    ],
)
def test_precision(argument: str, precision: str) -> None:
    assert training(LOAD.format(argument)).precision == precision


def test_a_smaller_gpu_keeps_checkpointing_and_a_larger_one_does_not() -> None:
    small, large = (fit(LOAD.format("load_in_4bit = True"), gpu) for gpu in ("T4", "H100"))
    assert (small.fits, small.checkpointing, small.rows) == (True, True, 2)
    assert (large.fits, large.checkpointing) == (True, False)
    assert large.peak > small.peak


def test_full_fine_tuning_of_8b_does_not_fit_24_gb() -> None:
    full = LOAD.format("load_in_4bit = False, full_finetuning = True")
    assert not fit(full, "RTX 4090").fits
    assert fit(full, "H100").fits


def test_completions_are_divided_as_in_the_script() -> None:
    grpo = LOAD.replace("SFT", "GRPO").replace("per_device_train", "num_generations = 4, per_device_train")
    found = training(grpo.format("load_in_4bit = True"))
    assert found.split == "split_completions(2, 4, 4)"
    assert [found.divided(processes, 16e9) for processes in (1, 2, 3)] == [(2, 4), (2, 2), (2, 2)]


def test_in_short() -> None:
    found = training(LOAD.format("load_in_4bit = True"))
    long = in_short([answer(found, from_name(found.model), (), 1)])
    assert long == "fits 12 GB; 8 samples of up to 2,048 tokens a step keep 2 GPUs busy"
    short = in_short([answer(replace(found, tokens=400), from_name(found.model), (), 1)])
    assert short == f"fits 12 GB; {SHORT}"
    large = replace(found, precision="full", model="unsloth/Llama-3.3-70B-Instruct")
    assert in_short([answer(large, from_name(large.model), (), 1)]).startswith("does not fit 192 GB; ")
    assert in_short([]) == ""


def test_in_short_says_where_only_a_smaller_batch_fits() -> None:
    found = replace(training(LOAD.format("load_in_4bit = True")), tokens=8192, checkpoints=False, can_skip=False)
    summary = in_short([answer(found, from_name(found.model), (), 1)]).partition(";")[0]
    assert re.fullmatch(r"fits \d+ GB with --batch 1, \d+ GB without", summary)


def grpo(per_device: int, accumulation: int, generations: int) -> Training:
    source = LOAD.replace("SFT", "GRPO").replace(
        "per_device_train_batch_size = 2, gradient_accumulation_steps = 4",
        f"num_generations = {generations}, max_prompt_length = 128, max_completion_length = 128, "
        f"per_device_train_batch_size = {per_device}, gradient_accumulation_steps = {accumulation}",
    )
    return training(source.format("load_in_4bit = True"))


@pytest.mark.parametrize("gpus", [2, 3, 4])
@pytest.mark.parametrize("generations", [4, 6, 8])
def test_advice_holds_in_the_script(generations: int, gpus: int) -> None:
    """It once advised 32 for 6 generations, which the script's split turns into 192 completions."""
    advice = gain(answer(grpo(1, 1, generations), from_name("unsloth/Llama-3.1-8B"), (), gpus))
    steps, makes = map(int, re.findall(r"gradient_accumulation_steps = (\d+) makes (\d+)$", advice)[0])
    advised = grpo(1, steps, generations)
    assert advised.samples == makes == gpus * math.prod(advised.divided(gpus, 80e9))
    assert 2 * gpus * BUSY > makes * 256 >= gpus * BUSY


def test_advice_for_a_batch_that_is_shared() -> None:
    pool = replace(training(LOAD.format("")), split="", per_device=128, tokens=64)
    advice = gain(answer(pool, from_name("unsloth/Llama-3.1-8B"), (), 2))
    assert advice.endswith(": per_device_train_batch_size = 256 makes 256")


def test_gpus_that_take_more() -> None:
    summary = in_short([answer(grpo(3, 1, 3), from_name("unsloth/Llama-3.1-8B"), (), 2)])
    assert "; 2 GPUs take 6 instead of 3 completions of up to 256 tokens a step: " in summary


@pytest.mark.parametrize("gpus", [2, 4])
def test_the_answer_is_for_the_gpus_that_were_asked_for(gpus: int, tmp_path: Path) -> None:
    notebook = write(tmp_path / "sft.ipynb", LOAD.format("load_in_4bit = True").replace("2048", "450"))
    line = f"{gpus} GPUs need more than 8 samples of up to 450 tokens a step (two were 0.6 to 0.9 times as fast as one)"
    assert line in estimated(str(notebook), "--gpus", str(gpus))[1]
    assert line in CliRunner().invoke(main, [str(notebook), "--gpus", str(gpus)]).output


def test_in_short_tells_of_several_trainings() -> None:
    found = training(LOAD.format("load_in_4bit = True"))
    long, short = (answer(replace(found, tokens=n), from_name(found.model), (), 1) for n in (2048, 400))
    assert in_short([long, long]) == "fits 12 GB; 8 samples of up to 2,048 tokens a step keep 2 GPUs busy"
    least = f"fits 12 GB; {SHORT}, the least of 4 trainings"
    assert in_short([long, short, long, long]) == least


def test_a_script_is_told_as_its_notebook(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    CliRunner().invoke(main, [str(ALPACA), str(script)])
    assert estimated(str(script), "--format", "json") == estimated(str(ALPACA), "--format", "json")


def test_json() -> None:
    code, output = estimated(str(ALPACA), "--format", "json", "--gpu", "H100", "--tokens", "450")
    (found,) = json.loads(output)["trainings"]
    assert code == 0
    assert (found["tokens"], found["samples_a_step"], found["fits"][0]["gpu"]) == (450, 8, "H100 80 GB")


def test_a_config_in_a_folder_counts_before_the_name(tmp_path: Path) -> None:
    config = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert shape_of(str(tmp_path)).hidden_size == 64


def test_the_hub_cache_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--me--secret" / "snapshots" / "1"
    folder.mkdir(parents=True)
    config = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert shape_of("me/secret", offline=True).source == "the hub's cache"


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("unsloth/Llama-3.2-1B-Instruct-bnb-4bit", 1.24),
        ("unsloth/Qwen3-14B-unsloth-bnb-4bit", 14.8),
        ("unsloth/Qwen3-4B-Instruct-2507", 4.0),
        ("unsloth/gpt-oss-20b", 20.9),
        ("unsloth/Phi-4-mini-instruct", 3.84),
        ("unsloth/phi-4-unsloth-bnb-4bit", 14.7),
        ("someone/new-model-9b", 9.0),
        ("someone/tiny-350m", 0.35),
    ],
)
def test_sizes_from_names(name: str, billions: float) -> None:
    assert from_name(name).parameters / 1e9 == pytest.approx(billions, rel=0.05)


@pytest.mark.parametrize("name", ["unsloth/whisper-large-v3", "unsloth/csm-1b"])
def test_a_model_of_sound_has_no_estimate(name: str) -> None:
    with pytest.raises(ShapeError, match="takes sound; the estimate covers"):
        shape_of(name, offline=True)


def test_a_name_that_says_nothing() -> None:
    with pytest.raises(ShapeError, match="the size of someone/secret is unknown"):
        from_name("someone/secret")


def test_a_config_of_no_text_model() -> None:
    with pytest.raises(KeyError):
        from_config({"architectures": ["UNet"]}, "a file")


@pytest.mark.parametrize(("wanted", "name"), [("H100", "H100 80 GB"), ("h100 80gb", "H100 80 GB"), ("48GB", "48 GB")])
def test_gpus(wanted: str, name: str) -> None:
    assert gpu_of(wanted).name == name


@pytest.mark.parametrize("wanted", ["potato", "A100", "", "0GB"])
def test_gpus_that_are_none(wanted: str) -> None:
    with pytest.raises(GpuError):
        gpu_of(wanted)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("nowhere.ipynb",), "there is no such file"),
        ((str(ALPACA), "--gpu", "potato"), "unknown GPU: give its memory"),
        ((__file__,), "finds no training in it"),
    ],
)
def test_bad_input(words: tuple[str, ...], reason: str) -> None:
    code, output = estimated(*words)
    assert code == 2
    assert reason in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("value", "is_offline"), [("1", True), ("true", True), ("false", False), ("0", False), ("", False)]
)
def test_the_hub_is_offline_where_its_client_says_so(
    value: str, is_offline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", value)
    assert hub.is_offline() is is_offline
