"""Rules for values that each process would draw or compute for itself: random numbers, rewards."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import Does, samples
from nb2ddp.facts.execution import Phase
from nb2ddp.facts.flow import receiver, root_of
from nb2ddp.facts.loading import has_new_head, is_load
from nb2ddp.facts.program import Program
from nb2ddp.facts.randomness import generator, seed, seeded, seeds_itself
from nb2ddp.facts.values import values
from nb2ddp.rules.rule import Finding, Findings, rule, todo
from nb2ddp.syntax.arguments import constant
from nb2ddp.syntax.edits import AddToSetup, InsertBefore, Replace, SetKeyword
from nb2ddp.syntax.tree import Function, Tree, argument, keyword, method

#: Calls, other than loads, that draw new weights: PEFT's adapters (Unsloth seeds its own), models from a config.
_NEW_WEIGHTS = re.compile(r"peft(\.\w+)*\.get_peft_model|transformers(\.\w+)*\.\w+\.from_config")
#: Methods of data sets and tables that divide or order rows, then functions that do.
_DATASET_METHODS = frozenset({"sample", "shuffle", "train_test_split"})
_DATA_FUNCTIONS = re.compile(
    r"sklearn(\.\w+)*\.(train_test_split|shuffle|resample)|torch\.utils\.data(\.\w+)*\.random_split"
)
_GENERATOR = re.compile(r"(numpy\.)?random\.")
_STREAMING = re.compile(r"\bstreaming\s*=\s*True\b|\bto_iterable_dataset\(")
_OWN = "without a seed takes one from the operating system, a different one in each process; the script sets one"
_COMMON = "draws at random, and nothing above seeds it; the script sets one seed in all processes"


@rule("DDP402")
def unseeded_randomness(program: Program) -> Findings:
    """Where a notebook draws at random before training, `set_seed(...)` stands at the top of the script."""
    tree, calls = program.tree, program.execution.calls
    seeds = [(tree.start(call), library) for call in calls(does=Does.SEED) for library in seeded(tree, call)]
    for call in calls(phase=Phase.TOGETHER):
        takes_seed = seeds_itself(tree, call) or (_streams(tree, call) and not _is_given_seed(tree, call))
        if not (takes_seed or (library := _drawn_from(tree, call))) or program.rewards.is_only_here(call):
            continue
        if takes_seed:
            text = tree.text(call.func)
            edit = SetKeyword(call, "seed", seed(tree)) if call.args else Replace(call, f"{text}({seed(tree)})")
            yield Finding(call, f"{text} {_OWN}", edit)
        elif not any(at < tree.start(call) and each == library for at, each in seeds):
            setup = AddToSetup(f"set_seed({seed(tree)})  # the same random numbers in every process")
            yield Finding(call, f"{tree.text(call.func)} {_COMMON}", setup)


def _streams(tree: Tree, call: cst.Call) -> bool:
    """Return whether a call shuffles a streamed data set, or interleaves data sets at random."""
    owner = receiver(call) if method(call) == "shuffle" else None
    parts = tree.backward_slice(owner) if owner is not None else []
    is_one = any(keyword(call, name) is not None for name in ("buffer_size", "probabilities"))
    return is_one or any(_STREAMING.search(tree.text(part)) for part in parts)


def _drawn_from(tree: Tree, call: cst.Call) -> str | None:
    """Return the library whose global generator a call draws from without a seed; None if it draws from none."""
    name, owner = tree.qualified(call.func), receiver(call)
    if samples(tree, call) or _makes_weights(tree, call):
        return "torch"
    if (library := generator(tree, call)) is not None:
        return library
    of_generator = owner is not None and bool(_GENERATOR.match(tree.constructor(owner)))
    of_generator |= method(call) == "sample" and len(call.args) > 1 and call.args[1].keyword is None
    divides = (method(call) in _DATASET_METHODS and not of_generator) or _DATA_FUNCTIONS.fullmatch(name)
    if not divides or _is_given_seed(tree, call):
        return None
    return "torch" if name.startswith("torch.") else "numpy"  # datasets, pandas and scikit-learn take NumPy's


def _makes_weights(tree: Tree, call: cst.Call) -> bool:
    """Return whether a call draws weights: it loads a model with a new head, or makes adapters or a whole model."""
    if is_load(tree, call):
        return has_new_head(tree, call)
    return bool(_NEW_WEIGHTS.fullmatch(tree.qualified(call.func))) or keyword(call, "peft_config") is not None


def _is_given_seed(tree: Tree, call: cst.Call) -> bool:
    """Return whether a call passes a seed, or turns shuffling off."""
    if constant(tree, call, "shuffle") is False:
        return True
    first = argument(call, "seed", 0) if method(call) == "shuffle" else None
    given = [constant(tree, call, name) for name in ("seed", "random_state", "generator")]
    if first is not None:
        given.append(tree.literal(first.value))
    return any(each is not None for each in given)


#: Calls that take random numbers from the operating system.
_NEVER_SEEDED = re.compile(r"secrets\.\w+|uuid\.uuid[14]|os\.urandom|random\.SystemRandom(\.\w+)?")
_SEEDING = {"random": "random.seed", "numpy": "numpy.random.seed", "torch": "torch.manual_seed"}
_ALIKE = "for completions of one prompt; the script draws the same in all"
_APART = (
    "for completions of one prompt: seed it with a value that all ranks share, such as a column of the data or "
    'kwargs["trainer_state"].global_step'
)


@rule("DDP409")
def reward_drawn_apart(program: Program) -> Findings:
    """A reward that draws at random gets `@same_draws`: the same numbers on all ranks, others at each call."""
    tree, apart = program.tree, list[cst.Call]()
    for entry in program.rewards.entries:
        calls, is_rollout = program.rewards.calls(entry), entry in program.rewards.rollouts
        names = {tree.qualified(call.func) for call in calls}
        drawing = [(call, library) for call in calls if (library := generator(tree, call)) is not None]
        # a rollout samples the completions with torch, and each process must draw its own
        unseeded = [
            call
            for call, library in drawing
            if _SEEDING[library] not in names and not (is_rollout and library == "torch")
        ]
        apart += [
            call for call in calls if seeds_itself(tree, call) or _NEVER_SEEDED.fullmatch(tree.qualified(call.func))
        ]
        if is_rollout or isinstance(entry, cst.Lambda) or entry.asynchronous is not None:
            apart += unseeded
        elif unseeded and "same_draws" not in [tree.text(each.decorator) for each in entry.decorators]:
            message = f"draws different numbers in each process ({tree.text(unseeded[0].func)}) {_ALIKE}"
            yield Finding(entry, message, InsertBefore(entry, "@same_draws"))
    for call in dict.fromkeys(apart):
        yield todo(call, f"{tree.text(call.func)} draws different numbers in each process {_APART}")


_TIMERS = re.compile(r"time\.(perf_counter|process_time|thread_time)(_ns)?|timeit\.\w+")
_STATE_IN_URL = re.compile(r"/(reset|step)\b")
#: Arguments that name a server when a client is made.
_ADDRESS = re.compile(r"://|\b(api_base|base_url|endpoint|host|port|server_url|uri|url)\s*=")
_SERVER = (
    "{} changes the state of a server, and each rank calls this reward with its own rows: give each rank a server, or"
    " make sure that it tells them apart"
)
_TIMER = (
    "{} measures time on a machine that all ranks share, each with one thread: set OMP_NUM_THREADS before the launch"
)
_PLACE = (
    "{} depends on how many completions came before, and each rank counts its own from 0: add"
    " int(os.environ.get('RANK', 0)) * len(completions) to the number"
)
_SEED = re.compile(r".*\b(seed|default_rng|RandomState|Random)")
_LOOPS = (cst.For, cst.CompFor, cst.While)


@rule("DDP410")
def reward_state_of_its_own(program: Program) -> Findings:
    """A reward that counts completions, changes the state of a server, or measures time, gets a `TODO`."""
    tree, seen = program.tree, set[cst.CSTNode]()
    for entry in program.rewards.entries:
        reasons = dict[str, cst.CSTNode]()
        for call in program.rewards.calls(entry):
            if _TIMERS.fullmatch(tree.qualified(call.func)):
                reasons.setdefault(_TIMER, call.func)
            elif _changes_server(program, call):
                reasons.setdefault(_SERVER, call.func)
        for function in sorted(program.rewards.reached(entry), key=tree.start):
            for place in _places(tree, function):
                reasons.setdefault(_PLACE, place)
        for why, node in reasons.items():
            if node not in seen:  # in a function that several rewards call
                yield todo(entry, why.format(tree.text(node)))
        seen.update(reasons.values())


def _places(tree: Tree, function: Function) -> Iterator[cst.CSTNode]:
    """Yield where a position or a count of completions chooses an item of a global, or seeds something."""
    counts = set[str]()
    loops: list[cst.For | cst.CompFor] = [*tree.within(function, cst.For), *tree.within(function, cst.CompFor)]
    for loop in loops:
        target = loop.target.elements[0].value if isinstance(loop.target, cst.Tuple) else loop.target
        given = [tree.definition(name) for name in tree.within(loop.iter, cst.Name)]
        if re.match(r"enumerate\(|range\(len\(", tree.text(loop.iter)) and isinstance(target, cst.Name):
            counts.update([target.value] if any(isinstance(each, cst.Param) for each in given) else [])
    for step in tree.within(function, cst.AugAssign):
        name = root_of(step.target)
        if tree.around(step, *_LOOPS) and _is_global(tree, name):
            counts.add(tree.text(name))
    for use in tree.within(function, cst.Name):
        for above in tree.ancestors(use) if use.value in counts else ():
            match above:
                case cst.SimpleStatementLine() | cst.CompFor():
                    break
                case cst.Subscript():
                    if use not in tree.within(above.value, cst.Name) and _is_global(tree, root_of(above.value)):
                        yield above
                case cst.Call() if _SEED.fullmatch(tree.text(above.func)):
                    yield above
                case cst.Arg(keyword=cst.Name("seed")):
                    yield above.value


def _is_global(tree: Tree, node: cst.CSTNode) -> bool:
    """Return whether a node is a name that the functions of a notebook share."""
    if not isinstance(node, cst.Name):
        return False
    binding = tree.binding(node)
    return binding is None or binding in tree.bindings(node.value)


def _changes_server(program: Program, call: cst.Call) -> bool:
    """Return whether a call is a request to `/step`, or `env.step(...)` of a client that was made with an address."""
    tree, owner = program.tree, receiver(call)
    if program.execution.does(call) & Does.ASK:
        return any(map(_STATE_IN_URL.search, tree.texts(call)))
    made = [part for value in values(tree, owner) for part in tree.backward_slice(value)] if owner is not None else []
    is_client = any(_ADDRESS.search(tree.text(part)) for part in made)
    return is_client and method(call) in ("reset", "step")
