"""The setup block's check of installed versions, executed as in a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from nb2ddp.convert import convert_source
from nb2ddp.facts.program import Program
from nb2ddp.facts.releases import rows
from nb2ddp.notebook.ipynb import parse_notebook
from nb2ddp.options import Options
from nb2ddp.script.versions import floors, kinds
from tests.examples import table
from tests.notebooks import CELL_BREAK, code, text

LOAD = (
    "from unsloth import FastLanguageModel\n"
    'model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B"{})\n'
    "model = FastLanguageModel.get_peft_model(model)"
)
SFT = (
    "from trl import SFTConfig, SFTTrainer\ntrainer = SFTTrainer(model = model, args = SFTConfig({}))\ntrainer.train()"
)
GRPO = SFT.format("").replace("SFT", "GRPO")

TEXT = text(LOAD.format(""), SFT.format(""))
REWARDED = text(LOAD.format(""), GRPO)
REWARDED_WITH_ENGINE = text(LOAD.format(", fast_inference = True"), GRPO)
REWARDED_WITHOUT_ENGINE = text(LOAD.format(", fast_inference = False"), GRPO)
VISION = text(LOAD.format("").replace("Llama-3.2-1B", "Qwen2-VL-2B"), SFT.format(""))
WHOLE = text(
    "from unsloth import FastModel\n"
    'model, tokenizer = FastModel.from_pretrained("Qwen2-VL-2B", full_finetuning = True)',
    SFT.format(""),
)
UNKNOWN = text(
    "from unsloth import FastModel\nmodel, tokenizer = FastModel.from_pretrained(name)\n"
    "model = FastModel.get_peft_model(model)",
    SFT.format(""),
)
SET = text(
    "from unsloth import FastModel\nmodel, tokenizer = FastModel.from_pretrained(name)\n"
    "model = FastModel.get_peft_model(model)",
    SFT.format("ddp_find_unused_parameters = False"),
)

#: For each row of the table: notebooks that need it, and the most similar ones that do not.
NEEDED: list[tuple[list[str], list[str]]] = [
    ([REWARDED_WITH_ENGINE], [REWARDED, REWARDED_WITHOUT_ENGINE, TEXT]),
    ([REWARDED, REWARDED_WITH_ENGINE], [TEXT]),
    ([TEXT, VISION, REWARDED, UNKNOWN], []),
    ([TEXT, VISION, REWARDED, UNKNOWN], []),
    ([TEXT, REWARDED], [VISION, UNKNOWN]),
    ([VISION], [TEXT, UNKNOWN]),
    ([UNKNOWN, VISION], [TEXT, SET, WHOLE]),
]
ROWS = [pytest.param(row, *cases, id=row["minimum"]) for row, cases in zip(rows("floor"), NEEDED, strict=True)]
NOTEBOOKS = [TEXT, VISION, REWARDED, REWARDED_WITH_ENGINE, UNKNOWN]


def script(notebook: str, **options: Any) -> str:
    return convert_source(notebook, options=Options(**options)).files["train.py"]


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Let `importlib.metadata` find these versions of packages before the installed ones."""
    for package, version in versions.items():
        about = folder / f"{package}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(folder)


def start(notebook: str, world_size: int = 2) -> None:
    """Execute the check of a notebook's script as one of `world_size` processes."""
    source = script(notebook)
    check = source[(at := source.index("for package, oldest in")) : source.index("\n\n", at)]
    imports = "import sys\nfrom accelerate.utils import compare_versions\n"
    exec(imports + check, {"world_size": world_size})


def before(version: str) -> str:
    """Return the release before a version: `2026.9.13` for `2026.9.14`."""
    *first, last = version.split(".")
    return ".".join([*first, str(int(last) - 1)])


def parse(notebook: str) -> Program:
    return Program(parse_notebook(notebook, "notebook"), Options())


@pytest.mark.parametrize(("row", "needing", "other"), ROWS)
def test_a_row_concerns_its_notebooks(row: dict[str, str], needing: list[str], other: list[str]) -> None:
    for notebook in needing:
        program = parse(notebook)
        assert row["kind"] in kinds(program)
        assert Version(dict(floors(program))[row["package"]]) >= Version(row["minimum"])
    for notebook in other:
        assert row["kind"] not in kinds(parse(notebook))


@pytest.mark.parametrize("notebook", NOTEBOOKS)
@pytest.mark.parametrize("package", ["unsloth", "unsloth_zoo"])
def test_an_older_package_ends_every_process(
    package: str, notebook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    floor = dict(floors(parse(notebook)))[package]
    install(tmp_path, monkeypatch, **{"unsloth": "9999.1.1", "unsloth_zoo": "9999.1.1", package: before(floor)})
    with pytest.raises(SystemExit) as ended:
        start(notebook)
    assert ended.value.code == f"{package} {floor} or newer is needed on several GPUs"
    start(notebook, world_size=1)


def test_versions_are_compared_as_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, unsloth="2026.10.1", unsloth_zoo="2026.10.1")
    assert dict(floors(parse(TEXT))) == {"unsloth": "2026.7.1", "unsloth_zoo": "2026.9.9"}
    start(TEXT)


def test_one_process_asks_for_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clone of Unsloth on the path has no version."""
    pytest.importorskip("accelerate.utils")  # it asks for versions when it is imported
    monkeypatch.setattr("importlib.metadata.version", lambda package: 1 / 0)
    start(TEXT, world_size=1)


def test_a_notebook_without_unsloth_asks_for_nothing_of_it() -> None:
    trains = "from transformers import Trainer, TrainingArguments\nTrainer(m, TrainingArguments('o')).train()"
    setup, _, _ = script(text(trains)).partition("# %% Cell")
    assert "nsloth" not in setup.replace("UNSLOTH", "unsloth")
    assert "Version" not in setup


def test_without_the_rule_that_sets_the_field() -> None:
    options = Options(ignore=frozenset({"DDP202"}))
    assert dict(floors(Program(parse_notebook(TEXT, "notebook"), options)))["unsloth"] == rows("floor")[-1]["minimum"]


@pytest.mark.parametrize("row", rows("floor"), ids=lambda row: row["minimum"])
def test_every_row_is_on_the_page(row: dict[str, str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "setup-block.md").read_text(encoding="utf-8")
    assert f"| `{row['package']}` {row['minimum']} | " in page


@table(__file__)
def test_the_kernel_whose_test_hangs_is_off(code: str, answers: list[str]) -> None:
    """The variable is set before the import that reads it, and only for trainers that pack rows."""
    setup, _, _ = script(text(*code.split(f"\n{CELL_BREAK}"))).partition("\nimport unsloth")
    assert ('os.environ["UNSLOTH_TORCH_VARLEN"] = "0"' in setup) is bool(answers)


def test_the_warning_about_unused_parameters_is_hidden_only_where_ddp_may_look_for_them() -> None:
    hides = "TORCH_CPP_LOG_LEVEL"
    assert hides in script(UNKNOWN)
    assert hides in script(text(code(SET), SFT.format("")))
    assert hides not in script(SET)
    assert hides not in script(TEXT)
