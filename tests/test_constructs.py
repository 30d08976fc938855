"""One small notebook for each construct, with its script or its refusal, byte for byte.

`python -m tests.test_constructs` writes the expected files anew; review the difference before it is committed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import nbformat
import pytest

from nb2ddp.convert import convert_source
from nb2ddp.results import Conversion, NotebookError, Severity

FOLDER = Path(__file__).parent.parent / "fixtures" / "constructs"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
EXPECTED = FOLDER / "expected"

#: What a notebook may hold, and the fixture that shows it.
TRAINERS = {
    "SFTTrainer": "legacy_keywords",
    "GRPOTrainer": "grpo",
    "GRPOTrainer with vLLM": "grpo_vllm",
    "DPOTrainer": "dpo",
    "a patch named like a trainer": "preference_patch",
    "ORPOTrainer": "orpo",
    "KTOTrainer": "kto",
    "RewardTrainer": "reward",
    "Trainer": "classification",
    "Seq2SeqTrainer": "seq2seq",
    "SentenceTransformerTrainer": "embeddings",
    "UnslothTrainer, unsloth_train": "unsloth_trainer",
    "subclasses of trainer and config": "trainer_subclass",
    "config in a dictionary": "config_in_dictionary",
    "config with keywords passed on": "keywords_passed_on",
    "several configs in a statement, a list of trainers": "several_configs",
    "train_on_responses_only": "wrapped_trainer",
    "TrainingArguments beside a TRL trainer": "dpo",
    "legacy keywords on the trainer": "legacy_keywords",
    "reward functions that print and count": "grpo",
    "vision": "vision",
    "audio": "seq2seq",
    "mixture of experts": "moe",
    "a data loader of its own": "own_loader",
}
PHASES = {
    "names across phases, two trainings": "names_across_phases",
    "training in if": "if_training",
    "training in try": "train_in_try",
    "training in a function": "train_in_main",
    "training handed on as a value": "handed_on",
    "training in a cell that installs": "one_cell",
    "training in a loop": "train_in_loop_with_saves",
    "resume_from_checkpoint": "resume_from_checkpoint",
    "a vLLM engine in the process": "grpo_vllm",
    "evaluate and predict after training": "evaluate_after_training",
    "files written before training": "early_files",
    "a file written and read in a function": "written_and_read",
    "temporary folders": "temporary_folder",
    "login and uploads": "tokens_and_uploads",
    "downloads and clones": "shell_in_suites",
    "what one process does and all need": "shared_results",
    "a server": "server",
    "remote data": "remote_data",
    "unseeded randomness": "seeds",
    "wandb": "tracker_wandb",
}
NOTEBOOK_ONLY = {
    "%%capture after a title": "other_cell_magics",
    "%%capture with a variable": "capture_variable",
    "%%capture with a comment as argument": "capture_comment",
    "settings of the interactive shell": "shell_setting",
    "%%bash, %%sh, %%time, %%html": "other_cell_magics",
    "%%writefile, %%file": "writefile",
    "%env, %cd, %pip, %load_ext, %matplotlib": "line_magics",
    "automagic": "automagic",
    "! in any suite, continued lines": "shell_in_suites",
    "{}, $ and literal braces": "interpolation",
    "background &": "background",
    "x = !cmd, !!": "assigned_shell",
    "?": "help_requests",
    "get_ipython()": "ipython_object",
    "display and its classes, pandas": "shown_values",
    "plots": "figures",
    "await": "await",
    "breakpoints": "debugger",
    "tqdm.notebook": "progress_bars",
    "Colab forms, drive, userdata, files": "colab_forms",
    "Colab folders": "colab_folder",
    "Kaggle secrets and paths": "secrets_of_kaggle",
    "input, getpass, notebook_login": "asked_token",
}
REFUSED = {
    "no training": "no_training",
    "training that never starts": "never_started",
    "hand-written loop": "handwritten_loop",
    "launchers inside": "torchrun",
    "notebook_launcher": "notebook_launcher",
    "FSDP": "sharded",
    "imported training": "imported_training",
    "cell that is not Python": "not_python",
    "open bracket": "broken_cell",
    "unbalanced quotes": "unbalanced_quotes",
    "another language": "other_language",
    "training in a thread": "training_in_thread",
    "a cell that is Python only with the next one": "decorator_alone",
}
#: Constructs whose script is written with a warning, and the code of the warning.
REPORTED = {
    ("model split over GPUs", "DDP104"): "several_gpus",
    ("GPUs chosen by the notebook", "DDP103"): "several_gpus",
    ("train() in try", "DDP408"): "train_in_try",
    ("unknown names", "DDP005"): "unknown_names",
    ("out-of-order cells", "DDP005"): "out_of_order",
    ("folders of a hosted notebook", "DDP310"): "colab_folder",
    ("line magics for a person", "DDP303"): "magics_without_counterpart",
    ("cell magics for a person", "DDP309"): "magics_without_counterpart",
    ("a batch from elsewhere", "DDP201"): "keywords_passed_on",
    ("settings that are changed later", "DDP201"): "settings_changed",
    ("questions", "DDP311"): "asked_token",
    ("widgets", "DDP308"): "widgets",
    ("samples compared within a device", "DDP201"): "kto",
}
FORMATS = {
    "nbformat 3": "nbformat3",
    "cells as one string": "source_as_string",
    "raw cells": "raw_and_markdown",
    "other alphabets": "non_english",
    "names of the setup block": "name_collisions",
    "names that inserted code imports, and functions of Python": "taken_name",
}


def convert(notebook: Path) -> Conversion | NotebookError:
    try:
        return convert_source(notebook.read_text(encoding="utf-8"), notebook.stem, f"{notebook.stem}.py")
    except NotebookError as error:
        return error


def result(notebook: Path) -> tuple[str, str]:
    """The name and the text of what a notebook becomes."""
    done = convert(notebook)
    if isinstance(done, NotebookError):
        return f"{notebook.stem}.refusal.txt", f"{done.code}\n{done.location or 'the file'}\n{done.message}\n"
    return f"{notebook.stem}.py", done.files[f"{notebook.stem}.py"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_golden(notebook: Path) -> None:
    name, text = result(notebook)
    assert text == (EXPECTED / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("script", sorted(EXPECTED.glob("*.py")), ids=lambda path: path.stem)
def test_script_compiles(script: Path) -> None:
    compile(script.read_text(encoding="utf-8"), script.name, "exec")


@pytest.mark.parametrize("refusal", sorted(EXPECTED.glob("*.refusal.txt")), ids=lambda path: path.stem)
def test_refusal_has_a_code_a_place_and_a_reason(refusal: Path) -> None:
    code, place, message = refusal.read_text(encoding="utf-8").splitlines()
    assert code.startswith("DDP")
    assert code != "DDP000"
    assert place
    assert len(message.split()) > 3


def test_every_notebook_has_one_expected_file() -> None:
    stems = [path.name.split(".", 1)[0] for path in EXPECTED.iterdir()]
    assert sorted(stems) == [path.stem for path in NOTEBOOKS]


def test_every_construct_has_a_fixture_and_every_fixture_a_construct() -> None:
    tables: tuple[Iterable[str], ...] = (
        TRAINERS.values(),
        PHASES.values(),
        NOTEBOOK_ONLY.values(),
        REFUSED.values(),
        REPORTED.values(),
        FORMATS.values(),
    )
    assert {stem for table in tables for stem in table} == {path.stem for path in NOTEBOOKS}


def test_refused() -> None:
    assert {path.name.split(".", 1)[0] for path in EXPECTED.glob("*.refusal.txt")} == set(REFUSED.values())


@pytest.mark.parametrize(("construct", "stem"), REPORTED.items(), ids=str)
def test_reported(construct: tuple[str, str], stem: str) -> None:
    done = convert(FOLDER / f"{stem}.ipynb")
    assert isinstance(done, Conversion)
    found = [d for d in done.diagnostics if d.code == construct[1] and d.severity is Severity.WARNING]
    assert found
    assert all(d.file_line and d.line_text for d in found)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_valid(notebook: Path) -> None:
    nbformat.validate(json.loads(notebook.read_text(encoding="utf-8")))


if __name__ == "__main__":
    EXPECTED.mkdir(exist_ok=True)
    for path in NOTEBOOKS:
        name, text = result(path)
        for stale in EXPECTED.glob(f"{path.stem}.*"):
            stale.unlink()
        (EXPECTED / name).write_text(text, encoding="utf-8")
