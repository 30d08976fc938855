"""Scripts for uv and launching notebooks: their contents, checked with the tools of their standards."""

from __future__ import annotations

import shlex

import nbformat
import pytest
from packaging.requirements import Requirement

from nb2ddp.convert import convert_source
from nb2ddp.notebook.ipynb import read_metadata
from nb2ddp.options import Launch, Options
from nb2ddp.versions import tables
from tests.notebook.test_marimo import TRAINING
from tests.notebooks import CELLS, text

INSTALLS = (
    "%%capture\n!pip install transformers==4.56.2 git+https://github.com/unslothai/unsloth-zoo\n"
    "!pip install --no-deps trl==0.22.2 --extra-index-url https://wheels.example.com/simple"
)


def converted(source: str, launcher: str, processes: int = 2) -> dict[str, str]:
    options = Options(launch=Launch(gpus=processes, launcher=launcher))  # type: ignore[arg-type]
    return convert_source(source, "x", "my train.py", options).files


class TestUv:
    def test_header_holds_the_installs(self) -> None:
        script = converted(text(INSTALLS, *CELLS[1:]), "uv")["my train.py"]
        metadata = read_metadata(script)
        assert metadata.requires_python == ">=3.10,<3.14"
        assert metadata.dependencies == (
            "accelerate",
            "transformers==4.56.2",
            "trl==0.22.2",
            "unsloth-zoo @ git+https://github.com/unslothai/unsloth-zoo",
            "unsloth>=2026.7.1",
        )
        assert all(Requirement(each) for each in metadata.dependencies)
        assert '# extra-index-url = ["https://wheels.example.com/simple"]\n' in script

    def test_header_has_what_unsloth_takes_for_what_does_not_fit_it(self) -> None:
        installs = "!pip install unsloth llama-index-packs-raft-dataset"
        script = converted(text(installs, *CELLS[1:]), "uv")["my train.py"]
        assert f'# override-dependencies = ["datasets{tables()["allowed"]["datasets"]}"]\n' in script

    def test_header_of_marimo_is_taken_over(self) -> None:
        metadata = read_metadata(converted(TRAINING, "uv")["my train.py"])
        assert metadata.dependencies == (
            "accelerate",
            "transformers<5",
            "trl==0.22.2",
            "unsloth>=2026.7.1",
            "unsloth_zoo>=2026.9.9",
        )
        assert metadata.requires_python == ">=3.10"

    def test_a_notebook_without_installs_needs_what_the_setup_block_imports(self) -> None:
        asked = read_metadata(converted(text(*CELLS[1:]), "uv")["my train.py"]).dependencies
        assert asked == ("accelerate", "unsloth>=2026.7.1", "unsloth_zoo>=2026.9.9")

    @pytest.mark.parametrize(("processes", "flavor"), [(1, "l4x1"), (2, "a10g-largex2"), (3, "FLAVOR"), (4, "l4x4")])
    def test_first_lines_say_how_to_start_it(self, processes: int, flavor: str) -> None:
        lines = converted(text(), "uv", processes)["my train.py"].split("\n")
        one, every, several, job = (shlex.split(line[1:].split(":", 1)[1]) for line in lines[2:6])
        assert one == ["uv", "run", "my train.py"]
        assert several[:5] == ["uv", "run", "--no-project", "--with-requirements", "my train.py"]
        assert several[5:9] == ["accelerate", "launch", "--config_file", "accelerate_config.yaml"]
        assert several[-1] == "my train.py"
        assert job[:8] == ["hf", "jobs", "uv", "run", "--flavor", flavor, "--secrets", "HF_TOKEN"]
        assert every == [*several[:5], "torchrun", "--nproc_per_node", "gpu", "my train.py"]
        assert job[8:] == (["my train.py"] if processes == 1 else every)


class TestNotebook:
    def test_installs_hands_on_secrets_writes_the_script_and_starts_it(self) -> None:
        secret = 'from google.colab import userdata\ntoken = userdata.get("WANDB_API_KEY")'
        files = converted(text(INSTALLS, secret, *CELLS[1:]), "notebook")
        notebook = nbformat.reads(files["my train.launch.ipynb"], as_version=4)
        nbformat.validate(notebook)
        sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        assert sources[1] == "!pip install --quiet -r 'my train.requirements.txt'"
        assert 'for name in ["HF_TOKEN", "WANDB_API_KEY"]:' in sources[2]
        assert sources[3] == "%%writefile 'my train.py'\n" + files["my train.py"].rstrip("\n")
        assert "accelerate launch --num_processes {processes}" in sources[4]
        assert "notebook_launcher" not in files["my train.launch.ipynb"]
        assert not any(name.endswith(".txt") for name in files), "the notebook contains the requirements"
