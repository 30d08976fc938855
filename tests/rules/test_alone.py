"""After the last training only the main process runs, and its code is the same as in the notebook."""

from __future__ import annotations

from nb2ddp.convert import convert_source
from nb2ddp.options import Options
from tests.examples import table
from tests.notebooks import text

LOAD = "from unsloth import FastLanguageModel\n"
TRAIN = 'from trl import SFTTrainer\nmodel, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen3-0.6B")\n'
TRAIN += "rows = [1, 2]\ntrainer = SFTTrainer(model = model)\ntrainer.train()"
RESET = "PartialState._reset_state()"


def converted(*cells: str, options: Options | None = None) -> str:
    return convert_source(text(*cells), options=options).files["train.py"]


@table(__file__)
def test_what_asks_for_processes_stays_as_it_is_and_finds_one(code: str, answers: list[str]) -> None:
    script = converted(LOAD + TRAIN, code)
    assert script.endswith(f"\n{code}\n")
    assert RESET in script


def test_a_python_program_finds_one_process() -> None:
    assert RESET in converted(LOAD + TRAIN, "!python evaluate.py")
    assert RESET not in converted(LOAD + TRAIN, "!zip -r lora.zip lora")


def test_other_code_leaves_the_launchers_variables() -> None:
    assert RESET not in converted(LOAD + TRAIN, 'model.save_pretrained("lora")')
    assert RESET not in converted(LOAD + TRAIN, "import asyncio\nanswers = await asyncio.gather(ask(1), ask(2))")


def test_a_function_that_loads_before_and_after_places_its_model() -> None:
    script = converted(
        LOAD
        + "def loaded(path):\n    return FastLanguageModel.from_pretrained(path)\nmodel, tokenizer = loaded('base')",
        "from trl import SFTTrainer\ntrainer = SFTTrainer(model = model)\ntrainer.train()",
        "model, tokenizer = loaded('lora')",
    )
    assert "from_pretrained(path, device_map=local_rank)" in script


def test_with_an_engine_the_group_stays_and_so_does_the_place() -> None:
    load = LOAD + TRAIN.replace('0.6B"', '0.6B", fast_inference = True').replace("SFT", "GRPO")
    script = converted(load, 'model, tokenizer = FastLanguageModel.from_pretrained("lora")')
    assert RESET not in script
    assert script.count("local_rank)") >= 2
