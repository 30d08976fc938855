"""Functions of a notebook that one process can run for all: they write, and change nothing that the others need."""

from __future__ import annotations

import re
from functools import lru_cache

import libcst as cst

from nb2ddp.facts.effects import acts, effect, writes
from nb2ddp.facts.program import Program

#: Calls that tell somebody something, draw a figure, or leave nothing behind.
_TELLS = re.compile(
    r"print|warnings\.warn|(.*\.)?(info|debug|warning|error|log|write|flush|close)|matplotlib\.pyplot\.\w+"
    r"|time\.sleep|gc\.collect|torch\.cuda\.(empty_cache|synchronize)"
)
#: Calls that set or move a random generator, wherever they stand.
_MOVES_GENERATOR = re.compile(
    r"(random|numpy\.random)\.\w+|torch\.(rand\w*|manual_seed|normal|multinomial|bernoulli)|.*set_seed"
)
#: Methods that change what they are called on, or draw from it.
_CHANGES = re.compile(
    r"add|add_\w+|append|appendleft|clear|discard|extend|insert|pop|popitem|popleft|remove|resize_\w+|reverse|set_\w+"
    r"|setdefault|sort|update|integers|permutation|permuted|shuffle|choice|normal|uniform|random|sample|seed"
)
_Callees = dict[cst.Call, cst.FunctionDef]


@lru_cache(maxsize=1)
def run_by_one(program: Program) -> dict[cst.FunctionDef, list[cst.Call]]:
    """Functions that do nothing but write, with their calls before the end of training, where each stands alone.

    Every one of these calls is made at module level, so that one process can make it and the others wait.
    """
    callees = _callees(program)
    found: dict[cst.FunctionDef, list[cst.Call]] = {}
    for function in dict.fromkeys(program.tree.function(call) for call, _ in writes(program)):
        callers = _callers(program, function) if function is not None else []
        if function is not None and callers and _only_writes(program, function, callees):
            found[function] = callers
    return found


@lru_cache(maxsize=1)
def below_guards(program: Program) -> frozenset[cst.FunctionDef]:
    """The functions of `run_by_one`, and those that nothing else calls."""
    found = set(run_by_one(program))
    calls = {function: program.calls_of(function) for function in dict.fromkeys(_callees(program).values())}
    while more := {f for f, of in calls.items() if f not in found and {program.tree.function(c) for c in of} <= found}:
        found |= more
    return frozenset(found)


def _callees(program: Program) -> _Callees:
    """Every live call of a function of the notebook, with that function."""
    return {call: function for function in program.tree.of(cst.FunctionDef) for call in program.calls_of(function)}


def _callers(program: Program, function: cst.FunctionDef) -> list[cst.Call]:
    """The calls before the end of training, where each stands alone at module level; none for one that trains."""
    tree = program.tree
    callers = [use for use in program.calls_of(function) if program.runs_before_end(use)]
    alone = all(program.alone(use) is not None and tree.function(use) is None for use in callers)
    trains = any(event in callers for event in program.training.events)
    return callers if alone and not trains and len(callers) == len(program.uses_of(function)) else []


def _only_writes(
    program: Program, function: cst.FunctionDef, callees: _Callees, below: frozenset[cst.FunctionDef] = frozenset()
) -> bool:
    """True for a function that leaves no trace in memory, and calls nothing that others call and that writes too."""
    tree, below = program.tree, below | {function}
    if any(tree.within(function, kind) for kind in (cst.Global, cst.Nonlocal, cst.Yield, cst.Del)):
        return False
    calls = [call for call in tree.within(function.body, cst.Call) if tree.is_live(call)]
    if any(_MOVES_GENERATOR.fullmatch(tree.qualified(call.func)) for call in calls):
        return False
    if any(not _is_its_own(program, function, owner) for owner in _changed(program, function, calls)):
        return False
    for call in calls:
        callee = callees.get(call)
        if callee is None or callee in below:
            continue
        alone = all(tree.function(other) in below for other in program.calls_of(callee))
        writes_too = any(acts(program, each) for each in tree.within(callee, cst.Call))
        if (writes_too and not alone) or not _only_writes(program, callee, callees, below):
            return False
    return all(_is_harmless(program, function, call, callees) for call in calls if program.alone(call) is not None)


def _changed(program: Program, function: cst.FunctionDef, calls: list[cst.Call]) -> list[cst.BaseExpression]:
    """What the function changes: `x` in `x.a = 1`, `x[0] = 1`, `x += y`, `x.append(1)`, `next(x)`."""
    tree = program.tree
    grown = [node.target for node in tree.within(function, cst.AugAssign)]
    targets = [*grown, *(node.target for node in tree.within(function, cst.AssignTarget))]
    targets += [node.target for node in tree.within(function, cst.AnnAssign)]
    changed = [target.value for target in targets if isinstance(target, (cst.Attribute, cst.Subscript))]
    given = {param.name.value for param in tree.within(function.params, cst.Param)}
    changed += [target for target in grown if isinstance(target, cst.Name) and target.value in given]
    changed += [call.args[0].value for call in calls if tree.qualified(call.func) == "next" and call.args]
    methods = [call.func for call in calls if isinstance(call.func, cst.Attribute) and effect(tree, call) is None]
    return changed + [method.value for method in methods if _CHANGES.fullmatch(method.attr.value)]


def _is_its_own(program: Program, function: cst.FunctionDef, node: cst.BaseExpression) -> bool:
    """True for an object that the function has made: bound there to what a call or a display gives, or opened."""
    while isinstance(node, (cst.Attribute, cst.Subscript)):
        node = node.value
    binding = program.tree.binding(node) if isinstance(node, cst.Name) else None
    if binding is None or program.tree.function(binding.node) is not function or isinstance(binding.node, cst.Param):
        return False
    made = binding.value
    if isinstance(binding.node, cst.Assign) and isinstance(binding.node.value, cst.Call):
        made = binding.node.value  # also of `figure, axes = subplots()`
    if isinstance(made, cst.Call) and isinstance(made.func, cst.Attribute):  # `json.load(f)`, not `settings.get("a")`
        return not program.tree.qualified(made.func).startswith(".") or _is_its_own(program, function, made.func)
    if made is not None:
        return not isinstance(made, (cst.Name, cst.Attribute, cst.Subscript))
    return isinstance(binding.node, cst.WithItem)


def _is_harmless(program: Program, function: cst.FunctionDef, call: cst.Call, callees: _Callees) -> bool:
    """True for a call on a line of its own that writes, tells something, or changes what the function has made."""
    tree = program.tree
    owner = call.func.value if isinstance(call.func, cst.Attribute) else None
    return (
        call in callees
        or program.is_shell(call)
        or effect(tree, call) is not None
        or bool(_TELLS.fullmatch(tree.qualified(call.func) or tree.text(call.func)))
        or (owner is not None and _is_its_own(program, function, owner))
    )
