"""What each process would draw or decide for itself: random numbers, rewards."""

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
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import AddToSetup, Edit, InsertBefore, Replace, SetKeyword, Wrap
from nb2ddp.syntax.tree import Function, Tree, argument, keyword, method

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


@rule("DDP402")
def unseeded_randomness(program: Program) -> Iterator[Finding]:
    """Where a notebook draws at random before training, `set_seed(...)` stands at the top of the script."""
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


HELPER = "same_draws"
#: What takes its numbers from the operating system.
_NEVER_SEEDED = re.compile(r"secrets\.\w+|uuid\.uuid[14]|os\.urandom|random\.SystemRandom(\.\w+)?")
_SEEDING = {"random": "random.seed", "numpy": "numpy.random.seed", "torch": "torch.manual_seed"}
_ALIKE = "for completions of one prompt; the script draws the same in all"
_APART = (
    "for completions of one prompt: seed it with what all ranks have, such as a column of the data or "
    'kwargs["trainer_state"].global_step'
)


@rule("DDP409")
def reward_drawn_apart(program: Program) -> Iterator[Finding]:
    """A reward that draws at random gets `@same_draws`: the same numbers on all ranks, others at each call."""
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
    """A reward that keeps state, counts completions, takes the time or asks a server for state gets a `TODO`."""
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
