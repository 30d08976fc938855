"""DDP407: a training that each process ends by its own clock."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.model import Severity
from nb2ddp.program import Finding, Program
from nb2ddp.rule import Example, Rule
from nb2ddp.tree import Tree

_CLOCK = re.compile(r"time\.(time|monotonic|perf_counter|process_time)(_ns)?|datetime\.(datetime\.)?(now|utcnow|today)")
#: What a callback tells the trainer to do (transformers, `TrainerControl`).
_CONTROL = re.compile(r"should_(training_stop|epoch_stop|save|evaluate)")
_MESSAGE = (
    "each process asks its own clock: one may stop while another trains on, and they wait for each other for ever;"
    " count steps, or let the main process decide for all"
)


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    loops = {
        above: None
        for node in (*program.training.calls, *program.training.events)
        for above in tree.ancestors(node)
        if isinstance(above, (cst.While, cst.For))
    }
    for loop in loops:
        if isinstance(loop, cst.While) and _asks_clock(tree, loop.test):
            yield Finding(loop, _MESSAGE, todo=True)
    leaving = [node for kind in (cst.Break, cst.Return) for node in tree.of(kind)]
    deciding: list[cst.CSTNode] = [n for n in leaving if any(above in loops for above in tree.ancestors(n))]
    deciding += [
        assign
        for assign in tree.of(cst.Assign)
        if isinstance(target := assign.targets[0].target, cst.Attribute) and _CONTROL.fullmatch(target.attr.value)
    ]
    tests = {above: None for node in deciding for above in tree.ancestors(node) if isinstance(above, cst.If)}
    for test in tests:
        if _asks_clock(tree, test.test):
            yield Finding(test, _MESSAGE, todo=True)


def _asks_clock(tree: Tree, test: cst.BaseExpression) -> bool:
    parts = [test, *(value for name in tree.within(test, cst.Name) if (value := tree.value(name)) is not name)]
    return any(_CLOCK.fullmatch(tree.qualified(call.func)) for part in parts for call in tree.within(part, cst.Call))


RULE = Rule(
    code="DDP407",
    name="training-by-the-clock",
    summary="A training that a clock ends gets a `TODO` above its condition.",
    why="Clocks differ between processes, and so does the step that each has reached. The first one to stop leaves the"
    " others waiting in the next collective.",
    find=find,
    severity=Severity.WARNING,
    examples=(
        Example(
            "import time\nend = time.time() + 3600\nwhile time.time() < end:\n    trainer.train()\n",
            f"import time\nend = time.time() + 3600\n# TODO[nb2ddp] DDP407: {_MESSAGE}\n"
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
        # TODO[nb2ddp] DDP407: {_MESSAGE}
        if elapsed > 3600:
            control.should_training_stop = True
""",
        ),
        Example("import time\nstart = time.time()\ntrainer.train()\nif time.time() - start > 60:\n    print(1)\n"),
    ),
)
