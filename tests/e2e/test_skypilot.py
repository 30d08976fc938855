"""SkyPilot's own parser reads the task that a script gets with `--launcher skypilot`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nb2ddp.options import Launch
from nb2ddp.rehearsal import uv
from nb2ddp.script.launch import launch_files

pytestmark = [pytest.mark.e2e, pytest.mark.short]

VERSION = "0.14.1"
READ = """
import json, sky, sys, yaml
with open("train.sky.yaml") as file:
    config = yaml.safe_load(file)
task = sky.Task.from_yaml_config(config, [("BUCKET", "mine")], [("HF_TOKEN", "hf_x")])
(asked,) = task.resources
print(json.dumps([task.name, task.num_nodes, asked.accelerators, asked.use_spot, list(task.storage_mounts),
                  list(task.secrets), task.setup, sorted(task.envs)]))
"""


def test_skypilot_reads_the_task(tmp_path: Path) -> None:
    program = uv.found()
    if program is None:
        pytest.skip("uv is not there")
    launch = Launch(processes=16, machines=2, launcher="skypilot", gpu="A100-80GB", mixed_precision="bf16")
    about = {"secrets": ["HF_TOKEN"], "resume": True, "installs": ["pip install -r train.requirements.txt"]}
    (tmp_path / "train.sky.yaml").write_text(launch_files(launch, "train.py", **about)["train.sky.yaml"])  # type: ignore[arg-type]
    words = [program, "run", "--no-project", "--python", sys.executable, "--with", f"skypilot=={VERSION}"]
    environment = {"UV_CACHE_DIR": str(Path.home() / ".cache" / "uv"), **uv.settings(), "HOME": str(tmp_path)}
    run = subprocess.run(
        [*words, "python", "-c", READ], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    if "Failed to fetch" in run.stderr:
        pytest.skip("no package index answers")
    assert run.returncode == 0, run.stderr
    *said, setup, variables = json.loads(run.stdout.splitlines()[-1])
    assert said == ["train", 2, {"A100-80GB": 8}, True, ["/job"], ["HF_TOKEN"]]
    assert setup == "pip install -r train.requirements.txt\n"
    assert {"ACCELERATE_MIXED_PRECISION", "BUCKET"} <= set(variables)
