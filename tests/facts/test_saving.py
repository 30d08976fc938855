"""Which calls of Unsloth's saving methods its newest release refuses."""

from __future__ import annotations

import pytest

from nb2ddp.facts.program import Program
from nb2ddp.facts.saving import saves, tokenizer_of, unknown_save_method
from nb2ddp.options import Options
from tests.notebooks import example_notebook

LOAD = 'from unsloth import FastModel\nmodel, tokenizer = FastModel.from_pretrained("m")\n'


def program(code: str) -> Program:
    return Program(example_notebook(code), Options())


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ('model.save_pretrained_gguf("a", tokenizer)', ["save_directory", "tokenizer"]),
        ('model.push_to_hub_gguf("a", token = "t", repo_id = "b")', ["repo_id", "token", "repo_id"]),
        ('model.save_pretrained_torchao("a", 1, 2, 3, 4, 5)', ["save_directory", "tokenizer", "torchao_config"]),
        ("model.save_pretrained_merged(*where, save_method = how)", ["save_method"]),
        ("model.save_pretrained_merged(**where)", []),
    ],
)
def test_arguments_by_name(call: str, given: list[str]) -> None:
    (save,) = saves(program(LOAD + call).execution)
    names = [name for name, _ in save.given]
    assert names[: len(given)] == given
    assert ("" in names) == (len(save.call.args) > len(save.takes))


@pytest.mark.parametrize(
    "code",
    [
        LOAD + 'def save_pretrained_gguf(folder):\n    pass\nself.save_pretrained_gguf("a")',
        LOAD + 'model.save_pretrained("a")',
        LOAD + 'if False:\n    model.save_pretrained_gguf("a")',
        'from unsloth import FastSentenceTransformer\nFastSentenceTransformer\nmodel.save_pretrained_gguf("a")',
        'model.save_pretrained_gguf("a")',
    ],
)
def test_other_calls(code: str) -> None:
    assert not list(saves(program(code).execution))


@pytest.mark.parametrize(
    ("method", "unknown"),
    [
        ("merged_16bit", ""),
        ("merged_4bit", "merged_4bit"),
        ("merged_4bit_forced", ""),
        ("lora", ""),
        ("FP8", ""),
        ("mxfp4", ""),
        ("q4_k_m", "q4_k_m"),
    ],
)
@pytest.mark.parametrize("call", ['save_pretrained_merged("a", tokenizer', 'push_to_hub_merged("a", tokenizer'])
@pytest.mark.parametrize("keyword", ["", "save_method = "])
def test_save_methods(method: str, unknown: str, call: str, keyword: str) -> None:
    code = f'{LOAD}METHOD = "{method}"\nmodel.{call}, {keyword}METHOD)'
    (save,) = saves((own := program(code)).execution)
    assert unknown_save_method(own.tree, save) == unknown


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (LOAD, "tokenizer"),
        (LOAD.replace("tokenizer", "processor") + "model = FastModel.get_peft_model(model)\n", "processor"),
        (LOAD.replace("tokenizer", "_"), ""),
        (LOAD.replace("model, ", "base, "), ""),
        (LOAD + LOAD.replace("tokenizer", "other"), ""),
        ("from unsloth import FastModel\nmodel = FastModel.from_pretrained('m')[0]\n", ""),
        ("from unsloth import FastModel\ndef load():\n    model, own = FastModel.from_pretrained('m')\n", ""),
    ],
)
def test_the_tokenizer_of_a_model(code: str, name: str) -> None:
    (save,) = saves((own := program(code + 'model.save_pretrained_gguf("a")\n')).execution)
    assert tokenizer_of(own.tree, own.loads, save.call) == name
