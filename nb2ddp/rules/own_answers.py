"""DDP411: Files of a folder are sorted; rows that start with an environment's `reset()` get a `TODO`.

`glob`, `listdir`, `iterdir` and `walk` return names in the file system's order, which may differ between machines, and
an environment chooses its first state at random. Ranks would train on different rows, or in a different order: some
rows twice, others never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.execution import Phase
from nb2ddp.facts.flow import owner_of
from nb2ddp.facts.order import collects, is_order_lost
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Edit, InsertBefore, Wrap
from nb2ddp.syntax.tree import ADDING, Statement, Tree, keyword, method, own_class

#: What gives a list; the others give an iterator, which only a loop or another list takes as well sorted.
_LISTS = re.compile(r"glob\.glob|os\.listdir")
_SORTABLE = re.compile(r"glob\.i?glob|os\.listdir|.*\.(glob|iterdir|rglob)")
_TAKES_ALL = frozenset("enumerate list map tuple zip".split())
_COLLECTING = (cst.For, cst.While, cst.CompFor, cst.ListComp)
_UNSORTED = "may list files in another order on each machine; the script sorts them"
_MESSAGE = (
    "an environment may start differently in each process, which then trains on other rows: pass reset() a seed, "
    "or write the rows to a file once, before the job"
)


def find(program: Program) -> Iterator[Finding]:
    tree, execution = program.tree, program.execution
    for call in execution.calls(does=Does.LIST, phase=Phase.BEFORE | Phase.BETWEEN):
        if _SORTABLE.fullmatch(tree.qualified(call.func) or tree.text(call.func)) and _is_gone_through(tree, call):
            yield Finding(call, f"{tree.text(call.func)}(...) {_UNSORTED}", (Wrap(call, "sorted(", ")"),))
        elif tree.qualified(call.func) == "os.walk" and (edits := tuple(_sorted_walk(tree, call))):
            yield Finding(call, f"{tree.text(call.func)}(...) {_UNSORTED}", edits)
    for call in execution.calls(re.compile(r".*\.reset"), phase=Phase.BEFORE | Phase.BETWEEN):
        around = [above for above in tree.ancestors(call) if isinstance(above, _COLLECTING)]
        collected = bool(around) and _is_kept(program, around[-1])
        alone = isinstance(tree.parents[call], cst.Expr) or program.placement.is_done_once(call)
        if collected and not alone and keyword(call, "seed") is None and not _is_read(tree, call):
            yield Finding(call, _MESSAGE, todo=True)


def _sorted_walk(tree: Tree, call: cst.Call) -> Iterator[Edit]:
    """Sort what a loop that collects walks through, unless it sorts anything itself.

    A loop may take folders out of their list, so as not to walk there: then that list is sorted, and not the walk.
    """
    loop = tree.parents[call]
    if not isinstance(loop, cst.For) or not isinstance(loop.body, cst.IndentedBlock) or not collects(tree, loop):
        return
    if not isinstance(loop.target, cst.Tuple):
        return
    _, *lists = [tree.text(each.value) for each in loop.target.elements]
    read = [name for name in lists if any(each.value == name for each in tree.within(loop.body, cst.Name))]
    if read and "sort" not in tree.text(loop.body):
        if lists[0] not in read:
            yield Wrap(call, "sorted(", ")")
        first = cast(Statement, loop.body.body[0])
        yield InsertBefore(first, "\n".join(f"{name}.sort()" for name in read))


def _is_kept(program: Program, loop: cst.CSTNode) -> bool:
    """True where what a loop collects is given on, and not only printed or counted; for a comprehension too."""
    tree = program.tree
    if not isinstance(loop, (cst.For, cst.While)):
        ends = tree.goes_to(loop)
    elif tree.within(loop, cst.Yield):
        return True
    else:
        filled = [owner_of(call) for call in tree.within(loop, cst.Call) if method(call) in ADDING]
        filled += [target.value for target in tree.targets(loop) if isinstance(target, cst.Subscript)]
        filled += [grown.target for grown in tree.within(loop, cst.AugAssign)]
        names = {name.value for each in filled if each is not None for name in tree.within(each, cst.Name)}
        function, inside = tree.function(loop), set(tree.within(loop, cst.Name))
        uses = (use for name in names for use in tree.loads(name) if function in (None, tree.function(use)))
        ends = [end for use in uses if use not in inside for end in tree.goes_to(use)]
    return any(not _is_told(program, end) for end in ends)


def _is_told(program: Program, node: cst.CSTNode) -> bool:
    """True for what only a person is told, or what is counted or averaged, also one by one in a loop."""
    tree, above = program.tree, program.tree.parents[node]
    told = (isinstance(each, cst.Call) and program.execution.does(each) & Does.TELL for each in tree.ancestors(node))
    listed = isinstance(above, cst.For) and above.iter is node and not collects(tree, above)
    return listed or is_order_lost(tree, node) or any(told)


def _is_read(tree: Tree, call: cst.Call) -> bool:
    """True for a method that the notebook defines: what it draws or asks stands there, where other rules find it."""
    owner = own_class(tree, call.func)
    return owner is not None and any(each.name.value == method(call) for each in tree.methods(owner))


def _is_gone_through(tree: Tree, call: cst.Call) -> bool:
    """True where the order of a listing is kept by what takes it."""
    taken = tree.parents[call]
    if is_order_lost(tree, call) or any(isinstance(above, cst.DictComp) for above in tree.inside_statement(call)):
        return False
    if _LISTS.fullmatch(tree.qualified(call.func)):
        return not isinstance(taken, (cst.Attribute, cst.Expr))
    if isinstance(taken, cst.Arg):
        outer = tree.parents[taken]
        return isinstance(outer, cst.Call) and tree.qualified(outer.func) in _TAKES_ALL
    return isinstance(taken, (cst.For, cst.CompFor)) and taken.iter is call and collects(tree, taken)


_GIVEN = "trainer = GRPOTrainer(model, train_dataset = rows)\ntrainer.train()"

RULE = Rule(
    name="rows-of-its-own",
    find=find,
    examples=(
        Example(
            """\
