"""Faults, each a small change to a script that has none: what the script then says where, and who must notice."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nb2ddp.convert import convert_source

if TYPE_CHECKING:
    from nb2ddp.rehearsal.plan import Plan
    from nb2ddp.rehearsal.verdict import Verdict

NOTEBOOKS = Path(__file__).resolve().parents[2] / "fixtures" / "notebooks"
FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "faults"
GOOD = ("train", "grpo", "embeddings")

ENDS, WAITS, CALLS = "reaches its end", "no process waits for ever", "same calls that need all, in one order"
ROWS, LOSSES = "same global batch, same rows", "losses and gradient norms of one process"
WEIGHTS, REWARDS = "all ranks hold the same weights at the end", "rewards agree"
WRITER, DEVICE = "one writer a file, one caller of a program or service", "each process has its own GPU"
AFTER = "after training only the main process goes on"


@functools.cache
def script(name: str) -> str:
    """A script without a fault: written by hand, or what a notebook is converted to."""
    if name in GOOD:
        return (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    text = (NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8")
    return next(iter(convert_source(text, name).files.values()))


class Fault(NamedTuple):
    """A script, what is replaced in it by what, the questions of which one must show it, and the line it is at."""

    script: str
    edits: tuple[tuple[str, str], ...]
    asked: tuple[str, ...]
    line: str

    def text(self) -> str:
        """The script with the fault."""
        text = script(self.script)
        for before, after in self.edits:
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        return text


TRAIN = "\ntrainer.train()\n"
TRAINS = "trainer.train()"
MAIN_GOES_ON = "if not is_main_process:\n    sys.exit(0)\n"
CALLBACK = """
from transformers import TrainerCallback
class Own(TrainerCallback):
    def {event}(self, args, state, control, **kwargs):
{body}

