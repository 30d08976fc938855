"""DDP401: After the last training the process group is closed, and only the main process continues.

Otherwise every process generates, and all write the same files at once. transformers never closes the process group
(transformers issue 48874).

It is closed after the last joint step: train, evaluate, predict, or a collective of the notebook's own. Later code may
ask for the number of processes (a model load of Unsloth's, a trainer, `Accelerator()`, `lm_eval`, a Python program).
Then the script deletes the launcher's variables and resets accelerate, so that all of it sees one process (accelerate
1.15: evaluating would raise 'Default process group has not been initialized').

An in-process vLLM engine may need the process group after training; it is then closed when the script ends.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.script.templates import render
from nb2ddp.syntax.edits import AddToSetup, Edit, InsertAfter
from nb2ddp.syntax.tree import Statement, Tree

_ENDS = "every process would run the rest of the notebook (print, generate, save); in the script the main process does"
_WAITING = ", and the others wait, as its vLLM engine may need them, until it ends"
_PATIENCE = (
    'os.environ.setdefault("UNSLOTH_DDP_TIMEOUT", "7200")  # seconds that processes wait for the main one at the end'
)


def find(program: Program) -> Iterator[Finding]:
    last, tree = program.training.last, program.tree
    closed = "PartialState().destroy_process_group" in map(tree.text, tree.of(cst.Attribute))
    if last is None or closed:
        return
    message, template, edits = _ENDS, "end_of_training.py.j2", list[Edit]()
    if not program.closes_group:
        message, template = f"{_ENDS}{_WAITING}", "main_process_goes_on.py.j2"
        edits.append(AddToSetup(_PATIENCE, before_imports=True))
    text = render(
        template,
        variable=program.name("variable"),
        goes_on=tree.module.body[-1] is not last,
        asks=program.asks_when_alone,
    )
    yield Finding(program.training.events[-1], message, (_below(tree, last, text), *edits))


def _below(tree: Tree, last: Statement, text: str) -> InsertAfter:
    """The lines below a statement, with a blank one between them and code that follows."""
    end = tree.line_end(tree.span(last)[1])
    follows = tree.source[end : tree.line_end(end + 1)].strip()
    return InsertAfter(last, text.rstrip("\n") + ("\n" if follows else ""))


RULE = Rule(
    name="every-process-goes-on",
    find=find,
    examples=(
        Example(
            """\
from trl import SFTTrainer
def main():
    trainer = SFTTrainer(model)
    trainer.train()
main()
""",
            """\
from trl import SFTTrainer
def main():
    trainer = SFTTrainer(model)
    trainer.train()
main()

# %% Training is over
PartialState().wait_for_everyone()
PartialState().destroy_process_group()
""",
        ),
        Example(
            """\
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
model.save_pretrained("lora")
""",
            """\
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()

# %% Training is over: the main process runs the rest of the notebook alone
PartialState().wait_for_everyone()
PartialState().destroy_process_group()
if not is_main_process:
    sys.exit()

model.save_pretrained("lora")
""",
        ),
        Example(
            """\
from accelerate import Accelerator
trainer.train()
accelerator = Accelerator()
accelerator.wait_for_everyone()
print("done")
""",
            """\
from accelerate import Accelerator
trainer.train()
accelerator = Accelerator()
accelerator.wait_for_everyone()

# %% Training is over: the main process runs the rest of the notebook alone
PartialState().wait_for_everyone()
PartialState().destroy_process_group()
if not is_main_process:
    sys.exit()

print("done")
""",
        ),
        Example(
            """\
from unsloth import FastLanguageModel
from trl import GRPOTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen3-4B", fast_inference = True)
trainer = GRPOTrainer(model)
trainer.train()
output = model.fast_generate("Hello")
""",
            """\
from unsloth import FastLanguageModel
from trl import GRPOTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen3-4B", fast_inference = True)
trainer = GRPOTrainer(model)
trainer.train()

# %% Training is over: the main process runs the rest of the notebook, the others wait until it ends
PartialState().wait_for_everyone()
atexit.register(PartialState().destroy_process_group)  # the vLLM engine may use it until then
atexit.register(PartialState().wait_for_everyone)  # atexit calls the last registered first
if not is_main_process:
    sys.exit()

output = model.fast_generate("Hello")
""",
        ),
        Example(
            """\
from unsloth import FastLanguageModel
trainer.train()
model, tokenizer = FastLanguageModel.from_pretrained("lora", device_map = "auto")
""",
            """\
from unsloth import FastLanguageModel
trainer.train()

# %% Training is over: the main process runs the rest of the notebook alone
from accelerate.state import AcceleratorState

PartialState().wait_for_everyone()
PartialState().destroy_process_group()
if not is_main_process:
    sys.exit()
for variable in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
    os.environ.pop(variable, None)  # from here on there is one process
PartialState._reset_state()
AcceleratorState()  # reads PartialState anew

model, tokenizer = FastLanguageModel.from_pretrained("lora", device_map = "auto")
""",
        ),
        Example("model.train()\n"),
    ),
)
