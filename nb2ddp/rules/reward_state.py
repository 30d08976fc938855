"""DDP410: rewards that keep a state of their own, of which each process has another."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.tree import Tree, argument, keyword, small_statements

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
_TELLING = re.compile(r"print|logging\.\w+|.*\.(debug|info|warning)")
_LOOPS = (cst.For, cst.While, cst.CompFor)


def find(program: Program) -> Iterator[Finding]:
    tree, seen = program.tree, set[cst.CSTNode]()
    for entry in program.rewards.entries:
        calls = program.rewards.calls(entry)
        stepped = ((call, address) for call in calls if (address := _server(program, call)) is not None)
        for call, address in [*stepped][:1]:
            yield Finding(
                entry,
                f"{tree.text(call.func)} changes the state of a server that all processes would share: "
                + (_ELSEWHERE if _REMOTE.match(address) else _OURS),
                todo=True,
            )
        timers = [call for call in calls if _TIMERS.fullmatch(tree.qualified(call.func))]
        timer = next((call for call in timers if not _is_only_told(tree, call)), None)
        if timer is not None:
            yield Finding(
                entry,
                f"its reward is a time ({tree.text(timer.func)}): in a notebook numpy and torch have all cores, in"
                " each of several processes one thread: set OMP_NUM_THREADS before the launch to the cores that each"
                " may have, or reward what does not depend on the machine",
                todo=True,
            )
        elif (limit := _limit(program, entry)) is not None:
            yield Finding(
                entry,
                f"its reward takes what is not done in time for a failure ({tree.text(limit)}), and other processes use"
                " the machine too: leave cores free, or allow more time",
            )
        for counter in _counters(program, entry):
            if counter not in seen:
                seen.add(counter)
                yield Finding(
                    counter,
                    f"{tree.text(counter.target)} counts the completions of this process alone: for all, count those"
                    " of each call from rank * len(completions) on",
                    todo=True,
                )


def _limit(program: Program, entry: cst.FunctionDef | cst.Lambda) -> cst.BaseExpression | None:
    """What limits the time of code that a reward runs."""
    tree, reached = program.tree, program.rewards.reached(entry)
    decorators = [each.decorator for f in reached if isinstance(f, cst.FunctionDef) for each in f.decorators]
    limits: list[cst.BaseExpression] = [
        each for each in decorators if _LIMITS.fullmatch(tree.text(each.func if isinstance(each, cst.Call) else each))
    ]
    for call in program.rewards.calls(entry):
        waits = isinstance(call.func, cst.Attribute) and call.func.attr.value in _WAITING and not _asks(program, call)
        timed = keyword(call, "timeout") is not None and (waits or bool(program.execution.does(call) & Does.RUN))
        if timed or _LIMITS.fullmatch(tree.qualified(call.func)):
            limits.append(call.func)
    return min(limits, key=tree.start, default=None)


def _asks(program: Program, call: cst.Call) -> bool:
    return bool(program.execution.does(call) & Does.ASK)


def _server(program: Program, call: cst.Call) -> str | None:
    """The address for `env.step(...)` of a client that was given one, and for a request to `/step`; else None."""
    tree = program.tree
    texts = [str(text.evaluated_value) for text in tree.within(call, cst.SimpleString)]
    texts += [part.value for part in tree.within(call, cst.FormattedStringText)]
    asked = [text for text in texts if _STATE_IN_URL.search(text)]
    if asked and program.execution.does(call) & Does.ASK:
        return asked[0]
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in _STEPPING:
        return None
    found = (_address(tree, maker) for maker in _made_by(program, call.func.value))
    return next((address for address in found if address is not None), None)


def _made_by(program: Program, owner: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What an object is bound to; of a parameter, what the function is called with."""
    tree = program.tree
    binding = tree.binding(owner) if isinstance(owner, cst.Name) else None
    function = tree.function(owner)
    if binding is None or not isinstance(binding.node, cst.Param) or function is None:
        yield tree.value(owner)
        return
    name = binding.node.name.value
    position = next((at for at, param in enumerate(function.params.params) if param.name.value == name), None)
    for call in program.tree.calls_of(function):
        given = argument(call, name, position)
        if given is not None:
            yield tree.value(given.value)


def _address(tree: Tree, maker: cst.BaseExpression) -> str | None:
    """The address that a client is given, also by `Client(base_url = url).sync()`; None for any other object."""
    while isinstance(maker, cst.Call):
        for each in maker.args:
            if each.keyword is not None and each.keyword.value in _ADDRESS:
                return tree.text(tree.value(each.value)).strip("\"'")
        if not isinstance(maker.func, cst.Attribute):
            return None
        maker = tree.value(maker.func.value)
    return None


