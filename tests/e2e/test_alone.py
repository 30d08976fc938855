"""After training with two processes the main process is alone: accelerate, a new trainer and the old one agree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.rehearsal.run import free_port
from tests.jobs import ON_CPUS
from tests.notebooks import text

pytestmark = pytest.mark.e2e

TRAIN = """\
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
config = LlamaConfig(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=64)
model = LlamaForCausalLM(config)
rows = [{"input_ids": [1, 2, 3, 4], "labels": [1, 2, 3, 4]}] * 16
args = TrainingArguments("out", max_steps=2, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True)
trainer = Trainer(model=model, args=args, train_dataset=rows, eval_dataset=rows)
trainer.train()
"""
AFTER = """\
import os
import torch
from accelerate import Accelerator
accelerator = Accelerator()
loader = accelerator.prepare(torch.utils.data.DataLoader(torch.arange(8), batch_size=2))
seen = [int(n) for batch in loader for n in accelerator.gather(batch)]
later = Trainer(model=model, args=TrainingArguments("later", report_to=[], use_cpu=True), eval_dataset=rows)
print("SEEN", accelerator.num_processes, seen, len(trainer.get_eval_dataloader()), os.environ.get("WORLD_SIZE"))
trainer.save_model("saved")
again = LlamaForCausalLM.from_pretrained("saved", device_map="auto")
"""


def test_the_main_process_finds_itself_alone(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(convert_source(text(ON_CPUS, TRAIN, AFTER)).files["train.py"])
    launch = ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    command = [sys.executable, *launch, str(script)]
    done = subprocess.run(command, env=dict(os.environ), cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "SEEN 1 [0, 1, 2, 3, 4, 5, 6, 7] 2 None" in done.stdout
    assert (tmp_path / "saved" / "config.json").exists()
