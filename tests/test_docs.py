"""The documents: links have targets, each line of docs/use.md works, and the output that they show is correct."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import jupytext
import pytest

from nb2ddp.convert import convert_source
from nb2ddp.project import links
from tests.command import Command, files
from tests.notebook.test_marimo import TRAINING
from tests.notebooks import text, write

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "use.md").read_text(encoding="utf-8")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("action/*.md")])


def lines(title: str) -> list[str]:
    """Return the commands in the second column of the table below a title."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^\|[^|]*\| `(nb2ddp [^`]*)` \|$", section, re.MULTILINE)


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of each form, under its name on the page. Links lead to one of these files."""
    node = jupytext.reads(text(), "ipynb")
    write(tmp_path / "finetune.ipynb")
    (tmp_path / "notebooks").mkdir()
    for name, source in {
        "alpaca_marimo.py": TRAINING,
        "alpaca_percent.py": jupytext.writes(node, "py:percent"),
        "notebooks/a.py": TRAINING,
    }.items():
        (tmp_path / name).write_text(source)
    served = {".py": TRAINING}
    monkeypatch.setattr(links, "fetch", lambda link: served.get(Path(link).suffix, text()).encode())
    return tmp_path


@pytest.mark.parametrize("line", [*lines("Inputs"), *lines("Destinations")])
def test_a_line_of_the_tables(command: Command, inputs: Path, line: str) -> None:
    result = command(*shlex.split(line)[1:])
    assert result.exit_code == 0, result.output
    script = "scripts/a.py" if "-o scripts" in line else "train.py"
    assert "def split_" in (inputs / script).read_text()
    beside = {"torchrun": "train.torchrun.sh", "slurm": "train.sbatch", "notebook": "train.launch.ipynb"}
    for launcher, name in beside.items():
        assert (f"--launcher {launcher}" in line) == (name in files(inputs))
    assert ("--launcher uv" in line) == ("# /// script" in (inputs / script).read_text())


def test_both_tables_are_there() -> None:
    assert (len(lines("Inputs")), len(lines("Destinations"))) == (10, 6)


def anchors(document: Path) -> set[str]:
    """Return the names that GitHub uses to link to a document's headings."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


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