import os
from pathlib import Path
texts = [path.read_text() for path in Path("data").rglob("*.txt")]
names = os.listdir("data")
first = next(Path("data").glob("*.json"))
count = len(os.listdir("data"))
for path in Path("data").iterdir():
    rows.append(path.name)
trainer.train()
""",
            """\
import os
from pathlib import Path
texts = [path.read_text() for path in sorted(Path("data").rglob("*.txt"))]
names = sorted(os.listdir("data"))
first = next(Path("data").glob("*.json"))
count = len(os.listdir("data"))
for path in sorted(Path("data").iterdir()):
    rows.append(path.name)
trainer.train()
""",
        ),
        Example(
            f"rows = [{{'prompt': env.reset().text}} for _ in range(100)]\n{_GIVEN}\n",
            f"# TODO[nb2ddp] DDP411: {_MESSAGE}\n"
            f"rows = [{{'prompt': env.reset().text}} for _ in range(100)]\n{_GIVEN}\n",
        ),
        Example(
            "rows = []\nfor level in levels:\n    obs = env.reset()\n    rows.append(obs)\n    print(obs)\n"
            f"rows = Dataset.from_list(rows)\n{_GIVEN}\n",
            f"rows = []\nfor level in levels:\n    # TODO[nb2ddp] DDP411: {_MESSAGE}\n    obs = env.reset()\n"
            f"    rows.append(obs)\n    print(obs)\nrows = Dataset.from_list(rows)\n{_GIVEN}\n",
        ),
        Example(
            "import random\nclass Env:\n    def reset(self):\n        return random.random()\nenv = Env()\n"
            "rows = [env.reset() for _ in range(9)]\ntrainer.train()\n"
        ),
        Example(
            "scores = []\nfor level in levels:\n    obs = env.reset()\n    print(obs)\n    scores.append(env.step(0))\n"
            "mean = sum(scores) / len(scores)\nfor score in scores:\n    print(score, mean)\ntrainer.train()\n"
        ),
        Example("env.reset()\nrows = [env.reset(seed = n) for n in range(100)]\ntrainer.train()\n"),
        Example(
            "import os\nnames = os.listdir('data')\nif names:\n    names.sort()\n    first = names[0]\n"
            "trainer.train()\n"
        ),
        Example(
            """\
import os
for folder, _, files in os.walk("data"):
    for file in files:
        rows.append(read(folder, file))
for folder, folders, files in os.walk("data"):
    folders[:] = [each for each in folders if each != "old"]
    rows.extend(files)
trainer.train()
""",
            """\
import os
for folder, _, files in sorted(os.walk("data")):
    files.sort()
    for file in files:
        rows.append(read(folder, file))
for folder, folders, files in os.walk("data"):
    folders.sort()
    files.sort()
    folders[:] = [each for each in folders if each != "old"]
    rows.extend(files)
trainer.train()
""",
        ),
        Example(
            "import glob\nimport os\npaths = glob.glob('out/*')\nlast = sorted(paths)[-1]\nos.listdir('out')\n"
            "for folder, _, files in os.walk('out'):\n    print(folder, files)\ntrainer.train()\n"
        ),
        Example("names = sorted(os.listdir('data'))\ntrainer.train()\nnames = os.listdir('data')\n"),
    ),
)
