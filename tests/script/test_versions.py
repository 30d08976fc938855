"""The version guards of the setup block, each executed as a script has it, against installed versions."""

from __future__ import annotations

import importlib.metadata
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import quoted
from nb2ddp.notebook.ipynb import parse_notebook
from nb2ddp.options import Options
from nb2ddp.script.versions import GUARDS, LARGER_BATCH, Guard, guards
from tests.notebooks import text

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
SGD = text(LOAD.format(""), SFT.format('optim = "sgd"'))
REWARDED = text(LOAD.format(""), GRPO)
REWARDED_WITH_ENGINE = text(LOAD.format(", fast_inference = True"), GRPO)
REWARDED_WITHOUT_ENGINE = text(LOAD.format(", fast_inference = False"), GRPO)
VISION = text(LOAD.format("").replace("Llama-3.2-1B", "Qwen2-VL-2B"), SFT.format(""))
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

#: For each row of the table: notebooks that need it, and the nearest ones that do not.
NEEDED: list[tuple[list[str], list[str]]] = [
    ([REWARDED_WITH_ENGINE], [REWARDED, REWARDED_WITHOUT_ENGINE, TEXT]),
    ([REWARDED, REWARDED_WITH_ENGINE], [TEXT]),
    ([SGD], [TEXT, REWARDED]),
    ([TEXT, VISION], [REWARDED]),
    ([TEXT, VISION, REWARDED, UNKNOWN], []),
    ([TEXT, REWARDED], [VISION, UNKNOWN]),
    ([VISION], [TEXT, UNKNOWN]),
    ([UNKNOWN], [TEXT, SET, VISION]),
]
ROWS = [pytest.param(guard, *cases, id=guard.minimum) for guard, cases in zip(GUARDS, NEEDED, strict=True)]
ROWS_OF_NOTEBOOKS = [(guard, needing) for guard, (needing, _) in zip(GUARDS, NEEDED, strict=True)]


def script(notebook: str, **options: Any) -> str:
    return convert_source(notebook, options=Options(**options)).files["train.py"]


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Let `importlib.metadata` find packages in these versions before any that is installed."""
    for package, version in versions.items():
        about = folder / f"{package}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(folder)


def start(notebook: str, world_size: int = 2, **options: Any) -> dict[str, Any]:
    """Execute the guards of a notebook's script, as the main process; returns what they bind."""
    source = script(notebook, **options)
    guards = source[source.index("def is_older") : source.index("if torch.cuda.is_available()")]
    imports = (
        "import glob, sys, time\nfrom importlib.metadata import distributions\nfrom packaging.version import Version\n"
    )
    names: dict[str, Any] = {"world_size": world_size, "is_main_process": True}
    exec(imports + guards, names)
    return names


def before(version: str) -> str:
    """A release before a version: `2026.9.14` to `2026.9.13`."""
    *first, last = version.split(".")
    return ".".join([*first, str(int(last) - 1)])


def parse(notebook: str) -> Program:
    return Program(parse_notebook(notebook, "notebook"), Options())


def row(guard: Guard) -> str:
    return f'("{guard.package}", "{guard.minimum}", {quoted(guard.problem)}'


def says(guard: Guard) -> str:
    return f"{guard.package} {guard.minimum} or newer is needed on several GPUs: before it, {guard.problem}"


