"""What a user would write by hand for DDP with transformers, PEFT and TRL, without Unsloth: the SFT kinds' rival.

Same data, LoRA, batch, schedule and seed as `notebooks/sft.ipynb`; started with `accelerate launch`.
"""

import argparse
import os

import torch
from datasets import load_dataset
from peft import LoraConfig, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="bench/Llama-3B")
parser.add_argument("--data", default="bench/essays")
parser.add_argument("--four-bit", action="store_true")
parser.add_argument("--full", action="store_true", help="train every weight instead of LoRA adapters")
parser.add_argument("--packing", action="store_true")
parser.add_argument("--no-checkpointing", action="store_true")
parser.add_argument("--per-device", type=int, default=2)
parser.add_argument("--accumulation", type=int, required=True)
parser.add_argument("--max-length", type=int, default=2048)
parser.add_argument("--learning-rate", type=float, default=2e-4)
parser.add_argument("--steps", type=int, default=30)
options = parser.parse_args()

four_bit = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_use_double_quant=True,
    bnb_4bit_compute_dtype=torch.bfloat16,
)
model = AutoModelForCausalLM.from_pretrained(
    options.model,
    dtype=torch.float32 if options.full else torch.bfloat16,
    quantization_config=four_bit if options.four_bit else None,
    attn_implementation="sdpa",
    device_map={"": int(os.environ.get("LOCAL_RANK", 0))},
)
model.config.use_cache = False
if options.four_bit:
    model = prepare_model_for_kbit_training(
        model,
        use_gradient_checkpointing=not options.no_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False},
    )
tokenizer = AutoTokenizer.from_pretrained(options.model)
lora = LoraConfig(
    r=16,
    lora_alpha=16,
    lora_dropout=0,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    task_type="CAUSAL_LM",
)
dataset = load_dataset(options.data, split="train")
dataset = dataset.map(lambda row: {"text": row["text"] + tokenizer.eos_token})

trainer = SFTTrainer(
    model=model,
    processing_class=tokenizer,
    train_dataset=dataset,
    peft_config=None if options.full else lora,
    args=SFTConfig(
        dataset_text_field="text",
        max_length=options.max_length,
        packing=options.packing,
        per_device_train_batch_size=options.per_device,
        gradient_accumulation_steps=options.accumulation,
        gradient_checkpointing=not options.no_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        bf16=True,
        warmup_steps=5,
        max_steps=options.steps,
        learning_rate=options.learning_rate,
        logging_steps=1,
        optim="adamw_8bit",
        weight_decay=0.01,
        lr_scheduler_type="linear",
        seed=3407,
        ddp_find_unused_parameters=False,
        output_dir="outputs",
        save_strategy="no",
        report_to="none",
    ),
)
trainer.train()
if trainer.is_world_process_zero():
    trainer.save_model("essays")
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
