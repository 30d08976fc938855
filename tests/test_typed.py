"""Every block of commands in README and docs runs unchanged, with stand-ins for the programs of other projects."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nb2ddp import convert_file
from tests import stand_in
from tests.notebooks import CELLS, write

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
BLOCK = re.compile(r"```(?:sh|bash)\n(.*?)```", re.DOTALL)
PAGES = [path for path in DOCUMENTS if BLOCK.search(path.read_text(encoding="utf-8"))]
#: Commands that run elsewhere: the README's first ones (.ci/run, tests/e2e/test_run.py), and benchmarks on GPUs.
ELSEWHERE = re.compile(r"python3 -m (venv \.venv|tests)|uvx --from \. |pip install -e ", re.DOTALL)
INSTALLS = "!pip install unsloth\n!pip install --no-deps trl==0.22.2\n!pip install --no-build-isolation flash-attn"
#: This project's command, in which a rehearsal ends after its options are read.
OWN = """\
#!{python}
import sys
sys.path.insert(0, {root!r})
from nb2ddp.__main__ import main
from nb2ddp.cli import rehearse
rehearse.run = lambda *arguments, **options: 0
main()
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell."""
    made = stand_in.install(tmp_path / "programs", tmp_path / "log")
    own = tmp_path / "programs" / "nb2ddp"
    own.write_text(OWN.format(python=sys.executable, root=str(ROOT)))
    own.chmod(0o755)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "x", "SLURM_JOB_NODELIST": "node[0-1]"}
    return {**made, **job, "HOME": str(tmp_path), "NB2DDP_CACHE_DIR": str(tmp_path / "cache")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the pages name."""
    made = tmp_path / "work"
    for name in ("finetune", "notebook", "grpo"):
        training = CELLS[2].replace("SFT", "GRPO") if name == "grpo" else CELLS[2]
        write(made / f"{name}.ipynb", INSTALLS, CELLS[1], training, *CELLS[3:])
    convert_file(made / "finetune.ipynb", made / "train.py")
    (made / "rows.jsonl").write_text('{"text": "a"}\n')
    (made / "nb2ddp").mkdir()
    (made / "nb2ddp" / "pyproject.toml").touch()
    return made


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_lines_of_a_page_run_in_their_order(page: Path, folder: Path, environment: dict[str, str]) -> None:
    for section in re.split(r"^##+ ", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
        environment["MACHINES"] = "2" if "machine_rank" in section or "--machines 2" in section else "1"
        for block in BLOCK.findall(section):
            if not ELSEWHERE.match(block):
                command = ["bash", "-ec", block]
                done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
                assert done.returncode == 0, (block, done.stdout, done.stderr)
