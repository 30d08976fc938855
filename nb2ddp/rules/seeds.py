"""DDP402: Unseeded random numbers before training get `set_seed(...)`, or a `TODO` if only one process draws them.

Each rank would shuffle or split the data differently: some samples are trained twice, others never. datasets takes a
missing seed from NumPy's global state. New weights, such as a classifier's head, would differ in each run, so that one
GPU and several could not be compared.

Python orders sets of strings differently in each process: the script restarts itself with PYTHONHASHSEED. A GRPO
trainer gives each rank its own seed (`set_seed(args.seed, device_specific=True)`, trl 1.15, grpo_trainer.py:1077), so
random draws for the next training are seeded again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import Does, samples
from nb2ddp.facts.execution import Phase
from nb2ddp.facts.loading import has_new_head, is_load
from nb2ddp.facts.order import collects, is_order_lost
from nb2ddp.facts.program import Program
from nb2ddp.facts.randomness import Seeding, generator, makes_generator, may_lack_seed, seed, seeds_itself
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import AddToSetup, Replace, SetKeyword, Wrap
from nb2ddp.syntax.tree import Tree, argument, keyword, method

_INTERLEAVES = re.compile(r"datasets(\.\w+)*\.interleave_datasets")
#: What draws weights that no checkpoint holds, beside a load: adapters of PEFT's own (Unsloth seeds its adapters).
_NEW_WEIGHTS = re.compile(r"peft(\.\w+)*\.get_peft_model|transformers(\.\w+)*\.\w+\.from_config")
_STUDY = re.compile(r"optuna\.(study\.)?create_study")
_IN_ORDER = re.compile(r"list|tuple|enumerate|iter|map|zip|numpy\.array|dict\.fromkeys|datasets\.ClassLabel")
_AS_READY = re.compile(r"(concurrent\.futures|asyncio)\.as_completed|(.*\.)?imap_unordered")
#: Methods of a data set that draw, unless they are given a seed.
_DATASET_METHODS = frozenset({"sample", "shuffle", "train_test_split"})
_DATA_FUNCTIONS = re.compile(
    r"sklearn(\.\w+)*\.(train_test_split|shuffle|resample|\w*ShuffleSplit)|torch\.utils\.data(\.\w+)*\.random_split"
)
#: Splitters that draw only where they are told to.
_FOLDS = re.compile(r"sklearn(\.\w+)*\.(Stratified|Group|StratifiedGroup)?KFold")
_STUDIES = (
    "each process's study tries other values, so the ranks train different models: pass a sampler with a seed, "
    "or use the trainer's hyperparameter_search"
)
_APART = (
    "draws other numbers in each process, because the GRPO trainer above gives each rank its own seed: call "
    "transformers.set_seed with one number just before"
)
_SEEDED = "set_seed({})  # the same random numbers in every process"
_STREAMING = re.compile(r"\bstreaming\s*=\s*True\b|\bto_iterable_dataset\(")


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    together = program.execution.calls(phase=Phase.TOGETHER)
    before = [call for call in together if not program.rewards.is_only_here(call)]
    drawing = {call: drawn for call in before if (drawn := _drawn(tree, call)) is not None}
    seeding, made = Seeding(program.placement), set(before)
    for call, (library, message) in drawing.items():
        if not seeding.covers(call, library):
            yield Finding(call, message, (AddToSetup(_SEEDED.format(seed(tree))),))
    for call in before:
        streams = _streams(tree, call) and not _is_given_seed(tree, call)
        if streams or _makes_generator(tree, call):
            message = f"{tree.text(call.func)} without a seed draws other numbers in each process; the script seeds it"
            text = f"{tree.text(call.func)}({seed(tree)})"
            edit = SetKeyword(call, "seed", seed(tree)) if call.args or streams else Replace(call, text)
            yield Finding(call, message, (edit,))
        elif may_lack_seed(tree, call, made):
            yield _seeded_by_default(program, call, seeding)
    for node in _in_set_order(program):
        message = f"{tree.text(node)} has another order in each process; the script gives all the same"
        yield Finding(node, message, (_hash_seed(tree),))
    yield from _own_order(program)
    yield from _studies(program)
    yield from _drawn_alone(program, list(drawing))
    yield from _seeded_apart(program, seeding, drawing)


def _seeded_by_default(program: Program, call: cst.Call, seeding: Seeding) -> Finding:
    """Draw the seed of a generator that is given none from the common one of its library, which all processes seed."""
    tree, given = program.tree, call.args[0].value
    library = "numpy" if tree.qualified(call.func).startswith("numpy.") else "random"
    message = f"{tree.text(call)} draws other numbers in each process where {tree.text(given)} is None"
    if not isinstance(call.func, cst.Attribute):
        return Finding(call, f"{message}: pass a seed", todo=True)
    drawn = f"{tree.text(call.func.value)}.{'randint(2**31)' if library == 'numpy' else 'getrandbits(32)'}"
    draws = Wrap(given, f"{drawn} if {tree.text(given)} is None else ", "")
    seeds = () if seeding.covers(call, library) else (AddToSetup(_SEEDED.format(seed(tree))),)
    return Finding(call, f"{message}; the script seeds it", (draws, *seeds))


def _hash_seed(tree: Tree) -> AddToSetup:
    return AddToSetup(f"use_hash_seed({seed(tree)})", before_imports=True)


def _studies(program: Program) -> Iterator[Finding]:
    """Searches that each process would make on its own."""
    for call in program.execution.calls(_STUDY):
        sampler = keyword(call, "sampler")
        if sampler is None or (isinstance(sampler.value, cst.Call) and keyword(sampler.value, "seed") is None):
            yield Finding(call, _STUDIES, todo=True)


def _drawn_alone(program: Program, drawing: list[cst.Call]) -> Iterator[Finding]:
    """What moves the generators of one process alone, where something is drawn later."""
    tree, placement = program.tree, program.placement
    spans = [(tree.start(guard.first), tree.span(guard.last)[1]) for guard in placement.guards]
    spans += map(tree.span, placement.lifted)
    calls = program.execution.calls() if spans else []
    chances = [call for call in calls if _drawn(tree, call) or program.execution.does(call) & Does.DRAW]
    for start, end in spans:
        inside = [call for call in chances if any(start <= tree.start(place) < end for place in _places(tree, call))]
        later = [call for call in drawing if tree.start(call) >= end and call not in inside]
        if later and inside:
            message = "draws random numbers in one process only, so that later draws, such as"
            message += f" {tree.text(later[0].func)}, differs between processes: seed again before it"
            yield Finding(inside[0], message, todo=True)


def _seeded_apart(program: Program, seeding: Seeding, drawing: dict[cst.Call, tuple[str, str]]) -> Iterator[Finding]:
    """What is drawn before a training, where an earlier GRPO trainer has given each process a seed of its own."""
    tree, late = program.tree, dict[cst.CSTNode, cst.Call]()
    trainers = [each for each in program.training.trainers if "GRPO" in tree.class_name(each.func)]
    built = [place for each in trainers for place in tree.run_from(each, tree.uses)]
    planned = program.execution.calls(phase=Phase.BEFORE | Phase.BETWEEN) if built else []

    def uses(function: cst.FunctionDef) -> list[cst.CSTNode]:
        handed_on, functions = program.rewards.names, program.rewards.functions
        return [use for use in tree.uses(function) if use not in handed_on and tree.owner(use) not in functions]

    for draw in (call for call in planned if call in drawing and not _makes_weights(tree, call)):
        owner = tree.scope(tree.function(draw) or draw)
        if isinstance(owner, cst.ClassDef) and any("TrainerCallback" in tree.text(base) for base in owner.bases):
            continue  # which trains on none of it
        for place in tree.run_from(draw, uses):
            loops = [above for above in tree.ancestors(place) if isinstance(above, (cst.For, cst.While))]
            since = [tree.start(loop) for loop in loops for each in built if loop in tree.ancestors(each)]
            since += [tree.start(each) for each in built if tree.start(each) < tree.start(place)]
            is_late = bool(since) and program.training.is_before_end(place)
            is_shared = program.placement.is_done_once(place)
            if is_late and not is_shared and not seeding.again(draw, drawing[draw][0], min(since), tree.start(place)):
                apart = [loop for loop in loops if not any(loop in tree.ancestors(each) for each in built)]
                late.setdefault(apart[-1] if apart else place, draw)
    for place, draw in late.items():
        yield Finding(place, f"{tree.text(draw.func)} {_APART}", severity=Severity.WARNING, todo=True)


def _own_order(program: Program) -> Iterator[Finding]:
    """Hashes of strings, and results in the order in which they are ready."""
    tree = program.tree
    for call in program.execution.calls(phase=Phase.TOGETHER):
        name = tree.qualified(call.func)
        if name == "hash" and not tree.bindings("hash"):
            message = "hash() of a string differs between processes; the script gives all the same"
            yield Finding(call, message, (_hash_seed(tree),))
        elif _AS_READY.fullmatch(name) and _collects_in_order(tree, call) and not program.placement.runs_alone(call):
            message = "gives its results in another order in each process: keep their order, or sort them"
            yield Finding(call, f"{tree.text(call.func)} {message}", todo=True)


def _collects_in_order(tree: Tree, call: cst.Call) -> bool:
    """True where something is collected in the order of what a call gives."""
    loop = tree.around(call, cst.For)
    if loop is None or call not in tree.within(loop.iter, cst.Call):
        return not is_order_lost(tree, call)
    return collects(tree, loop)


def _in_set_order(program: Program) -> Iterator[cst.BaseExpression]:
    """Sets before the end of training that are gone through in an order which each process hashes for itself."""
    tree = program.tree
    ordered: list[cst.BaseExpression] = [
        call.args[0].value
        for call in tree.of(cst.Call)
        if call.args and not call.args[0].star and _IN_ORDER.fullmatch(tree.qualified(call.func))
    ]
    ordered += [*(loop.iter for loop in tree.of(cst.For)), *(loop.iter for loop in tree.of(cst.CompFor))]
    for node in ordered:
        is_set = isinstance(tree.value(node), (cst.Set, cst.SetComp)) or tree.maker(node) in ("set", "frozenset")
        if is_set and program.execution.runs(node) and not is_order_lost(tree, node):
            yield node


def _makes_generator(tree: Tree, call: cst.Call) -> bool:
    """True for a call that seeds a generator of its own with what the operating system gives."""
    if _INTERLEAVES.fullmatch(tree.qualified(call.func)):
        return keyword(call, "probabilities") is not None and keyword(call, "seed") is None
    return seeds_itself(tree, call)


def _drawn(tree: Tree, call: cst.Call) -> tuple[str, str] | None:
    """The common generator that a call draws from without a seed, and what comes of it; None for no such call."""
    name, library = tree.text(call.func), "torch" if samples(tree, call) else generator(tree, call)
    if _divides(tree, call):  # datasets and scikit-learn take NumPy's
        library = library or ("torch" if tree.qualified(call.func).startswith("torch.") else "numpy")
        message = f"{name.rsplit('.', 1)[-1]} without a seed gives each process other data; the script seeds it"
        return library, message
    if _makes_weights(tree, call):
        return library or "torch", f"{name} draws new weights, other ones in each run; the script seeds them"
    return (library, f"{name} draws other numbers in each process; the script seeds it") if library else None


def _makes_weights(tree: Tree, call: cst.Call) -> bool:
    """True for a call that loads a model with a new head, or makes adapters or a whole model, of drawn weights."""
    if is_load(tree, call):
        return has_new_head(tree, call)
    return bool(_NEW_WEIGHTS.fullmatch(tree.qualified(call.func))) or keyword(call, "peft_config") is not None


def _divides(tree: Tree, call: cst.Call) -> bool:
    """True for a method of a data set that draws, and is given no seed."""
    name, is_fold = tree.qualified(call.func), bool(_FOLDS.fullmatch(tree.qualified(call.func)))
    owner = call.func.value if isinstance(call.func, cst.Attribute) else None
    of_generator = owner is not None and makes_generator(tree, owner)
    if of_generator or (method(call) == "sample" and sum(each.keyword is None for each in call.args) > 1):
        return False  # of a generator: `rng.sample(rows, 2)`
    shuffle = keyword(call, "shuffle")
    return (
        (method(call) in _DATASET_METHODS or is_fold or bool(_DATA_FUNCTIONS.fullmatch(name)))
        and not name.startswith(("random.", "numpy.random."))
        and (not is_fold if shuffle is None else tree.literal(shuffle.value) is not False)
        and not _is_given_seed(tree, call)
        and not _streams(tree, call)
    )


def _is_given_seed(tree: Tree, call: cst.Call) -> bool:
    given = [keyword(call, name) for name in ("seed", "random_state", "generator")]
    if tree.text(call.func).endswith(".shuffle"):
        given.append(argument(call, "seed", 0))
    return any(each is not None and tree.literal(each.value) is not None for each in given)


def _streams(tree: Tree, call: cst.Call) -> bool:
    """True for the shuffle of a data set that is streamed: its generator is its own, whatever has been seeded."""
    if method(call) != "shuffle":
        return False
    owner = cst.ensure_type(call.func, cst.Attribute).value
    parts = tree.made_of(owner)
    return keyword(call, "buffer_size") is not None or any(_STREAMING.search(tree.text(part)) for part in parts)


def _places(tree: Tree, call: cst.Call) -> list[cst.CSTNode]:
    """Where a call is made: where it stands, and where its function is called."""
    function = tree.function(call)
    return [call, *(tree.calls_of(function) if function is not None else [])]


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
from trl import GRPOTrainer
def rows(n):
    return [random.choice(questions) for _ in range(n)]
for n in (10, 20):
    trainer = GRPOTrainer(model = model, reward_funcs = [score], train_dataset = rows(n))
    trainer.train()
""",
            "import random\n"
            "from trl import GRPOTrainer\n"
            "def rows(n):\n"
            "    return [random.choice(questions) for _ in range(n)]\n"
            "for n in (10, 20):\n"
            "    # TODO[nb2ddp] DDP402: random.choice draws other numbers in each process, because the GRPO "
            "trainer above gives each rank its own seed: call transformers.set_seed with one number just before\n"
            "    trainer = GRPOTrainer(model = model, reward_funcs = [score], train_dataset = rows(n))\n"
            "    trainer.train()\n",
        ),
        Example(
            """\
import random
from transformers import set_seed
random.seed(7)
rows = random.sample(rows, 100)
def draw():
    return random.random()
set_seed(7)
rows = [row for row in rows.shuffle() if draw() < 0.5]
trainer.train()
"""
        ),
        Example(
            """\
import random
import numpy as np
random.seed(1)
np.random.seed(1)
class Simulator:
    def __init__(self, seed = None):
        self.seed = seed
        self.rng = random.Random(seed)
    def reset(self, seed = None):
        self.rng = random.Random(self.seed) if seed is None else random.Random(seed)
class Env:
    def __init__(self):
        self.simulator = Simulator()
class Board:
    def __init__(self, size, seed = None):
        self.rng = np.random.default_rng(seed)
def draw(n, seed = None):
    return np.random.default_rng(seed).normal(size = n)
env = Env()
env.simulator.reset()
boards = [Board(size, size) for size in sizes]
rows = draw(10)
trainer.train()
draw(10)
""",
            """\
import random
import numpy as np
random.seed(1)
np.random.seed(1)
class Simulator:
    def __init__(self, seed = None):
        self.seed = seed
        self.rng = random.Random(random.getrandbits(32) if seed is None else seed)
    def reset(self, seed = None):
        self.rng = random.Random(random.getrandbits(32) if self.seed is None else self.seed) if seed is None else \
random.Random(seed)
class Env:
    def __init__(self):
        self.simulator = Simulator()
class Board:
    def __init__(self, size, seed = None):
        self.rng = np.random.default_rng(seed)
def draw(n, seed = None):
    return np.random.default_rng(np.random.randint(2**31) if seed is None else seed).normal(size = n)
env = Env()
env.simulator.reset()
boards = [Board(size, size) for size in sizes]
rows = draw(10)
trainer.train()
draw(10)
""",
        ),
        Example("import random\nrandom.shuffle(rows)\nrandom.seed(7)\ntrainer.train()\n", reported=True),
        Example(
            """\
import random
import numpy as np
from transformers import GenerationConfig
held = {"a", "b"}
settings = GenerationConfig(do_sample = True)
for fold in range(3):
    random.seed(fold)
    if fold:
        random.shuffle(texts)
mean = np.mean([len(name) for name in held])
trainer.train()
"""
        ),
        Example("names = {'a', 'b'}\nfor name in names:\n    text += name\ntrainer.train()\n", reported=True),
        Example("import numpy, torch\nnumpy.random.seed(7)\nx = torch.randn(3)\ntrainer.train()\n", reported=True),
        Example("kept = rows.filter(lambda row: hash(row) % 10)\ntrainer.train()\n", reported=True),
        Example(
            """\
for row in pool.imap_unordered(tokenize, texts):
    rows.append(row)
trainer.train()
""",
            """\
# TODO[nb2ddp] DDP402: pool.imap_unordered gives its results in another order in each process: keep their order, or \
sort them
for row in pool.imap_unordered(tokenize, texts):
    rows.append(row)
trainer.train()
""",
        ),
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
            "import random\nrows = random.sample(rows, 100)\nrows = dataset.shuffle()\ntrainer.train()\n", reported=True
        ),
        Example(
            """\
import random, json
json.dump(random.random(), open("first.json", "w"))
random.shuffle(rows)
trainer.train()
""",
            "import random, json\n"
            "# TODO[nb2ddp] DDP402: draws random numbers in one process only, so that later draws, such as "
            "random.shuffle, differs between processes: seed again before it\n"
            'json.dump(random.random(), open("first.json", "w"))\n'
            "random.shuffle(rows)\n"
            "trainer.train()\n",
        ),
        Example(
            """\
from transformers import AutoModelForSequenceClassification
model = AutoModelForSequenceClassification.from_pretrained("answerdotai/ModernBERT-base", num_labels=4)
trainer.train()
""",
            reported=True,
        ),
        Example(
            "names = set(rows['label'])\nlabel2id = {n: i for i, n in enumerate(names)}\ntrainer.train()\n",
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
rows = interleave_datasets([a, b], probabilities=[0.5, 0.5], seed=42)
trainer.train()
""",
        ),
        Example(
            "from sklearn.model_selection import train_test_split\na, b = train_test_split(rows)\ntrainer.train()\n",
            reported=True,
        ),
        Example(  # a reward that calls itself: DDP409 gives each of its calls the same numbers
            "import random\nfrom trl import GRPOTrainer\n"
            "def walk(n):\n    return n if random.random() < 0.5 else walk(n + 1)\n"
            "def score(completions, **kwargs):\n    return [walk(0) for _ in completions]\n"
            "trainer = GRPOTrainer(model = model, reward_funcs = [score])\ntrainer.train()\n"
        ),
        Example("names = sorted(list(set(rows['label'])))\nprint(len({*names}))\ntrainer.train()\n"),
        Example("split = dataset.train_test_split(test_size = 0.1, seed = 1)\n"),
    ),
)
