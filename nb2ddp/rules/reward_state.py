"""DDP410: A reward that keeps state, counts completions, takes the time or asks a server for state gets a `TODO`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.tree import Function, Tree, method

_TIMERS = re.compile(r"time\.(perf_counter|process_time|thread_time)(_ns)?|timeit\.\w+")
_ADDRESS = frozenset("api_base base_url endpoint host port server_url uri url".split())
_STATE_IN_URL = re.compile(r"/(reset|step)\b")
_SEEDED = re.compile(r".*\b(seed|default_rng|RandomState|Random)")
_LOOPS = (cst.For, cst.CompFor, cst.While)
_ROWS = "each rank calls this reward with its own rows"
_SERVER = (
    f"{{}} changes the state of a server, and {_ROWS}: give each rank a server, or make sure that it tells them apart"
)
_TIMER = (
    "{} takes the time on a machine that all ranks use, each with one thread: set OMP_NUM_THREADS before the launch"
)
_OFFSET = "int(os.environ.get('RANK', 0)) * len(completions)"
_COUNTER = f"{{}} keeps a count of completions, and {_ROWS}: start each call at {_OFFSET}"
_POSITION = f"{{}} is a position, and {_ROWS}, counted from 0: add {_OFFSET} to it"


@rule("DDP410", Severity.WARNING)
def reward_state_of_its_own(program: Program) -> Iterator[Finding]:
    tree, said = program.tree, set[cst.CSTNode]()
    for entry in program.rewards.entries:
        reasons = {words: node for node, words in reversed([*_reasons(program, entry)])}
        for words, node in reversed(reasons.items()):
            if node not in said:  # in a function that several rewards call
                yield Finding(entry, words.format(tree.text(node)), todo=True)
        said.update(reasons.values())


def _reasons(program: Program, entry: Function) -> Iterator[tuple[cst.CSTNode, str]]:
    """What makes a reward another on each rank, with the words for it."""
    tree, calls = program.tree, program.rewards.calls(entry)
    yield from ((call.func, _SERVER) for call in calls if _asks_for_state(program, call))
    timers = [call for call in calls if _TIMERS.fullmatch(tree.qualified(call.func))]
    yield from (
        (call.func, _TIMER) for call in timers if not all(_only_tells(program, end) for end in tree.goes_to(call))
    )
    functions = program.rewards.reached(entry)
    for function in sorted(functions, key=tree.start):
        for step in tree.within(function, cst.AugAssign):
            if tree.function(step) is function and tree.around(step, *_LOOPS) and _is_read(program, functions, step):
                yield step.target, _COUNTER
        yield from ((place, _POSITION) for place in _positions(tree, function))


def _asks_for_state(program: Program, call: cst.Call) -> bool:
    """True for a request to `/step`, and for `env.step(...)` of a client that was given an address."""
    tree = program.tree
    if program.execution.does(call) & Does.ASK:
        return any(map(_STATE_IN_URL.search, tree.texts(call)))
    if method(call) not in ("reset", "step"):
        return False
    owner = cst.ensure_type(call.func, cst.Attribute).value
    _, *entered = tree.made_of(owner)[:2]  # what a `with` enters
    return any(_has_address(tree, maker) for maker in (*tree.values(owner), *entered))


def _has_address(tree: Tree, maker: cst.CSTNode) -> bool:
    """True for a client that is given an address, also by `Client(base_url = url).sync()`."""
    given = [each for call in tree.within(maker, cst.Call) for each in call.args]
    named = any(each.keyword is not None and each.keyword.value in _ADDRESS for each in given)
    return named or any("://" in tree.text(tree.value(each.value)) for each in given)


def _is_read(program: Program, functions: set[Function], step: cst.AugAssign) -> bool:
    """True for a count that outlives the call of a reward, and is read for more than for what is printed."""
    tree, name = program.tree, _root(step.target)
    if name is None or not _is_global(tree, name):
        return False
    uses = [
        use for use in tree.loads(name.value) if tree.function(use) in functions and step not in tree.ancestors(use)
    ]
    return not all(_only_tells(program, use) for use in uses)


def _root(node: cst.BaseExpression) -> cst.Name | None:
    """The name that an item or attribute is of."""
    while isinstance(node, (cst.Attribute, cst.Subscript)):
        node = node.value
    return node if isinstance(node, cst.Name) else None


def _is_global(tree: Tree, name: cst.Name) -> bool:
    """True for a name of the notebook, not of a function of it."""
    binding = tree.binding(name)
    return binding is None or binding in tree.bindings(name.value)


def _positions(tree: Tree, function: Function) -> Iterator[cst.CSTNode]:
    """Where the position of a completion chooses from a list of the notebook, or seeds something."""
    loops: list[cst.For | cst.CompFor] = [*tree.within(function, cst.For), *tree.within(function, cst.CompFor)]
    for loop in loops:
        over = tree.text(loop.iter)
        target = loop.target.elements[0].value if isinstance(loop.target, cst.Tuple) else loop.target
        if not re.match(r"enumerate\(|range\(len\(", over) or not isinstance(target, cst.Name):
            continue
        if not any(isinstance(tree.definition(name), cst.Param) for name in tree.within(loop.iter, cst.Name)):
            continue
        body = loop if isinstance(loop, cst.For) else tree.parents[loop]
        for use in (name for name in tree.within(body, cst.Name) if name.value == target.value and name is not target):
            item, call = tree.around(use, cst.Subscript, cst.Call, cst.SimpleStatementLine), tree.around(use, cst.Call)
            if isinstance(item, cst.Subscript):
                root = _root(item.value)
                if root is not None and use not in tree.within(item.value, cst.Name) and _is_global(tree, root):
                    yield item
            elif call is not None and _SEEDED.fullmatch(tree.text(call.func)):
                yield call
            elif (given := tree.around(use, cst.Arg)) is not None and given.keyword and given.keyword.value == "seed":
                yield given.value


def _only_tells(program: Program, node: cst.CSTNode) -> bool:
    """True where a value decides or makes up nothing but what is printed."""
    tree = program.tree
    for above in tree.ancestors(node):
        if isinstance(above, cst.If) and node in tree.within(above.test, type(node)):
            lines = tree.within(above, cst.Expr)
            return bool(lines) and all(_tells(program, each.value) for each in lines)
        if _tells(program, above) or isinstance(above, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
            return _tells(program, above)
    return False


def _tells(program: Program, node: cst.CSTNode) -> bool:
    """True for a call that prints or logs."""
    return isinstance(node, cst.Call) and program.execution.does(node) is Does.TELL
