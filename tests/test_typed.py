"""Every block of commands in README and docs runs as it stands, with stand-ins for the programs of other projects."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nb2ddp.convert import convert_source
from tests import stand_in
from tests.command import Command
from tests.notebooks import CELLS, text, write

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
BLOCK = re.compile(r"```(?:sh|bash)\n(.*?)```", re.DOTALL)
PAGES = [path for path in DOCUMENTS if BLOCK.search(path.read_text(encoding="utf-8"))]
#: What other programs type: the README's first two commands (.ci/run), and benchmarks, which need GPUs.
ELSEWHERE = re.compile(r"python3 -m (venv \.venv|tests)|.*python -m benchmarks\.|pip install -e ", re.DOTALL)
INSTALLS = "!pip install unsloth\n!pip install --no-deps trl==0.22.2\n!pip install --no-build-isolation flash-attn"
#: This project's command, in which a rehearsal ends once its options are read.
OWN = """\
#!{python}
import sys
sys.path.insert(0, {root!r})
from nb2ddp.__main__ import main
from nb2ddp.cli import rehearse
rehearse.run = lambda *arguments, **options: 0
main(prog_name="nb2ddp")
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell."""
    made = stand_in.install(tmp_path / "programs", tmp_path / "log")
    own = tmp_path / "programs" / "nb2ddp"
    own.write_text(OWN.format(python=sys.executable, root=str(ROOT)))
    own.chmod(0o755)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[0-1]"}
    return {**made, **job, "HOME": str(tmp_path), "NB2DDP_CACHE_DIR": str(tmp_path / "cache")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with what the pages speak of."""
    made = tmp_path / "work"
    for name in ("finetune", "notebook", "grpo"):
        training = CELLS[2].replace("SFT", "GRPO") if name == "grpo" else CELLS[2]
        write(made / f"{name}.ipynb", INSTALLS, CELLS[1], training, *CELLS[3:])
    (made / "rows.jsonl").write_text('{"text": "a"}\n')
    (made / "nb2ddp").mkdir()
    (made / "nb2ddp" / "pyproject.toml").touch()
    return made


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_lines_of_a_page_run_in_their_order(page: Path, folder: Path, environment: dict[str, str]) -> None:
    for section in re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
        environment["MACHINES"] = "2" if "machine_rank" in section or "--num-machines 2" in section else "1"
        for block in BLOCK.findall(section):
            if not ELSEWHERE.match(block):
                command = ["bash", "-ec", block]
                done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
                assert done.returncode == 0, (block, done.stdout, done.stderr)


def test_what_commands_print_is_compared_elsewhere() -> None:
    """A block with what a command printed is of a page that a program writes, or whose text another test compares."""
    shown = {path.name for path in DOCUMENTS if "```console\n" in path.read_text(encoding="utf-8")}
    assert shown == {"README.md", "estimate.md", "first-hour.md", "when-a-job-ends-early.md"}


def test_the_estimate_is_what_its_page_shows(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "estimate.md").read_text(encoding="utf-8")
    (line, shown), *_ = re.findall(r"```console\n\$ nb2ddp (.*?)\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(ROOT)
    assert command(*line.split(), "--offline").stdout == shown


def test_the_difference_in_readme_is_that_of_a_conversion() -> None:
    (shown,) = re.findall(r"```diff\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    before, after = (
        "".join(f"{line[1:]}\n" for line in shown.splitlines() if line[:1] != other) for other in ("+", "-")
    )
    at = before.index("trainer = ")
    imports = "from unsloth import FastLanguageModel\nfrom trl import SFTConfig, SFTTrainer"
    adapters = "model = FastLanguageModel.get_peft_model(model)\ndataset = load_dataset('rows')"
    cells = (imports, before[:at], adapters, before[at:], "model.save_pretrained('lora')")
    script = convert_source(text(*cells)).files["train.py"]
    at = after.index("per_device_batch, ")
    for part in (after[:at], after[at:]):
        assert f"\n{part.rstrip()}\n" in script


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900