trainer.add_callback(Own())
trainer.train()
"""


def before_training(code: str) -> tuple[tuple[str, str], ...]:
    return ((TRAIN, f"\n{code}\ntrainer.train()\n"),)


def callback(event: str, body: str) -> tuple[tuple[str, str], ...]:
    return ((TRAIN, CALLBACK.format(event=event, body=body)),)


FAULTS = {
    "batch_not_split": Fault("train", (("4 // world_size", "4"),), (ROWS,), "trainer.train()"),
    "batch_halved_twice": Fault(
        "train", (("4 // world_size", "4 // world_size // world_size"),), (ROWS,), "trainer.train()"
    ),
    "wait_on_one_rank": Fault(
        "train",
        before_training("if is_main_process:\n    torch.distributed.is_initialized() and torch.distributed.barrier()"),
        (CALLS, WAITS),
        "torch.distributed.barrier()",
    ),
    "save_by_all": Fault("train", ((MAIN_GOES_ON, ""),), (WRITER,), 'model.save_pretrained("model")'),
    "shuffle_by_rank": Fault(
        "train", (('= parts["train"],', '= parts["train"].shuffle(seed = local_rank),'),), (ROWS,), "trainer.train()"
    ),
    "unseeded_split": Fault(
        "train",
        (("set_seed(3407)\n", ""), ("test_size = 0.1, seed = 3407", "test_size = 0.1")),
        (ROWS,),
        "trainer.train()",
    ),
    "rows_split_twice": Fault(
        "train",
        (('= parts["train"],', '= parts["train"].shard(world_size, local_rank),'),),
        (ROWS,),
        "trainer.train()",
    ),
    "evaluates_on_one_rank": Fault(
        "train",
        (("trainer.evaluate()", "if is_main_process:\n    trainer.evaluate()"),),
        (CALLS, WAITS, ENDS),
        "trainer.evaluate()",
    ),
    "training_in_a_swallowing_try": Fault(
        "train",
        (
            (
                TRAIN,
                CALLBACK.format(
                    event="on_step_end",
                    body='        if local_rank == 1 and state.global_step == 2:\n            raise OSError("disk")',
                ).replace("trainer.train()", "try:\n    trainer.train()\nexcept Exception:\n    pass"),
            ),
        ),
        (ENDS, CALLS, WAITS),
        "trainer.train()",
    ),
    "weights_changed_on_one_rank": Fault(
        "train",
        callback(
            "on_step_end", "        if is_main_process:\n            kwargs['model'].lm_head.weight.data.add_(0.1)"
        ),
        (WEIGHTS,),
        "trainer.train()",
    ),
    "learning_rate_by_rank": Fault(
        "train",
        (('= settings["learning_rate"],', '= settings["learning_rate"] * (1 + local_rank),'),),
        (WEIGHTS,),
        "trainer.train()",
    ),
    "learning_rate_times_processes": Fault(
        "train", (('= settings["learning_rate"],', "= 0.02 * world_size,"),), (ROWS,), "args = TrainingArguments("
    ),
    "loss_divided_by_processes": Fault(
        "train",
        (
            (
                "\ntrainer = Trainer(",
                "\nclass Own(Trainer):\n    def compute_loss(self, *args, return_outputs = False, **kwargs):\n"
                "        found = super().compute_loss(*args, return_outputs = return_outputs, **kwargs)\n"
                "        return found if return_outputs else found / world_size\n\n\ntrainer = Own(",
            ),
        ),
        (LOSSES,),
        "trainer.train()",
    ),
    "read_before_written": Fault(
        "train",
        (
            (
                'file)\nPartialState().wait_for_everyone()\nwith open("settings.json") as file:',
                'file)\nimport time\ntime.sleep(2)\nwith open("settings.json") as file:',
            ),
        ),
        (WRITER,),
        'with open("settings.json") as file:',
    ),
    "group_closed_too_early": Fault(
        "train",
        (
            (
                "trainer.evaluate()",
                "if world_size > 1:\n    torch.distributed.destroy_process_group()\ntrainer.evaluate()",
            ),
        ),
        (ENDS,),
        "trainer.evaluate()",
    ),
    "device_map_auto": Fault(
        "train",
        (("dtype = torch.float32", 'dtype = torch.float32, device_map = "auto"'),),
        (DEVICE,),
        'device_map = "auto"',
    ),
    "first_gpu_in_every_process": Fault(
        "train",
        before_training('model.to("cuda:0")'),
        (DEVICE,),
        'model.to("cuda:0")',
    ),
    "undefined_name_after_training": Fault(
        "train",
        (('tokenizer.save_pretrained("model")', "print(trainer_stats.metrics)"),),
        (ENDS,),
        "print(trainer_stats.metrics)",
    ),
    "endless_program": Fault(
        "train",
        before_training('import subprocess\nis_main_process and subprocess.run("nvidia-smi -l 1", shell = True)'),
        (WAITS,),
        "nvidia-smi -l 1",
    ),
    "program_of_each_rank": Fault(
        "train",
        before_training(
            'import subprocess\nsubprocess.run(["git", "clone", "https://example.com/data"], check = True)'
        ),
        (WRITER,),
        '"git", "clone"',
    ),
    "resumes_on_one_rank": Fault(
        "train",
        (
            (
                "trainer.evaluate()",
                'trainer.train(resume_from_checkpoint = "outputs/checkpoint-2" if is_main_process else None)',
            ),
        ),
        (CALLS, WAITS, ENDS, WEIGHTS),
        "trainer.train(resume_from_checkpoint",
    ),
    "steps_by_rank": Fault(
        "train", (("max_steps = 60", "max_steps = 2 + local_rank"),), (WAITS, CALLS), "trainer.train()"
    ),
    "log_of_all": Fault(
        "train",
        callback("on_step_end", "        with open('steps.txt', 'a') as file:\n            file.write('step')"),
        (WRITER,),
        "with open('steps.txt', 'a')",
    ),
    "server_of_each_rank": Fault(
        "train",
        before_training(
            "from http.server import HTTPServer, BaseHTTPRequestHandler\n"
            'server = HTTPServer(("127.0.0.1", 8231), BaseHTTPRequestHandler)'
        ),
        (WRITER, ENDS),
        'HTTPServer(("127.0.0.1", 8231)',
    ),
    "folder_removed_by_all": Fault(
        "train",
        before_training(
            'import shutil\nos.makedirs("old", exist_ok = True)\nshutil.rmtree("old", ignore_errors = True)'
        ),
        (WRITER,),
        'shutil.rmtree("old"',
    ),
    "upload_by_all": Fault(
        "train", ((MAIN_GOES_ON, 'model.push_to_hub("me/model")\n' + MAIN_GOES_ON),), (WRITER,), "model.push_to_hub"
    ),
    "thread_left_behind": Fault(
        "train",
        (
            (
                'model.save_pretrained("model")\n',
                'model.save_pretrained("model")\nimport threading, time\n'
                "threading.Thread(target = time.sleep, args = (90,)).start()\n",
            ),
        ),
        (AFTER,),
        "threading.Thread(target = time.sleep",
    ),
    "error_on_one_rank": Fault(
        "train",
        before_training('if local_rank == 1:\n    raise ValueError("the data of this rank is gone")'),
        (ENDS,),
        "raise ValueError",
    ),
    "leaves_before_training": Fault("train", before_training(MAIN_GOES_ON), (ENDS, CALLS, WAITS), "sys.exit(0)"),
    "calls_in_another_order": Fault(
        "train",
        before_training(
            "if world_size > 1:\n    one, two = torch.ones(1), torch.ones(2)\n"
            "    for each in (one, two) if is_main_process else (two, one):\n"
            "        torch.distributed.all_reduce(each)"
        ),
        (CALLS,),
        "torch.distributed.all_reduce(each)",
    ),
    "reward_with_random_numbers": Fault(
        "grpo",
        (("/ 10 for each", '/ 10 + __import__("random").random() for each'),),
        (REWARDS,),
        "def vowels",
    ),
    "reward_with_a_counter": Fault(
        "grpo",
        (
            ("def vowels", "calls = 0\n\n\ndef vowels"),
            ("    return [sum(", "    global calls\n    calls += len(completions)\n    return [calls / 10 + sum("),
        ),
        (REWARDS,),
        "def vowels",
    ),
    "reward_writes_one_file": Fault(
        "grpo",
        (("    return [sum(", '    open("answers.txt", "a").write("x")\n    return [sum('),),
        (WRITER,),
        'open("answers.txt", "a")',
    ),
    "rows_cut_by_rank": Fault("train", (("max_length = 64", "max_length = 64 - 8 * local_rank"),), (ROWS,), TRAINS),
    "decay_by_rank": Fault(
        "train", (("    max_steps = 60,", "    max_steps = 60, weight_decay = 0.5 * local_rank,"),), (WEIGHTS,), TRAINS
    ),
    "clipped_by_rank": Fault(
        "train",
        (("    max_steps = 60,", "    max_steps = 60, max_grad_norm = 1.0 if is_main_process else 1e-4,"),),
        (WEIGHTS,),
        TRAINS,
    ),
    "filtered_by_hash": Fault(
        "train",
        (('= parts["train"],', '= parts["train"].filter(lambda row: hash(str(row["input_ids"])) % 2),'),),
        (ROWS,),
        TRAINS,
    ),
    "seeded_by_the_time": Fault(
        "train",
        (('= parts["train"],', '= parts["train"].shuffle(seed = __import__("time").time_ns() % 1000),'),),
        (ROWS,),
        TRAINS,
    ),
    "frozen_on_one_rank": Fault(
        "train",
        before_training("if local_rank:\n    model.model.layers[0].requires_grad_(False)"),
        (ENDS, WAITS, CALLS),
        TRAINS,
    ),
    "folder_made_by_all": Fault(
        "train", before_training("os.makedirs('report', exist_ok = is_main_process)"), (ENDS, WRITER), "os.makedirs"
    ),
    "database_of_all": Fault(
        "train",
        before_training("import sqlite3\nsqlite3.connect('runs.db').execute('create table if not exists runs (name)')"),
        (WRITER,),
        "sqlite3.connect",
    ),
    "stops_on_one_rank": Fault(
        "train",
        callback("on_step_end", "        control.should_training_stop = is_main_process"),
        (ENDS, WAITS, CALLS),
        TRAINS,
    ),
    "one_gpu_for_all": Fault(
        "train",
        (("import json\n", "import json\nimport os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n"),),
        (DEVICE,),
        "CUDA_VISIBLE_DEVICES",
    ),
    "negatives_not_gathered": Fault(
        "embeddings",
        (("gather_across_devices = world_size > 1", "gather_across_devices = False"),),
        (LOSSES,),
        "trainer.train()",
    ),
    "negatives_in_smaller_batches": Fault(
        "embeddings",
        (("16 // world_size,", "8 // world_size,\n        gradient_accumulation_steps = 2 * world_size,"),),
        (ROWS, LOSSES),
        "trainer.train()",
    ),
}

#: Where a converted notebook has its data, and where it trains.
SFT_DATA = "dataset = dataset.map(formatting_prompts_func, batched = True,)\n"
SFT_TRAINS = "trainer_stats = trainer.train()\n"
ARGUMENTS = "        max_steps = 20,\n"


def after_data(code: str) -> tuple[tuple[str, str], ...]:
    return ((SFT_DATA, SFT_DATA + code),)


def trained_by(body: str) -> tuple[tuple[str, str], ...]:
    """A trainer of its own, with these methods, in the place of TRL's."""
    return (("trainer = SFTTrainer(", f"class Own(SFTTrainer):\n{body}\n\ntrainer = Own("),)


