"""DDP307: A cell's last expression is printed, as Jupyter shows it.

Jupyter shows the value of a cell's last expression; a script would compute and discard it. A row, an answer or a score
shows whether the data and the model are right. Only the main process prints.

The script prints a name, an item, or a call that returns a value. If the value may be None, it uses `sys.displayhook`,
like Python's own prompt, unless the notebook's saved outputs tell. Calls for an effect
(`tokenizer.save_pretrained(...)`), with output of their own (`trainer.train()`), or with streamed output stay as they
are.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.looking import gives_a_value
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Wrap


def find(program: Program) -> Iterator[Finding]:
    for cell in program.code_cells:
        last = program.last_statement(cell)
        if (
            not isinstance(last, cst.Expr)
            or isinstance(last.value, (cst.SimpleString, cst.ConcatenatedString, cst.Ellipsis))
            or program.names.is_stop(last)
            or program.installs.covers(last)
            or last in program.drawings
        ):
            continue
        gives = gives_a_value(program.effects, last.value)
        if gives or (gives is None and cell.shows is not False):
            shows = "print" if gives or cell.shows else "sys.displayhook"  # which shows no None
            said = "the notebook shows the cell's last expression; the script prints it"
            before, after = ("", "") if last.value.lpar else ("(", ")")
            yield Finding(last, said, (Wrap(last, f"{shows}{before}", after),))


RULE = Rule(
    name="value-only-shown",
    find=find,
    examples=(
        Example(
            "dataset = load()\ndataset[0] # the first row\n# %%\ndataset.num_rows, dataset.column_names\n",
            "dataset = load()\nprint(dataset[0]) # the first row\n"
            "# %%\nprint(dataset.num_rows, dataset.column_names)\n",
        ),
        Example(
            """\
from collections import Counter
from sklearn.metrics import accuracy_score, confusion_matrix
accuracy_score(labels, predicted)
# %%
Counter(labels)
# %%
trainer.train()
# %%
confusion_matrix(labels, predicted)
# %%
model.generate(**inputs, streamer = streamer)
# %%
model.print_trainable_parameters()
# %%
load_dotenv("keys")
# %%
wandb.watch(model)
# %%
api.push_model(model_dir = "lora")
# %%
(
    frame
    .head()
)
# %%
await client.ask("1+1?")
""",
            """\
from collections import Counter
from sklearn.metrics import accuracy_score, confusion_matrix
sys.displayhook(accuracy_score(labels, predicted))
# %%
print(Counter(labels))
# %%
trainer.train()
# %%
sys.displayhook(confusion_matrix(labels, predicted))
# %%
model.generate(**inputs, streamer = streamer)
# %%
model.print_trainable_parameters()
# %%
load_dotenv("keys")
# %%
wandb.watch(model)
# %%
api.push_model(model_dir = "lora")
# %%
print(
    frame
    .head()
)
# %%
sys.displayhook(await client.ask("1+1?"))
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
ask("1+1?") # easy
# %%
show("2+2?")
# %%
trainer.train()
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
print(ask("1+1?")) # easy
# %%
show("2+2?")
# %%
trainer.train()
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