def _counters(program: Program, entry: cst.FunctionDef | cst.Lambda) -> Iterator[cst.AugAssign]:
    """What counts completions from call to call, and is read for more than for what is printed."""
    tree = program.tree
    for function in program.rewards.reached(entry):
        for step in tree.within(function, cst.AugAssign):
            owner = _kept(tree, step.target)
            inside = any(isinstance(a, _LOOPS) and _is_within(tree, a, function) for a in tree.ancestors(step))
            if owner is None or not (inside or "len(" in tree.text(step.value)) or not tree.is_live(step):
                continue
            written = tree.text(step.target)
            reads = [n for n in tree.loads(owner) if tree.text(_whole(tree, n)) == written and n is not step.target]
            reads = [n for n in reads if not _is_within(tree, n, step)]
            if any(tree.function(n) in program.rewards.functions and not _only_tells(tree, n) for n in reads):
                yield step


def _kept(tree: Tree, target: cst.BaseExpression) -> str | None:
    """The name of what outlives a call: a global name, or the object whose item or attribute is counted."""
    base = target
    while isinstance(base, (cst.Attribute, cst.Subscript)):
        base = base.value
    if not isinstance(base, cst.Name):
        return None
    here = tree.bindings(base.value, base)
    is_own = any(isinstance(binding.node, (cst.Assign, cst.AnnAssign, cst.For)) for binding in here)
    return None if is_own and tree.scope(base) is not tree.module else base.value


def _whole(tree: Tree, name: cst.CSTNode) -> cst.CSTNode:
    """The attribute or item that a name begins."""
    while isinstance(parent := tree.parents[name], (cst.Attribute, cst.Subscript)) and parent.value is name:
        name = parent
    return name


def _is_within(tree: Tree, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
    return outer in tree.ancestors(node)


def _only_tells(tree: Tree, node: cst.CSTNode) -> bool:
    """True where a value decides or makes up nothing but what is printed."""
    for above in tree.ancestors(node):
        if isinstance(above, cst.Call) and _TELLING.fullmatch(tree.qualified(above.func)):
            return True
        if isinstance(above, cst.If) and node in tree.within(above.test, type(node)):
            lines = [*tree.within(above, cst.SimpleStatementLine), *tree.within(above, cst.SimpleStatementSuite)]
            return all(_tells(tree, small) for line in lines for small in small_statements(line))
        if isinstance(above, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
            return False
    return False


def _is_only_told(tree: Tree, made: cst.BaseExpression) -> bool:
    """True for a value that is only printed, also what is made of it under a name."""
    pending: list[cst.CSTNode] = [made]
    seen: set[cst.CSTNode] = set()
    while pending:
        node = pending.pop()
        if node in seen or _only_tells(tree, node):
            continue
        seen.add(node)
        assign = tree.around(node, cst.Assign)
        if assign is None or not isinstance(target := assign.targets[0].target, cst.Name):
            return False
        pending += tree.bound_uses(target, assign)
    return True


def _tells(tree: Tree, small: cst.BaseSmallStatement) -> bool:
    if isinstance(small, cst.Assign):
        return tree.literal(small.value) is not ...
    return (
        isinstance(small, cst.Expr)
        and isinstance(small.value, cst.Call)
        and bool(_TELLING.fullmatch(tree.qualified(small.value.func)))
    )


RULE = Rule(
    code="DDP410",
    name="reward-state-of-its-own",
    summary="A reward that counts completions from call to call, or steps an environment on a server, gets a `TODO`;"
    " so does one that measures time; one that limits it is reported.",
    why="Each process calls the rewards with its own completions. A count of them falls behind the job's by the number"
    " of processes, and two processes that step one environment undo each other's moves. A count of calls is the same"
    " in all. Unsloth's `launch_openenv` finds each process a port of its own and makes sure that the server on it is"
    " that process's (unsloth_zoo 2026.10.9, rl_environments.py:1717). torchrun, and `accelerate launch` with"
    " it, sets OMP_NUM_THREADS=1 for each of several processes where it is not set (torch 2.13,"
    " distributed/run.py:872): numpy is then slower, and what is measured against it looks faster.",
    find=find,
    severity=Severity.WARNING,
    examples=(
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
            """\
calls = [0]
def plays(completions, **kwargs):
    scores = []
    for completion in completions:
        board = Board(seed = calls[0] // num_generations)
        # TODO[nb2ddp] DDP410: calls[0] counts the completions of this process alone: for all, count those of each \
call from rank * len(completions) on
        calls[0] += 1
        scores.append(board.play(completion))
    return scores
trainer = GRPOTrainer(model = model, reward_funcs = [plays])
trainer.train()
""",
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
wordle_url = "https://openenv-wordle.hf.space"
env = TextArenaEnv(base_url = wordle_url).sync()
def plays(completions, **kwargs):
    env.reset()
    return [env.step(completion).reward for completion in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [plays])
trainer.train()
""",
            """\
wordle_url = "https://openenv-wordle.hf.space"
env = TextArenaEnv(base_url = wordle_url).sync()
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
            """\
import time
# TODO[nb2ddp] DDP410: its reward is a time (time.perf_counter): in a notebook numpy and torch have all cores, in each \
of several processes one thread: set OMP_NUM_THREADS before the launch to the cores that each may have, or reward what \
does not depend on the machine
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
