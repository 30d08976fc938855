"""The examples in the documentation run unchanged."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.command import files
from tests.notebooks import write

ROOT = Path(__file__).parent.parent


def test_the_examples_of_the_api_run(tmp_path: Path) -> None:
    write(tmp_path / "finetune.ipynb")
    write(tmp_path / "notebooks/a.ipynb")
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    example = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(ROOT), "NB2DDP_CACHE_DIR": str(tmp_path / ".cache"), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "num_processes: 8" in done.stdout
    assert "notebooks/a.ipynb converted None" in done.stdout
    assert {"train.py", "accelerate_config.yaml", "scripts/a.py"} <= files(tmp_path)
