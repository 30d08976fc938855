"""DDP402: Where a notebook draws at random before training, `set_seed(...)` stands at the top of the script.

All ranks then draw the same numbers, and one GPU and several train the same: new weights, such as a classifier's head,
and splits without a seed would differ in each run. A library that the notebook seeds itself before stays as it is. What
takes a seed of its own from the operating system, such as `default_rng()` or the shuffle of a streamed data set, is
given one. datasets takes a missing seed from NumPy's global state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import Does, samples
from nb2ddp.facts.execution import Phase
from nb2ddp.facts.flow import owner_of
from nb2ddp.facts.loading import has_new_head, is_load
from nb2ddp.facts.program import Program
from nb2ddp.facts.randomness import generator, seed, seeded, seeds_itself
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import AddToSetup, Replace, SetKeyword
from nb2ddp.syntax.tree import Tree, argument, keyword, method

#: What draws weights that no checkpoint holds, beside a load: adapters of PEFT's own (Unsloth seeds its adapters).
_NEW_WEIGHTS = re.compile(r"peft(\.\w+)*\.get_peft_model|transformers(\.\w+)*\.\w+\.from_config")
#: What divides or orders rows: methods of data sets and tables, and functions.
_DATASET_METHODS = frozenset({"sample", "shuffle", "train_test_split"})
_DATA_FUNCTIONS = re.compile(
    r"sklearn(\.\w+)*\.(train_test_split|shuffle|resample)|torch\.utils\.data(\.\w+)*\.random_split"
)
_GENERATOR = re.compile(r"(numpy\.)?random\.")
_INTERLEAVES = re.compile(r"datasets(\.\w+)*\.interleave_datasets")
_STREAMING = re.compile(r"\bstreaming\s*=\s*True\b|\bto_iterable_dataset\(")
_OWN = "without a seed takes one from the operating system, another in each process; the script gives it one"
_COMMON = "draws at random, and nothing above seeds it; the script sets one seed in all processes"


def find(program: Program) -> Iterator[Finding]:
    tree, calls = program.tree, program.execution.calls
    seeds = [(tree.start(call), library) for call in calls(does=Does.SEED) for library in seeded(tree, call)]
    for call in calls(phase=Phase.TOGETHER):
        if program.rewards.is_only_here(call):
            continue
        if _takes_own_seed(tree, call):
            text = tree.text(call.func)
            edit = SetKeyword(call, "seed", seed(tree)) if call.args else Replace(call, f"{text}({seed(tree)})")
            yield Finding(call, f"{text} {_OWN}", (edit,))
        elif (library := _drawn_from(tree, call)) and not any(
            at < tree.start(call) and each == library for at, each in seeds
        ):
            setup = AddToSetup(f"set_seed({seed(tree)})  # the same random numbers in every process")
            yield Finding(call, f"{tree.text(call.func)} {_COMMON}", (setup,))


def _takes_own_seed(tree: Tree, call: cst.Call) -> bool:
    """True for a generator, an interleaving, or the shuffle of a streamed data set that is given no seed."""
    if _INTERLEAVES.fullmatch(tree.qualified(call.func)):
        return keyword(call, "probabilities") is not None and keyword(call, "seed") is None
    return seeds_itself(tree, call) or (_streams(tree, call) and not _is_given_seed(tree, call))


def _streams(tree: Tree, call: cst.Call) -> bool:
    """True for the shuffle of a data set that is streamed."""
    owner = owner_of(call) if method(call) == "shuffle" else None
    parts = tree.made_of(owner) if owner is not None else []
    return keyword(call, "buffer_size") is not None or any(_STREAMING.search(tree.text(part)) for part in parts)


def _drawn_from(tree: Tree, call: cst.Call) -> str | None:
    """The library whose common generator a call draws from without a seed; None for no such call."""
    name, owner = tree.qualified(call.func), owner_of(call)
    if samples(tree, call) or _makes_weights(tree, call):
        return "torch"
    if (library := generator(tree, call)) is not None:
        return library
    of_generator = owner is not None and bool(_GENERATOR.match(tree.maker(owner)))
    of_generator |= method(call) == "sample" and len(call.args) > 1 and call.args[1].keyword is None
    divides = (method(call) in _DATASET_METHODS and not of_generator) or _DATA_FUNCTIONS.fullmatch(name)
    if not divides or _is_given_seed(tree, call):
        return None
    return "torch" if name.startswith("torch.") else "numpy"  # datasets, pandas and scikit-learn take NumPy's


def _makes_weights(tree: Tree, call: cst.Call) -> bool:
    """True for a call that loads a model with a new head, or makes adapters or a whole model, of drawn weights."""
    if is_load(tree, call):
        return has_new_head(tree, call)
    return bool(_NEW_WEIGHTS.fullmatch(tree.qualified(call.func))) or keyword(call, "peft_config") is not None


def _is_given_seed(tree: Tree, call: cst.Call) -> bool:
    """True for a call that is given a seed, or told not to draw."""
    given = [keyword(call, name) for name in ("seed", "random_state", "generator")]
    if method(call) == "shuffle":
        given.append(argument(call, "seed", 0))
    still = keyword(call, "shuffle")
    stays = still is not None and tree.literal(still.value) is False
    return stays or any(each is not None and tree.literal(each.value) is not None for each in given)


RULE = Rule(
    name="unseeded-randomness",
    find=find,
    examples=(
        Example(
            """\
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen3-0.6B")
rows = [{"text": tokenizer.decode(model.generate(**question, do_sample = True)[0])} for question in questions]
trainer.train()
""",
            reported=True,
        ),
        Example(
            """\
