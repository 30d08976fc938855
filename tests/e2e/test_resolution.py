"""The packages of a requirements file fit together: uv resolves them, if a package index answers."""

from __future__ import annotations

import pytest

from benchmarks.resolution import asked, resolve
from nb2ddp.convert import convert_source
from nb2ddp.options import Options
from nb2ddp.rehearsal import uv
from tests.notebooks import CELLS, text

pytestmark = pytest.mark.e2e

INSTALLS = {
    "pins": "!pip install --no-deps unsloth_zoo trl==0.22.2 peft accelerate\n!pip install unsloth transformers==4.56.2",
    "pins below the floors": '!pip install "unsloth==2025.4.7" "transformers==4.44.2" "trl<0.9" "torch==2.2.2"',
    "what a later version has not": '!pip install unsloth "datasets==3.5.1"',
    "what Unsloth does not go with": "!pip install unsloth llama-index-packs-raft-dataset xcodec2==0.1.5",
    "what needs torch to be built": "!pip install unsloth causal-conv1d mamba-ssm==2.2.4",
}


@pytest.mark.parametrize("name", INSTALLS)
def test_requirements_resolve(name: str) -> None:
    if uv.found() is None:
        pytest.skip("uv is not there")
    code = "from trl import DataCollatorForCompletionOnlyLM" if "later" in name else "import torch"
    done = convert_source(text(INSTALLS[name], code, *CELLS[1:]), "tune", "train.py", Options())
    how, why = resolve(asked(done.files))
    if "error sending request" in why or "Failed to fetch" in why:
        pytest.skip("no package index answers")
    assert (how, why) == ("all", "")
