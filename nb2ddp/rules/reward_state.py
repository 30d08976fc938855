"""DDP410: A reward that keeps state between calls gets a `TODO`: counts, values, what it plays on, or a server's state.

Each rank calls the rewards with its own completions. Its count falls behind the job's by the number of ranks, and two
ranks that step one environment undo each other's moves. What the notebook keeps for each prompt, and a reward changes,
becomes another thing on each rank. A count of calls is the same on all ranks. Unsloth's
`launch_openenv` finds a port for each process and checks that the server on it is its own (unsloth_zoo 2026.10.9,
rl_environments.py:1717).

A reward that measures time gets a `TODO` too; one that limits time is reported. torchrun and `accelerate launch` set
OMP_NUM_THREADS=1 on several processes unless it is set (torch 2.13, distributed/run.py:872): numpy gets slower, and
code measured against it looks faster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.flow import owner_of
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.tree import Function, Tree, keyword, method, small_statements

_TIMERS = re.compile(r"time\.(perf_counter|process_time|thread_time)(_ns)?|timeit\.\w+")
#: What stops code by the clock: a decorator, a signal, a wait for another process or thread with a `timeout`.
_LIMITS = re.compile(r".*time_?(limit|out)\w*|signal\.(alarm|setitimer)|asyncio\.wait_for", re.I)
_WAITING = frozenset({"communicate", "get", "join", "result", "wait"})
_STEPPING = frozenset({"reset", "step"})
_ADDRESS = frozenset("api_base base_url endpoint host port server_url uri url".split())
_STATE_IN_URL = re.compile(r"/(reset|step)\b")
_REMOTE = re.compile(r"https?://(?!localhost\b|127\.|0\.0\.0\.0|[\[{])")
_OURS = "start one for each process, on a port of its own, unless it keeps the clients apart"
_ELSEWHERE = "make sure that it keeps the clients apart, and takes as many at a time as there are processes"
_SHARED = "changes the state of a server that all processes would share"
_CORES = (
    "numpy and torch use all cores in a notebook, but one thread in each of several processes: set "
    "OMP_NUM_THREADS before the launch to the cores of each, or reward what does not depend on the machine"
)
_BUSY = "and other processes use the machine too: leave cores free, or allow more time"
_COUNTS = "counts only the completions of this rank: to count all, start each call at rank * len(completions)"
_KEEPS = "gets the values of this rank's completions only: trainer.state.log_history has the means of all"
_ADVANCES = (
    "changes with the completions of this rank only, and rewards read it later, so they differ between ranks: change it"
    " with those of all ranks (accelerate.utils.gather_object), or between trainings"
)
_LOOPS = (cst.For, cst.While, cst.CompFor)


def find(program: Program) -> Iterator[Finding]:
    tree, said = program.tree, set[cst.Call]()
    for entry in program.rewards.entries:
        calls = program.rewards.calls(entry)
        stepped = ((call, address) for call in calls if (address := _server(program, call)) is not None)
        for call, address in [*stepped][:1]:
            if call in said:
                continue  # in a function that several rewards call
            said.add(call)
            remedy = _ELSEWHERE if _REMOTE.search(address) else _OURS
            yield Finding(entry, f"{tree.text(call.func)} {_SHARED}: {remedy}", todo=True)
        timers = [call for call in calls if _TIMERS.fullmatch(tree.qualified(call.func))]
        rewarded = (call for call in timers if not all(_only_tells(program, end) for end in tree.goes_to(call)))
        timer = next(rewarded, None)
        if timer is not None:
            yield Finding(entry, f"its reward is a time ({tree.text(timer.func)}): {_CORES}", todo=True)
        elif (limit := _limit(program, entry)) is not None:
            late = f"its reward counts a timeout as a failure ({tree.text(limit)})"
            yield Finding(entry, f"{late}, {_BUSY}")
    for counter in _counters(program):
        yield Finding(counter, f"{tree.text(counter.target)} {_COUNTS}", todo=True)
    for name, call in _collected(program).items():
        yield Finding(call, f"{name} {_KEEPS}", todo=True)
    for name, change in _advanced(program).items():
        yield Finding(change, f"{name} {_ADVANCES}", todo=True)


def _limit(program: Program, entry: Function) -> cst.BaseExpression | None:
    """What limits the time of code that a reward runs."""
    tree, functions = program.tree, program.rewards.reached(entry)
    decorators = [each.decorator for function in functions for each in getattr(function, "decorators", ())]
    limits = [each for each in decorators if _LIMITS.fullmatch(tree.text(getattr(each, "func", each)))]
    for call in program.rewards.calls(entry):
        does = program.execution.does(call)
        waits = method(call) in _WAITING and not does & Does.ASK
        timed = keyword(call, "timeout") is not None and (waits or does & Does.RUN)
        if timed or _LIMITS.fullmatch(tree.qualified(call.func)):
            limits.append(call.func)
    return min(limits, key=tree.start, default=None)


def _server(program: Program, call: cst.Call) -> str | None:
    """The address for `env.step(...)` of a client that was given one, and for a request to `/step`; else None."""
    tree = program.tree
    texts = tree.texts(call)
    asked = [text for text in texts if _STATE_IN_URL.search(text)]
    if asked and program.execution.does(call) & Does.ASK:
        named = [tree.text(tree.value(name)) for name in tree.within(call, cst.Name)]
        return next((text for text in named if "://" in text), asked[0])
    if method(call) not in _STEPPING:
        return None
    owner = cst.ensure_type(call.func, cst.Attribute).value
    _, *entered = tree.made_of(owner)[:2]  # what a `with` enters
    makers = [*tree.values(owner), *(each for each in entered if isinstance(each, cst.BaseExpression))]
    return next((address for maker in makers if (address := _address(tree, maker)) is not None), None)


def _address(tree: Tree, maker: cst.BaseExpression) -> str | None:
    """The address that a client is given, also by `Client(base_url = url).sync()`; None for any other object."""
    while isinstance(maker, cst.Call):
        for each in maker.args:
            address = tree.text(tree.value(each.value)).strip("\"'")
            if "://" in address or (each.keyword is not None and each.keyword.value in _ADDRESS):
                return address
        if not isinstance(maker.func, cst.Attribute):
            return None
        maker = tree.value(maker.func.value)
    return None


def _counters(program: Program) -> Iterator[cst.AugAssign]:
    """What counts completions from call to call, and is read for more than for what is printed."""
    tree, functions = program.tree, program.rewards.functions
    for step in tree.live(cst.AugAssign):
        inside = [above for above in tree.ancestors(step) if not functions.isdisjoint(tree.ancestors(above))]
        counts = any(isinstance(above, _LOOPS) for above in inside) or "len(" in tree.text(step.value)
        owner = _kept(tree, step.target) if inside and counts else ""
        if not owner or _is_made_anew(program, step):
            continue
        wholes = [(use, tree.extended(use, cst.Attribute, cst.Subscript)) for use in tree.loads(owner)]
        same = [use for use, whole in wholes if tree.text(whole) == tree.text(step.target)]
        reads = [use for use in same if tree.function(use) in functions and step not in tree.ancestors(use)]
        if not all(_only_tells(program, use) for use in reads):
            yield step


def _collected(program: Program) -> dict[str, cst.Call]:
    """What rewards append to from call to call, and the notebook reads after training; with the first such call."""
    tree, collecting = program.tree, dict[str, cst.Call]()
    for call in (each for entry in program.rewards.entries for each in program.rewards.calls(entry)):
        owner = call.func.value if isinstance(call.func, cst.Attribute) else call
        if method(call) in ("append", "extend") and isinstance(tree.value(owner), cst.List):
            name = _kept(tree, owner)
            reads = [use for use in tree.loads(name) if tree.owner(use) not in program.rewards.functions]
            if any(map(program.execution.is_after_training, reads)):
                collecting.setdefault(name, call)
    return collecting


def _advanced(program: Program) -> dict[str, cst.CSTNode]:
    """Collections that the notebook fills, and whose items rewards change and read again; with the first change."""
    tree, functions, advanced = program.tree, program.rewards.functions, dict[str, cst.CSTNode]()
    changes: list[tuple[cst.CSTNode, cst.BaseExpression]] = [
        (each, each.target)
        for each in tree.live(cst.AssignTarget)
        if isinstance(each.target, (cst.Attribute, cst.Subscript)) and not _is_constant(tree, each)
    ]
    changes += [
        (call, owner)
        for call in tree.live(cst.Call)
        if (owner := owner_of(call)) is not None
        and (method(call) in _STEPPING or program.execution.does(call) & Does.CHANGE)
    ]
    for change, item in changes:
        name = _collection(tree, item) if tree.owner(change) in functions else ""
        if not name or not _is_filled(program, name):
            continue
        uses = [use for use in tree.loads(name) if tree.owner(use) in functions and change not in tree.ancestors(use)]
        if method(change) in _STEPPING or not all(_only_tells(program, use) for use in uses):
            advanced.setdefault(name, change)
    return advanced


def _is_constant(tree: Tree, target: cst.AssignTarget) -> bool:
    assign = tree.parents[target]
    return isinstance(assign, cst.Assign) and tree.literal(assign.value) is not ...


def _collection(tree: Tree, item: cst.BaseExpression) -> str:
    """The global name of what an item is of: `S` of `S[i]["env"]`, and of `state` after `state = S.get(i)`; else ""."""

    def whole(node: cst.BaseExpression) -> cst.BaseExpression | None:
        value = tree.value(node)
        return value.value if isinstance(value, (cst.Attribute, cst.Subscript)) else _owner_of_item(value)

    chain = tree.followed(item, whole)
    values, last = list(map(tree.value, chain)), chain[-1]
    is_item = any(isinstance(each, cst.Subscript) or _owner_of_item(each) is not None for each in values)
    is_global = isinstance(last, cst.Name) and tree.binding(last) in tree.bindings(last.value)
    return last.value if isinstance(last, cst.Name) and is_item and is_global else ""


def _owner_of_item(node: cst.BaseExpression) -> cst.BaseExpression | None:
    return owner_of(node) if method(node) == "get" else None


def _is_filled(program: Program, name: str) -> bool:
    """True for a collection into which the notebook puts something outside of its rewards: no cache, and no log."""
    tree = program.tree
    values = [bound.value for bound in tree.bindings(name)]
    is_full = any(isinstance(each, (cst.Dict, cst.List)) and each.elements for each in values)
    is_full = is_full or any(isinstance(each, (cst.DictComp, cst.ListComp)) for each in values)
    items = [target for target in tree.targets(tree.module) if isinstance(target, cst.Subscript)]
    put = [
        each for each in items if tree.text(each.value) == name and tree.owner(each) not in program.rewards.functions
    ]
    return is_full or bool(put)


def _kept(tree: Tree, base: cst.BaseExpression) -> str:
    """The name of what outlives a call: a global name, or the object whose item or attribute is counted; else ""."""
    while isinstance(base, (cst.Attribute, cst.Subscript)):
        base = base.value
    if not isinstance(base, cst.Name):
        return ""
    bindings = tree.bindings(base.value, base) if tree.scope(base) is not tree.module else []
    is_own = any(isinstance(binding.node, (cst.Assign, cst.AnnAssign, cst.For)) for binding in bindings)
    return "" if is_own else base.value


def _is_made_anew(program: Program, step: cst.AugAssign) -> bool:
    """True in a method of objects that a reward makes for itself: they do not outlive its call."""
    tree, owner = program.tree, program.tree.scope(program.tree.function(step) or step)
    made = tree.loads(owner.name.value) if isinstance(owner, cst.ClassDef) else []
    return any(tree.call_of(use) is not None and tree.owner(use) in program.rewards.functions for use in made)


def _only_tells(program: Program, node: cst.CSTNode) -> bool:
    """True where a value decides or makes up nothing but what is printed."""
    tree = program.tree
    for above in tree.ancestors(node):
        if isinstance(above, cst.If) and node in tree.within(above.test, type(node)):
            lines = [*tree.within(above, cst.SimpleStatementLine), *tree.within(above, cst.SimpleStatementSuite)]
            told = [each for line in lines for each in small_statements(line) if not _sets(tree, each)]
            return all(isinstance(each, cst.Expr) and _tells(program, each.value) for each in told)
        if _tells(program, above) or isinstance(above, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
            return _tells(program, above)
    return False


def _sets(tree: Tree, small: cst.BaseSmallStatement) -> bool:
    return isinstance(small, cst.Assign) and tree.literal(small.value) is not ...


def _tells(program: Program, node: cst.CSTNode) -> bool:
    """True for a call that prints or logs."""
    return isinstance(node, cst.Call) and program.execution.does(node) is Does.TELL


RULE = Rule(
    name="reward-state-of-its-own",
    find=find,
    severity=Severity.WARNING,
    examples=(
        Example(
            """\