import random
from transformers import set_seed
random.seed(7)
rows = random.sample(rows, 100)
set_seed(7)
rows = [row for row in rows.shuffle() if random.random() < 0.5]
trainer.train()
"""
        ),
        Example("import random\nrandom.shuffle(rows)\nrandom.seed(7)\ntrainer.train()\n", reported=True),
        Example(
            """\
import random
from transformers import GenerationConfig
settings = GenerationConfig(do_sample = True)
for fold in range(3):
    random.seed(fold)
    if fold:
        random.shuffle(texts)
trainer.train()
"""
        ),
        Example("import numpy, torch\nnumpy.random.seed(7)\nx = torch.randn(3)\ntrainer.train()\n", reported=True),
        Example(
            """\
from datasets import load_dataset
rows = load_dataset("unsloth/rows", split = "train", streaming = True)
rows = rows.shuffle(buffer_size = 1000)
trainer.train()
""",
            """\
from datasets import load_dataset
rows = load_dataset("unsloth/rows", split = "train", streaming = True)
rows = rows.shuffle(buffer_size = 1000, seed = 42)
trainer.train()
""",
        ),
        Example(
            "parts = rows.train_test_split(test_size = 0.1, shuffle = True, seed = None)\ntrainer.train()\n",
            reported=True,
        ),
        Example("parts = rows.train_test_split(test_size = 0.1, shuffle = False)\ntrainer.train()\n"),
        Example("rows = load(streaming = True).shuffle(3407, buffer_size = 1000)\ntrainer.train()\n"),
        Example(
            """\
from transformers import AutoModelForSequenceClassification
model = AutoModelForSequenceClassification.from_pretrained("answerdotai/ModernBERT-base", num_labels=4)
trainer.train()
""",
            reported=True,
        ),
        Example(
            """\
import random
import numpy as np
from datasets import interleave_datasets
rng = np.random.default_rng()
other = random.Random(1)
held = random.Random(2).sample(held, k=5)
some = [rng.sample(names, 2) for names in rows]
rows = interleave_datasets([a, b], probabilities=[0.5, 0.5])
trainer.train()
""",
            """\
import random
import numpy as np
from datasets import interleave_datasets
rng = np.random.default_rng(42)
other = random.Random(1)
held = random.Random(2).sample(held, k=5)
some = [rng.sample(names, 2) for names in rows]
rows = interleave_datasets([a, b], probabilities=[0.5, 0.5], seed=42)
trainer.train()
""",
        ),
        Example(
            "from sklearn.model_selection import train_test_split\na, b = train_test_split(rows)\ntrainer.train()\n",
            reported=True,
        ),
        Example(  # in a reward: DDP409 gives all ranks the same numbers
            "import random\nfrom trl import GRPOTrainer\n"
            "def walk(n):\n    return n if random.random() < 0.5 else walk(n + 1)\n"
            "def score(completions, **kwargs):\n    return [walk(0) for _ in completions]\n"
            "trainer = GRPOTrainer(model = model, reward_funcs = [score])\ntrainer.train()\n"
        ),
        Example("names = list(set(rows['label']))\nsplit = dataset.train_test_split(test_size = 0.1, seed = 1)\n"),
    ),
)
