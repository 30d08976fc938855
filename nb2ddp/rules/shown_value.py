"""DDP307: a cell's last expression that is only shown goes before training, and is printed after it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.looking import gives_a_value, only_looks
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Remove, Replace


def find(program: Program) -> Iterator[Finding]:
    for cell in program.code_cells:
        last = program.last_statement(cell)
        if (
            not isinstance(last, cst.Expr)
            or isinstance(last.value, (cst.SimpleString, cst.ConcatenatedString, cst.Ellipsis))
            or program.names.is_stop(last)
            or last in program.drawings
        ):
            continue
        after = program.execution.is_after_training(last)
        if after and gives_a_value(program.effects, last.value):
            said = "the notebook shows the cell's last expression; the script prints it"
            yield Finding(last, said, edits=(Replace(last, f"print({program.tree.text(last.value)})"),))
        elif not after and only_looks(program.effects, last.value):
            yield Finding(last, "the cell's last expression is only shown; the script leaves it out", (Remove(last),))


RULE = Rule(
    code="DDP307",
    name="value-only-shown",
    summary="A cell's last expression goes where showing it was its only effect; after the last training it is"
    " printed.",
    why="Jupyter shows the value of a cell's last expression; a script computes it for nobody. What a notebook shows"
    " after training (an answer, a score) is what it was run for. A call with an effect"
    " (`tokenizer.save_pretrained(...)`, `PatchDPOTrainer()`) stays as it is.",
    find=find,
    examples=(
        Example("dataset = load()\ndataset[0] # the first row\n", "dataset = load()\n# the first row\n"),
        Example(
            "trainer.train()\n# %%\ntrainer.state.log_history\n# %%\nscores = trainer.evaluate()\n",
            "trainer.train()\n# %%\nprint(trainer.state.log_history)\n# %%\nscores = trainer.evaluate()\n",
        ),
        Example(
            "outputs = model.generate(**inputs)\ntokenizer.batch_decode(outputs)\n",
            "outputs = model.generate(**inputs)\n",
        ),
        Example(
            """\
import re
from PIL import Image
def answer(text):
    return text.split("####")[1].strip() if "####" in text else None
number = re.compile(r"[0-9]+")
number.findall("41 and 42")
# %%
answer(dataset[0]["answer"])
# %%
Image.open("scan.png")
""",
            """\
import re
from PIL import Image
def answer(text):
    return text.split("####")[1].strip() if "####" in text else None
number = re.compile(r"[0-9]+")
# %%
# %%
""",
        ),
        Example(
            """\
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained(name)
def ask(question):
    return model.generate(question)
def show(question):
    print(ask(question))
trainer.train()
output = ask("1+1?")
# %%
ask("2+2?") # easy
# %%
show("2+2?")
# %%
output
# %%
tokenizer.batch_decode(model.generate("Hi"))
# %%
tokenizer.save_pretrained("lora")
""",
            """\
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained(name)
def ask(question):
    return model.generate(question)
def show(question):
    print(ask(question))
trainer.train()
output = ask("1+1?")
# %%
print(ask("2+2?")) # easy
# %%
show("2+2?")
# %%
print(output)
# %%
print(tokenizer.batch_decode(model.generate("Hi")))
# %%
tokenizer.save_pretrained("lora")
""",
        ),
        Example('tokenizer.save_pretrained("lora")\n'),
        Example('"""A remark."""\n'),
        Example("dataset[0];\nx = 1\n"),
    ),
)