from arena import Env
env = Env(base_url = "http://localhost:8000")
def play(text):
    return env.step(text).reward
def wins(completions, **kwargs):
    return [play(text) for text in completions]
def loses(completions, **kwargs):
    return [-play(text) for text in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [wins, loses])
trainer.train()
""",
            f"""\
from arena import Env
env = Env(base_url = "http://localhost:8000")
def play(text):
    return env.step(text).reward
# TODO[nb2ddp] DDP410: env.step {_SHARED}: {_OURS}
def wins(completions, **kwargs):
    return [play(text) for text in completions]
def loses(completions, **kwargs):
    return [-play(text) for text in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [wins, loses])
trainer.train()
""",
        ),
        Example(
            """\
import os, requests
ENV_URL = os.environ.get("ENV_URL", "https://rows.hf.space")
def plays(completions, **kwargs):
    return [requests.post(f"{ENV_URL}/step", json = {"move": each}).json()["reward"] for each in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [plays])
trainer.train()
""",
            """\
import os, requests
ENV_URL = os.environ.get("ENV_URL", "https://rows.hf.space")
# TODO[nb2ddp] DDP410: requests.post changes the state of a server that all processes would share: make sure that it \
keeps the clients apart, and takes as many at a time as there are processes
def plays(completions, **kwargs):
    return [requests.post(f"{ENV_URL}/step", json = {"move": each}).json()["reward"] for each in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [plays])
