"""Scripts of other kinds that are trained again on one and two GPUs: `benchmarks/grpo.py` runs them beside its own.

`SCRIPTS` says for each the notebook of `benchmarks/gpu/notebooks` and what is set in it. `split` has its model on two
GPUs and one process; `kaggle` is the notebook that launches a script on Kaggle's two GPUs, its cells run one by one.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

EXACT = {"model_name": '"bench/MiniLM-exact"'}
REPEATED = {
    **EXACT,
    "dataset": 'load_dataset("bench/repeated", split = "train")',
    "seed": '3407, batch_sampler = "no_duplicates"',
}
TWICE = {"gradient_accumulation_steps": "2"}
SMALL = {"model_name": '"bench/Llama-small"', "max_seq_length": "512"}
SCRIPTS: dict[str, tuple[str, Mapping[str, str]]] = {
    "embeddings": ("embeddings", EXACT),
    "embeddings-accumulated": ("embeddings", {**EXACT, **TWICE}),
    "embeddings-repeated": ("embeddings", REPEATED),
    "embeddings-repeated-accumulated": ("embeddings", {**REPEATED, **TWICE}),
    "classification": ("classification", {}),
    "full": ("sft", {**SMALL, "load_in_4bit": "False", "full_finetuning": "True", "learning_rate": "2e-5"}),
    "experts": (
        "experts",
        {"model_name": '"bench/Qwen3-MoE"', "load_in_4bit": "False", "gradient_accumulation_steps": "4"},
    ),
    "split": ("sft", {**SMALL, "load_in_4bit": "False", "dtype": 'None, device_map = "balanced"'}),
    "kaggle": ("sft", SMALL),
}
SCRIPTS["split-notebook"] = SCRIPTS["split"]  # the notebook's own code, as nbconvert exports it
TWO_GPUS_IN_ONE_PROCESS = {"split", "split-notebook", "kaggle"}
#: Runs the cells of a notebook: what begins with %%writefile is written, lines with ! are run, IPython shows nothing.
CELLS = """\
import re, subprocess, sys, types
from pathlib import Path

shown = types.ModuleType("IPython.display")
shown.Audio = shown.Image = shown.display = print
sys.modules["IPython"], sys.modules["IPython.display"] = types.ModuleType("IPython"), shown


def shell(line):
    global _exit_code
    words = line.replace("accelerate launch", f"{sys.executable} -m accelerate.commands.launch")
    _exit_code = 0 if line.startswith("pip ") else subprocess.run(words, shell=True).returncode


for cell in CELLS:
    if cell.startswith("%%writefile "):
        name, _, text = cell.partition("\\n")
        Path(name.split()[1]).write_text(text)
    else:
        exec(re.sub(r"(?m)^!(.*)$", lambda line: f"shell(f{line[1]!r})", cell))
"""


def write(folder: Path) -> None:
    """Convert every notebook of `SCRIPTS` into FOLDER."""
    import nbformat

    from benchmarks.gpu.scripts import changed, exported
    from nb2ddp.api import convert_file
    from nb2ddp.options import Launch, Options

    for name, (notebook, settings) in SCRIPTS.items():
        launch = Launch(launcher="notebook") if name == "kaggle" else Launch()
        with tempfile.TemporaryDirectory() as place:
            source, script = Path(place, f"{name}.ipynb"), Path(place, "train.py")
            nbformat.write(changed(notebook, settings), source)
            convert_file(source, script, Options(launch=launch))
            text = script.read_text() if name != "split-notebook" else exported(nbformat.read(source, as_version=4))
            if name == "kaggle":
                launcher = json.loads(script.with_suffix(".launch.ipynb").read_text())
                cells = ["".join(cell["source"]) for cell in launcher["cells"] if cell["cell_type"] == "code"]
                text = f"CELLS = {cells!r}\n{CELLS}"
        (folder / f"{name}.py").write_text(text)