@pytest.mark.parametrize(("guard", "needing", "other"), ROWS)
def test_older(
    guard: Guard,
    needing: list[str],
    other: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    versions = {"unsloth": "9999.1.1", "unsloth_zoo": "9999.1.1", guard.package: before(guard.minimum)}
    install(tmp_path, monkeypatch, **versions)
    for notebook in needing:
        stopping = [g for g in guards(parse(notebook)) if g.stops and g.package == guard.package]
        if stopping:
            with pytest.raises(SystemExit) as ended:
                start(notebook)
            assert str(ended.value.code) == says(stopping[0])
        else:
            start(notebook)
            assert says(guard) in capsys.readouterr().err.splitlines()
        start(notebook, world_size=1)
        assert capsys.readouterr() == ("", "")
    for notebook in other:
        assert row(guard) not in script(notebook)


@pytest.mark.parametrize(("guard", "needing"), ROWS_OF_NOTEBOOKS, ids=[guard.minimum for guard in GUARDS])
@pytest.mark.parametrize("local", ["", "+local", ".post1"])
def test_new_enough(
    local: str,
    guard: Guard,
    needing: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    versions = {"unsloth": "9999.1.1", "unsloth_zoo": "9999.1.1", guard.package: guard.minimum + local}
    install(tmp_path, monkeypatch, **versions)
    for notebook in needing:
        assert row(guard) in script(notebook)
        with suppress(SystemExit):  # another row may want a newer version of the same package
            start(notebook)
        assert says(guard) not in capsys.readouterr().err


def test_first_fatal_line_is_the_one_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, unsloth="2025.1.1", unsloth_zoo="2025.1.1")
    with pytest.raises(SystemExit, match=r"unsloth_zoo 2026\.10\.9 or newer") as ended:
        start(REWARDED_WITH_ENGINE)
    assert "\n" not in str(ended.value.code)


@pytest.mark.parametrize("notebook", [TEXT, VISION, REWARDED, REWARDED_WITH_ENGINE, UNKNOWN])
def test_nothing_is_said_where_nothing_is_known(
    notebook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A clone of Unsloth on the path has no version."""
    start(notebook)  # imports what converting needs
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    names = start(notebook)
    assert names["is_older"]("unsloth", "9999.1.1") is False
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("notebook", [TEXT, SGD, VISION, REWARDED, REWARDED_WITH_ENGINE, UNKNOWN])
def test_installed_version(notebook: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        importlib.metadata.version("unsloth")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("Unsloth is not installed")
    start(notebook)
    assert capsys.readouterr() == ("", "")


def test_without_the_rule_that_sets_the_field(tmp_path: Path) -> None:
    assert row(GUARDS[-1]) not in script(TEXT)
    assert row(GUARDS[-1]) in script(TEXT, ignore=frozenset({"DDP202"}))


@pytest.mark.parametrize(("version", "expected"), [("2025.10.4", (1, 4)), (LARGER_BATCH.minimum, (2, 2))])
def test_batch_of_one(version: str, expected: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, unsloth=version)
    source = script(TEXT)
    names = {**start(TEXT), "world_size": 2}
    function = source[source.index("def split_batch") : source.index("# %% Cell")]
    exec(function, names)
    assert names["split_batch"](2, 4) == expected
    assert {**names, "world_size": 1}["split_batch"](2, 4)[0] in (1, 2)


def test_every_row_says_where_it_is_from() -> None:
    for guard in (*GUARDS, LARGER_BATCH):
        assert guard.source
        assert guard.problem == guard.problem.strip(". ")
        assert "\n" not in guard.problem
        assert '"' not in guard.problem
    stops = [guard.stops for guard in GUARDS]
    assert stops == sorted(stops, reverse=True), "what stops the script comes first"


def test_no_row_makes_a_long_line() -> None:
    for needing, _ in NEEDED:
        for notebook in needing:
            block, _, _ = script(notebook).partition("# %% Cell")
            assert [line for line in block.splitlines() if len(line) > 120] == []


@pytest.mark.parametrize(("training", "tries"), [(SFT.format(""), True), (GRPO, False)])
def test_kernel_trial_is_kept_apart_where_rows_are_packed(training: str, tries: bool) -> None:
    """Before everything that may compile a block, and only under the trainers that pack rows."""
    setup, _, rest = script(text(LOAD.format(""), training)).partition("# %% Cell")
    assert ("hf_packed_attention._varlen_in_graph_probe = try_kernel" in setup) is tries
    assert "_varlen_in_graph_probe" not in rest


@pytest.mark.parametrize("apart", [True, False])
def test_a_trial_apart_does_not_run_its_block_again(apart: bool) -> None:
    """What the setup block relies on: without hooks of its own, a trial's backward pass runs the block again."""
    import torch
    from torch.utils.checkpoint import checkpoint

    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    runs = 0

    def block(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal runs
        runs += 1
        if runs == 1:
            weight = torch.ones(2, requires_grad=True)
            with hooks if apart else nullcontext():
                (weight * weight).sum().backward()
        return tensor * tensor

    with nullcontext() if apart else suppress(RuntimeError):  # the second run saves other tensors, as torch then says
        checkpoint(block, torch.ones(2, requires_grad=True), use_reentrant=False)
    assert runs == (1 if apart else 2)