trainer.train()
""",
        ),
        Example(
            """\
calls = [0]
def plays(completions, **kwargs):
    scores = []
    for completion in completions:
        board = Board(seed = calls[0] // num_generations)
        calls[0] += 1
        scores.append(board.play(completion))
    return scores
trainer = GRPOTrainer(model = model, reward_funcs = [plays])
trainer.train()
""",
            "calls = [0]\n"
            "def plays(completions, **kwargs):\n"
            "    scores = []\n"
            "    for completion in completions:\n"
            "        board = Board(seed = calls[0] // num_generations)\n"
            "        # TODO[nb2ddp] DDP410: calls[0] counts only the completions of this rank: to count "
            "all, start each call at rank * len(completions)\n"
            "        calls[0] += 1\n"
            "        scores.append(board.play(completion))\n"
            "    return scores\n"
            "trainer = GRPOTrainer(model = model, reward_funcs = [plays])\n"
            "trainer.train()\n",
        ),
        Example(
            """\
curve = []
seen = []
def plays(completions, **kwargs):
    scores = [len(each) for each in completions]
    curve.append(sum(scores))
    seen.append(completions[0])
    return scores
trainer = GRPOTrainer(model = model, reward_funcs = [plays])
trainer.train()
plot(curve)
""",
            f"""\
curve = []
seen = []
def plays(completions, **kwargs):
    scores = [len(each) for each in completions]
    # TODO[nb2ddp] DDP410: curve {_KEEPS}
    curve.append(sum(scores))
    seen.append(completions[0])
    return scores
trainer = GRPOTrainer(model = model, reward_funcs = [plays])
trainer.train()
plot(curve)
""",
        ),
        Example(
            """\
from trl import GRPOTrainer
class Board:
    moves = 0
    def play(self, completion):
        for move in completion:
            self.moves += 1
        return self.moves
def plays(completions, **kwargs):
    return [Board().play(completion) for completion in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [plays])
trainer.train()
"""
        ),
        Example(
            """\
env = TextArenaEnv(base_url = wordle_url).sync()
def play(game, completion):
    game.reset()
    return game.step(completion).reward
def plays(completions, **kwargs):
    return [play(env, completion) for completion in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [plays])
trainer.train()
""",
            """\
env = TextArenaEnv(base_url = wordle_url).sync()
def play(game, completion):
    game.reset()
    return game.step(completion).reward
# TODO[nb2ddp] DDP410: game.reset changes the state of a server that all processes would share: start one for each \
process, on a port of its own, unless it keeps the clients apart
def plays(completions, **kwargs):
    return [play(env, completion) for completion in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [plays])
trainer.train()
""",
        ),
        Example(
            """\
def plays(completions, **kwargs):
    with TextArenaEnv("http://localhost:8000").sync() as env:
        env.reset()
        return [env.step(completion).reward for completion in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [plays])
trainer.train()
""",
            """\
# TODO[nb2ddp] DDP410: env.reset changes the state of a server that all processes would share: start one for each \
process, on a port of its own, unless it keeps the clients apart
def plays(completions, **kwargs):
    with TextArenaEnv("http://localhost:8000").sync() as env:
        env.reset()
        return [env.step(completion).reward for completion in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [plays])
trainer.train()
""",
        ),
        Example(
            """\
wordle_url = "https://openenv-wordle.hf.space"
env = TextArenaEnv(wordle_url)
def plays(completions, **kwargs):
    env.reset()
    return [env.step(completion).reward for completion in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [plays])
trainer.train()
""",
            """\
wordle_url = "https://openenv-wordle.hf.space"
env = TextArenaEnv(wordle_url)
# TODO[nb2ddp] DDP410: env.reset changes the state of a server that all processes would share: make sure that it keeps \
the clients apart, and takes as many at a time as there are processes
def plays(completions, **kwargs):
    env.reset()
    return [env.step(completion).reward for completion in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [plays])
trainer.train()
""",
        ),
        Example(
            """\
S = {i: 0 for i in range(8)}
E = [{"env": Game(i), "done": False} for i in range(8)]
known = {}
def adv(i, c):
    E[i]["env"].step(c)
def reward(completions, idx = None, **kwargs):
    scores = [len(c) - S[i] for i, c in zip(idx, completions)]
    S[int(idx[0])] = max(scores)
    adv(int(idx[0]), completions[0])
    return scores
def judged(completions, **kwargs):
    for each in completions:
        if each not in known:
            known[each] = judge(each)
    return [known[each] for each in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [reward, judged])
trainer.train()
""",
            f"""\
S = {{i: 0 for i in range(8)}}
E = [{{"env": Game(i), "done": False}} for i in range(8)]
known = {{}}
def adv(i, c):
    # TODO[nb2ddp] DDP410: E {_ADVANCES}
    E[i]["env"].step(c)
def reward(completions, idx = None, **kwargs):
    scores = [len(c) - S[i] for i, c in zip(idx, completions)]
    # TODO[nb2ddp] DDP410: S {_ADVANCES}
    S[int(idx[0])] = max(scores)
    adv(int(idx[0]), completions[0])
    return scores
def judged(completions, **kwargs):
    for each in completions:
        if each not in known:
            known[each] = judge(each)
    return [known[each] for each in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [reward, judged])
trainer.train()
""",
        ),
        Example(
            """\
states = {}
for i in range(8):
    states[i] = {"text": ""}
def reward(completions, idx = None, **kwargs):
    state = states.get(idx[0])
    state["text"] = state["text"] + completions[0]
    return [len(state["text"])] * len(completions)
trainer = GRPOTrainer(model = model, reward_funcs = [reward])
trainer.train()
""",
            f"""\
states = {{}}
for i in range(8):
    states[i] = {{"text": ""}}
def reward(completions, idx = None, **kwargs):
    state = states.get(idx[0])
    # TODO[nb2ddp] DDP410: states {_ADVANCES}
    state["text"] = state["text"] + completions[0]
    return [len(state["text"])] * len(completions)
trainer = GRPOTrainer(model = model, reward_funcs = [reward])
trainer.train()
""",
        ),
        Example(
            """\
told = {"last": None}
rows = [{"text": each} for each in texts]
def reward(completions, idx = None, **kwargs):
    told["last"] = completions[0]
    row = dict(rows[idx[0]])
    row["text"] = row["text"] + completions[0]
    print(told["last"])
    return [len(row["text"])] * len(completions)
trainer = GRPOTrainer(model = model, reward_funcs = [reward])
trainer.train()
"""
        ),
        Example(
            """\
import time
def fast(completions, **kwargs):
    scores = []
    for completion in completions:
        start = time.perf_counter()
        run(completion)
        scores.append(start - time.perf_counter())
    return scores
trainer = GRPOTrainer(model = model, reward_funcs = [fast])
trainer.train()
""",
            "import time\n"
            "# TODO[nb2ddp] DDP410: its reward is a time (time.perf_counter): numpy and torch use all cores "
            "in a notebook, but one thread in each of several processes: set OMP_NUM_THREADS before the "
            "launch to the cores of each, or reward what does not depend on the machine\n"
            "def fast(completions, **kwargs):\n"
            "    scores = []\n"
            "    for completion in completions:\n"
            "        start = time.perf_counter()\n"
            "        run(completion)\n"
            "        scores.append(start - time.perf_counter())\n"
            "    return scores\n"
            "trainer = GRPOTrainer(model = model, reward_funcs = [fast])\n"
            "trainer.train()\n",
        ),
        Example(
            """\
from unsloth import execute_with_time_limit
@execute_with_time_limit(2)
def play(strategy):
    return strategy(Board())
def plays(completions, **kwargs):
    return [play(compile(completion, "", "eval")) for completion in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [plays])
trainer.train()
""",
            reported=True,
        ),
        Example(
            """\
from unsloth import execute_with_time_limit
@execute_with_time_limit(2)
def play(strategy):
    return strategy(Board())
def play(strategy):
    return strategy(Board(), safe = True)
def plays(completions, **kwargs):
    return [play(compile(completion, "", "eval")) for completion in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [plays])
trainer.train()
"""
        ),
        Example(
            """\
import subprocess
def runs(completions, **kwargs):
    return [subprocess.run(["python", "-c", each], timeout = 5).returncode for each in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [runs])
trainer.train()
""",
            reported=True,
        ),
        Example(
            """\
import requests, time
PRINTED = 0
calls = 0
def judged(completions, **kwargs):
    global PRINTED, calls
    calls += 1
    scores = []
    start = time.perf_counter()
    for completion in completions:
        if PRINTED % 5 == 0:
            print(completion)
        PRINTED += 1
        scores.append(requests.post(url, json = {"text": completion}).json()["score"] * min(1, calls / 100))
    elapsed = time.perf_counter() - start
    print(f"judged in {elapsed:.1f} s")
    return scores
env = Board()
def plays(completions, **kwargs):
    env.reset()
    return [env.step(completion) for completion in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [judged, plays])
trainer.train()
"""
        ),
    ),
)