def called(event: str, body: str) -> tuple[tuple[str, str], ...]:
    code = CALLBACK.format(event=event, body=body).replace("trainer.train()\n", SFT_TRAINS)
    return ((SFT_TRAINS, code),)


#: As one writes them who knows DDP and not this program, in what two notebooks are converted to.
FAULTS |= {
    "long_rows_of_a_rank_dropped": Fault(
        "alpaca",
        after_data('dataset = dataset.filter(lambda row: len(row["output"]) > 20 + 40 * local_rank)\n'),
        (ROWS,),
        "trainer.train()",
    ),
    "drawn_on_main_then_shuffled": Fault(
        "alpaca",
        after_data(
            'import random\nrandom.seed(3407)\nif is_main_process:\n    print(random.choice(dataset["text"]))\n'
            "order = list(range(len(dataset)))\nrandom.shuffle(order)\ndataset = dataset.select(order)\n"
        ),
        (ROWS,),
        "trainer.train()",
    ),
    "rows_saved_by_all_then_read": Fault(
        "alpaca",
        after_data(
            'dataset.to_json("rows.jsonl")\n'
            'dataset = load_dataset("json", data_files = "rows.jsonl", split = "train")\n'
        ),
        (WRITER,),
        'dataset.to_json("rows.jsonl")',
    ),
    "rows_read_without_waiting": Fault(
        "alpaca",
        after_data(
            'if is_main_process:\n    dataset.save_to_disk("rows")\nelse:\n    import time\n    time.sleep(10)\n'
            'from datasets import load_from_disk\ndataset = load_from_disk("rows")\n'
        ),
        (WRITER, ENDS),
        'dataset = load_from_disk("rows")',
    ),
    "rows_looked_for_too_early": Fault(
        "alpaca",
        after_data(
            'if is_main_process:\n    import time\n    time.sleep(2)\n    dataset.to_json("rows.jsonl")\n'
            'dataset = load_dataset("json", data_files = "rows.jsonl", split = "train")\n'
        ),
        (WRITER,),
        'dataset = load_dataset("json", data_files = "rows.jsonl"',
    ),
    "run_of_a_tracker_in_every_process": Fault(
        "alpaca", after_data('import wandb\nwandb.init(project = "alpaca")\n'), (WRITER,), "wandb.init"
    ),
    "labels_by_rank": Fault(
        "train",
        before_training(
            "collate = trainer.data_collator\n"
            "def masked(rows):\n    batch = collate(rows)\n"
            "    batch['labels'][:, 2 + local_rank] = -100\n    return batch\n"
            "trainer.data_collator = masked"
        ),
        (ROWS,),
        TRAINS,
    ),
    "accumulation_by_rank": Fault(
        "alpaca",
        (("_accumulation_steps = accumulation,", "_accumulation_steps = accumulation * (1 + local_rank),"),),
        (ROWS, CALLS, WAITS, ENDS),
        "trainer.train()",
    ),
    "steps_shared_between_ranks": Fault(
        "alpaca", (("max_steps = 20,", "max_steps = 20 // world_size,"),), (ROWS,), "args = SFTConfig("
    ),
    "learning_rate_scaled": Fault(
        "alpaca", (("learning_rate = 2e-4,", "learning_rate = 2e-4 * world_size,"),), (ROWS,), "args = SFTConfig("
    ),
    "folder_of_each_rank": Fault(
        "alpaca",
        (('output_dir = "outputs"', "output_dir = f\"outputs/{__import__('uuid').uuid4().hex[:6]}\""),),
        (ROWS,),
        "args = SFTConfig(",
    ),
    "warmup_by_rank": Fault(
        "alpaca", (("warmup_steps = 5,", "warmup_steps = 5 + 5 * local_rank,"),), (WEIGHTS,), "trainer.train()"
    ),
    "gathers_in_a_callback_of_main": Fault(
        "alpaca",
        called(
            "on_log",
            "        if state.is_world_process_zero and torch.distributed.is_initialized():\n"
            "            torch.distributed.all_reduce(torch.ones(1))",
        ),
        (CALLS, WAITS, ENDS),
        "torch.distributed.all_reduce(torch.ones(1))",
    ),
    "skips_batches_of_long_rows": Fault(
        "alpaca",
        trained_by(
            "    def training_step(self, model, inputs, *args, **kwargs):\n"
            '        if inputs["input_ids"].shape[1] > 150 and local_rank:\n'
            "            return torch.tensor(0.0)\n"
            "        return super().training_step(model, inputs, *args, **kwargs)\n"
        ),
        (CALLS, WAITS, ENDS),
        "trainer.train()",
    ),
    "own_loader_of_each_rank": Fault(
        "alpaca",
        trained_by(
            "    def get_train_dataloader(self):\n"
            "        own = self.train_dataset.select(range(local_rank, len(self.train_dataset), world_size))\n"
            '        own = own.filter(lambda row: len(row["input_ids"]) > 320)\n'
            "        return torch.utils.data.DataLoader(\n"
            "            own, batch_size = self.args.per_device_train_batch_size, collate_fn = self.data_collator\n"
            "        )\n"
        ),
        (ROWS,),
        "trainer.train()",
    ),
    "evaluates_its_own_share": Fault(
        "alpaca",
        (
            ("    train_dataset = dataset,\n", "    train_dataset = dataset,\n    eval_dataset = held_out,\n"),
            (SFT_DATA, SFT_DATA + "held_out = dataset.select(range(32)).shard(world_size, local_rank)\n"),
            (ARGUMENTS, ARGUMENTS + '        eval_strategy = "steps",\n        eval_steps = 1,\n'),
        ),
        (ROWS, LOSSES),
        "trainer.train()",
    ),
    "tokens_added_on_main": Fault(
        "alpaca",
        (
            (
                "# %% Cell 7",
                'if is_main_process:\n    tokenizer.add_tokens([f"<extra {i}>" for i in range(600)])\n'
                "    model.resize_token_embeddings(len(tokenizer))\n\n# %% Cell 7",
            ),
        ),
        (ENDS, CALLS, ROWS, WAITS),
        "trainer.train()",
    ),
    "adapters_drawn_by_rank": Fault(
        "alpaca",
        called(
            "on_train_begin",
            "        torch.manual_seed(local_rank)\n"
            "        for name, weight in kwargs['model'].named_parameters():\n"
            "            if 'lora_B' in name:\n                torch.nn.init.normal_(weight.data, std = 0.02)",
        ),
        (WEIGHTS, LOSSES),
        "trainer.train()",
    ),
    "reward_against_the_mean_of_a_process": Fault(
        "random_reward",
        (
            (
                '    return [-len(completion[0]["content"]) / 100 for completion in completions]\n',
                '    found = [-len(completion[0]["content"]) / 100 for completion in completions]\n'
                "    return [each - sum(found) / len(found) for each in found]\n",
            ),
        ),
        (REWARDS,),
        "def short",
    ),
}


def is_found(fault: Fault, plan: Plan, verdict: Verdict) -> bool:
    """Whether one of its questions shows a fault at its line."""
    shown = [plan.source(place.line) for row in verdict.faults if row.asked in fault.asked for place in row.places]
    return verdict.code == 1 and any(fault.line in line for line in shown)
