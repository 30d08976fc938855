"""DDP407: a training that each process ends by what it alone sees: its clock, a file, its own rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.tree import Tree

#: What a callback tells the trainer to do (transformers, `TrainerControl`).
_CONTROL = ("should_training_stop", "should_epoch_stop", "should_save", "should_evaluate")
_COLLECTIONS = re.compile(r"list|dict|set|collections\.(deque|defaultdict|Counter)")
_CHANGES = frozenset("add append appendleft extend insert update".split())


def _message(what: str) -> str:
    return (
        f"{what}: one may stop while another trains on, and they wait for each other for ever; decide by the step, or"
        " let the main process decide for all"
    )


_CLOCKS = _message("each process asks its own clock")
_FILES = _message("each process looks for the file at a time of its own")
_ROWS = _message("each process collects what it sees of the rows")


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    around = {above for node in (*program.training.calls, *program.training.events) for above in tree.ancestors(node)}
    loops = [loop for kind in (cst.While, cst.For) for loop in tree.of(kind) if loop in around]
    for loop in loops:
        if isinstance(loop, cst.While) and program.execution.unlike(loop.test):
            yield Finding(loop, _CLOCKS, todo=True)
    leaving = [node for loop in loops for kind in (cst.Break, cst.Return) for node in tree.within(loop, kind)]
    steering = [assign for name in _CONTROL for assign in tree.setting(name)]
    for test in _tests(tree, [*leaving, *steering]):
        if program.execution.unlike(test.test):
            yield Finding(test, _CLOCKS, todo=True)
    for test in _tests(tree, steering):
        if program.execution.has(test.test, Does.TEST):
            yield Finding(test, _FILES, todo=True)
        elif any(_is_collected(tree, name) for name in tree.within(test.test, cst.Name)):
            yield Finding(test, _ROWS, todo=True)


def _tests(tree: Tree, nodes: Sequence[cst.CSTNode]) -> list[cst.If]:
    """The conditions that live nodes stand under."""
    live = [node for node in nodes if tree.is_live(node)]
    return list(dict.fromkeys(above for node in live for above in tree.ancestors(node) if isinstance(above, cst.If)))


def _is_collected(tree: Tree, name: cst.Name) -> bool:
    """True for a list or the like at module level that a function adds to."""
    made = tree.value(name)
    calls = isinstance(made, cst.Call) and bool(_COLLECTIONS.fullmatch(tree.qualified(made.func)))
    if not (calls or isinstance(made, (cst.List, cst.Dict, cst.Set))) or tree.function(made) is not None:
        return False
    parts = [tree.parents[use] for use in tree.loads(name.value)]
    changed = [part for part in parts if isinstance(part, cst.Attribute) and part.attr.value in _CHANGES]
    functions = {function.name.value for part in changed if (function := tree.function(part)) is not None}
    return bool(functions - {"on_log", "on_evaluate"})  # what is logged is gathered over the processes


RULE = Rule(
    code="DDP407",
    name="stopped-by-one-process",
    summary="A training that a clock, a file or a rank's own rows may end gets a `TODO` above the condition.",
    why=(
        "Clocks, steps reached and rows differ between ranks. The first one to stop leaves the others waiting in the "
        "next collective."
    ),
    find=find,
    examples=(
        Example(
            "import time\nend = time.time() + 3600\nwhile time.time() < end:\n    trainer.train()\n",
            f"import time\nend = time.time() + 3600\n# TODO[nb2ddp] DDP407: {_CLOCKS}\n"
            "while time.time() < end:\n    trainer.train()\n",
        ),
        Example(
            """\
import time
class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        elapsed = time.time() - self.start
        if elapsed > 3600:
            control.should_training_stop = True
""",
            f"""\
import time
class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        elapsed = time.time() - self.start
        # TODO[nb2ddp] DDP407: {_CLOCKS}
        if elapsed > 3600:
            control.should_training_stop = True
""",
        ),
        Example(
            """\
import os
solved = []
def reward(completions, **kwargs):
    solved.extend(completions)
class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if sum(solved) > 100:
            control.should_training_stop = True
        if os.path.exists("STOP"):
            control.should_training_stop = True
        if state.global_step > 100:
            control.should_training_stop = True
""",
            f"""\
import os
solved = []
def reward(completions, **kwargs):
    solved.extend(completions)
class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        # TODO[nb2ddp] DDP407: {_ROWS}
        if sum(solved) > 100:
            control.should_training_stop = True
        # TODO[nb2ddp] DDP407: {_FILES}
        if os.path.exists("STOP"):
            control.should_training_stop = True
        if state.global_step > 100:
            control.should_training_stop = True
""",
        ),
        Example("import time\nstart = time.time()\ntrainer.train()\nif time.time() - start > 60:\n    print(1)\n"),
    ),
)
