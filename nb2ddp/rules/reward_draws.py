"""DDP409: A reward that draws at random gets `@same_draws`: the same numbers on all ranks, others at each call.

GRPO compares the completions of one prompt, which may lie on several ranks. `GRPOTrainer` ends its constructor with
`set_seed(args.seed, device_specific=True)`: each rank then draws another board, and an easy board looks like a good
completion. One process draws as the notebook does. A reward whose random numbers no seed controls gets a `TODO`, and so
does a rollout, which samples the completions itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.facts.randomness import generator, seeds_itself
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Edit, InsertBefore, Wrap
from nb2ddp.syntax.tree import Function

HELPER = "same_draws"
#: What takes its numbers from the operating system.
_NEVER_SEEDED = re.compile(r"secrets\.\w+|uuid\.uuid[14]|os\.urandom|random\.SystemRandom(\.\w+)?")
_SEEDING = {"random": "random.seed", "numpy": "numpy.random.seed", "torch": "torch.manual_seed"}

_ALIKE = "for completions of one prompt; the script draws the same in all"
_APART = (
    "for completions of one prompt: seed it with what all ranks have, such as a column of the data or "
    'kwargs["trainer_state"].global_step'
)


def find(program: Program) -> Iterator[Finding]:
    tree, apart = program.tree, list[cst.Call]()
    for entry in program.rewards.entries:
        calls = program.rewards.calls(entry)
        names = {tree.qualified(call.func) for call in calls}
        drawing = {call: library for call in calls if (library := generator(tree, call)) is not None}
        unseeded = {call: library for call, library in drawing.items() if _SEEDING[library] not in names}
        is_rollout = entry in program.rewards.rollouts
        if is_rollout:  # it samples the completions, which each process shall draw for itself
            unseeded = {call: library for call, library in unseeded.items() if library != "torch"}
        stays = is_rollout or (isinstance(entry, cst.FunctionDef) and entry.asynchronous is not None)
        if unseeded and not stays and not _is_drawn_alike(program, entry):
            message = f"draws other numbers in each process ({tree.text(next(iter(unseeded)).func)}) {_ALIKE}"
            yield Finding(entry, message, (_drawn_alike(entry),))
        alone = [
            call for call in calls if seeds_itself(tree, call) or _NEVER_SEEDED.fullmatch(tree.qualified(call.func))
        ]
        apart += [*alone, *(unseeded if stays else ())]
    for call in dict.fromkeys(apart):
        yield Finding(call, f"{tree.text(call.func)} draws other numbers in each process {_APART}", todo=True)


def _is_drawn_alike(program: Program, entry: Function) -> bool:
    tree, decorators = program.tree, getattr(entry, "decorators", ())
    above = [a.func for a in tree.ancestors(entry) if isinstance(a, cst.Call)]
    return HELPER in [tree.text(node) for node in (*(each.decorator for each in decorators), *above)]


def _drawn_alike(entry: Function) -> Edit:
    if isinstance(entry, cst.FunctionDef):
        return InsertBefore(entry, f"@{HELPER}")
    return Wrap(entry, f"{HELPER}(", ")")


RULE = Rule(
    name="reward-drawn-apart",
    find=find,
    examples=(
        Example(
            """\
import random
def rollout(prompts, trainer):
    board = random.randint(0, 9)
    return play(prompts, board, model.generate(prompts, do_sample = True))
trainer = GRPOTrainer(model = model, rollout_func = rollout, args = training_args)
trainer.train()
""",
            """\
import random
def rollout(prompts, trainer):
    # TODO[nb2ddp] DDP409: random.randint draws other numbers in each process for completions of one prompt: seed it \
with what all ranks have, such as a column of the data or kwargs["trainer_state"].global_step
    board = random.randint(0, 9)
    return play(prompts, board, model.generate(prompts, do_sample = True))
trainer = GRPOTrainer(model = model, rollout_func = rollout, args = training_args)
trainer.train()
""",
        ),
        Example(
            """\
import numpy as np
def strategy_succeeds(completions, **kwargs):
    seed = np.random.randint(10000)
    return [play(completion, seed) for completion in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [strategy_succeeds], args = training_args)
trainer.train()
""",
            """\
import numpy as np
@same_draws
def strategy_succeeds(completions, **kwargs):
    seed = np.random.randint(10000)
    return [play(completion, seed) for completion in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [strategy_succeeds], args = training_args)
trainer.train()
""",
        ),
        Example(
            """\
import random
def make_board():
    return random.sample(range(16), 2)
def make_reward(weight):
    def plays(completions, **kwargs):
        board = make_board()
        return [weight * play(completion, board) for completion in completions]
    return plays
rewards = []
rewards.append(make_reward(2))
trainer = GRPOTrainer(model, rewards, args = training_args)
trainer.train()
""",
            """\
import random
def make_board():
    return random.sample(range(16), 2)
def make_reward(weight):
    @same_draws
    def plays(completions, **kwargs):
        board = make_board()
        return [weight * play(completion, board) for completion in completions]
    return plays
rewards = []
rewards.append(make_reward(2))
trainer = GRPOTrainer(model, rewards, args = training_args)
trainer.train()
""",
        ),
        Example(
            """\
import numpy as np
rewards = [lambda completions, **_: [np.random.random() for _ in completions]]
trainer = GRPOTrainer(model = model, reward_funcs = rewards)
trainer.train()
""",
            """\
import numpy as np
rewards = [same_draws(lambda completions, **_: [np.random.random() for _ in completions])]
trainer = GRPOTrainer(model = model, reward_funcs = rewards)
trainer.train()
""",
        ),
        Example(
            """\
import numpy as np
def plays(completions, **kwargs):
    rng = np.random.default_rng()
    return [play(completion, rng) for completion in completions]
trainer = GRPOTrainer(model = model, reward_funcs = plays)
trainer.train()
""",
            "import numpy as np\n"
            "def plays(completions, **kwargs):\n"
            "    # TODO[nb2ddp] DDP409: np.random.default_rng draws other numbers in each process for "
            "completions of one prompt: seed it with what all ranks have, such as a column of the data or "
            'kwargs["trainer_state"].global_step\n'
            "    rng = np.random.default_rng()\n"
            "    return [play(completion, rng) for completion in completions]\n"
            "trainer = GRPOTrainer(model = model, reward_funcs = plays)\n"
            "trainer.train()\n",
        ),
        Example(
            """\
import random
import numpy as np
def plays(completions, seed, **kwargs):
    random.seed(seed[0])
    first = random.random()
    boards = [np.random.RandomState(each).rand(4) for each in seed]
    return [play(completion, first, board) for completion, board in zip(completions, boards)]
def shuffled(rows):
    random.shuffle(rows)
    return rows
trainer = GRPOTrainer(model = model, reward_funcs = [plays], train_dataset = shuffled(rows))
trainer.train()
"""
        ),
    ),
)
