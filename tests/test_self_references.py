"""Names that are bound to values made of themselves: every walk from a name to its value must end."""

from __future__ import annotations

from contextlib import suppress
from textwrap import indent

import pytest

from nb2ddp import NotebookError, convert_source
from tests.notebooks import code, text

HEAD = """\
import copy, functools, json, os, random
from functools import partial
from trl import SFTConfig, SFTTrainer
from unsloth import FastLanguageModel
"""
#: The values of the names `f` and `g`.
VALUES = (
    "functools.partial(f, timeout = 5)", "partial(g)", "f(f)", "f.filter(g)", "f[0]", "f[g]", "f if g else f", "[f, g]",
    '{"a": f}', "{**f}", "dict(f, a = 1)", "lambda: f()", "f + g", 'f"{f}/{g}"', 'getattr(f, "from_pretrained")',
    "f.from_pretrained", "f.read(g)", "[f for f in f]", '",".join(f)', "copy.copy(f)", "SFTConfig(**f)", "(f, g)",
)  # fmt: skip
#: The bindings, as Python: `{value}` stands for the value, `{other}` for the same value with the names exchanged.
BINDINGS = (
    "f = {value}",
    "g = {other}\nf = {value}",
    "f = g = {value}",
    "f, g = {value}, {other}",
    "f: object = {value}",
    "(f := {value})",
    "for f in {value}:\n    g = {other}",
    "with {value} as f:\n    g = {other}",
    "while True:\n    f = {value}\n    g = {other}",
    "def f(g = {value}):\n    f(g)\n    return {value}",
    "def f(a):\n    if os.path.exists(a):\n        open(a, 'w').write(a)\n        return g(a)\n    f(a)\n"
    "def g(a):\n    f(a)\n    return {value}",
    "class f(f):\n    def __init__(self):\n        g()\nclass g(f):\n    def __init__(self):\n        f()\nx = {value}",
)
USES = """\
f("a")
model = f.from_pretrained("x", device_map = f)
model = f("x")
settings = SFTConfig(**f)
settings = f(per_device_train_batch_size = f, gradient_accumulation_steps = f, output_dir = f)
with open(f, "w") as file:
    file.write(f)
    f.append(f)
if os.path.exists(f):
    open(f, "w").write(f)
for each in f:
    f(each)
os.environ[f] = f
model.to(f)
random.shuffle(f)
!pip install {f} $g
!echo {f}
trainer = SFTTrainer(model, args = f, callbacks = f, data_collator = f)
trainer.train(resume_from_checkpoint = f)
f.save_pretrained(f)
f
"""


@pytest.mark.parametrize("binding", BINDINGS)
def test_a_name_may_be_made_of_itself(binding: str) -> None:
    for value in VALUES if binding in BINDINGS[:2] else VALUES[::3]:
        other = value.replace("(f", "(g").replace("f.", "g.").replace("f[", "g[")
        bound = binding.format(value=value, other=other) + "\n"
        in_function = indent(f"{bound}SFTTrainer(args = f).train()\n{USES}", "    ")
        sources = [f"def go():\n{in_function}go()\n"]
        if value in VALUES[:4]:  # at module level only the code after a value sees it
            sources.append(bound + USES)
        for source in sources:
            with suppress(NotebookError):  # a notebook in which nothing trains may be refused
                convert_source(text(code(HEAD + source)))


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("x = " + " or ".join(["a"] * 700), "nests too deeply to be read"),
        ("if " + "not " * 700 + "a:\n    b", "nests too deeply to be read"),
        ("global trainer", "is Python, but not below those above it"),
    ],
)
def test_what_python_or_libcst_cannot_read_is_refused_with_its_cell(cell: str, why: str) -> None:
    with pytest.raises(NotebookError, match=f"cell 2:1:1: the cell {why}"):
        convert_source(text(code("trainer = Trainer()\ntrainer.train()"), code(cell)))
