"""What no script can be made of, and where a script would stop: no training, other launchers, unknown names."""

from __future__ import annotations

import re
import string
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import count

import libcst as cst

from nb2ddp.facts.execution import Phase
from nb2ddp.facts.flow import is_tried
from nb2ddp.facts.program import Program
from nb2ddp.notebook.magics import Kind
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.script.modules import IN_SETUP
from nb2ddp.syntax.edits import Replace
from nb2ddp.syntax.tree import Tree, keyword, method

#: A program that trains: a Python file or module, or a command of a package that fine-tunes.
_PROGRAM = re.compile(
    r"\bpython[\d.]*(\s+-\w+)*\s+[\w./-]*(train|fine_?tun|sft|grpo|dpo)"
    r"|\b(llamafactory-cli|axolotl|swift|xtuner|tune|autotrain|trl|unsloth)\s+(train|sft|grpo|dpo|run|llm)\b",
    re.IGNORECASE,
)
_FUNCTION = re.compile(
    r"(\w+\.)+(((run|start|launch|do)_)?(train|training|fine_?tune|fine_?tuning)(_(model|loop|lora|llm))?|sft)"
)
_NEVER_CALLED = "this training stands in a function that the notebook never calls, so there is no script: call it"
_NEVER_TRAINED = "the notebook never calls train() of this trainer, so there is no script: call it"
_IN_A_PROGRAM = (
    "trains in a program of its own, on one GPU whatever a script does, so there is no script: start that program with"
    " accelerate launch, or bring its trainer into the notebook"
)
_IN_A_CELL = (
    "trains in {0}, which a cell writes, so there is no script: take out this line and the line %%writefile {0}, so"
    " that its code is the notebook's own"
)
_IN_A_FUNCTION = (
    "seems to train inside this call, so there is no script: only a Trainer's train() that the notebook itself "
    "calls can be distributed; call it here, or start the function's own script with accelerate launch"
)
_NOTHING = (
    "no training was found, so there is no script: only train() of a Trainer (transformers, TRL, Unsloth,"
    " sentence-transformers) can be distributed"
)


@rule("DDP002", Severity.ERROR)
def no_training(program: Program) -> Iterator[Finding]:
    """A notebook without a training call is refused."""
    training, module = program.training, program.tree.module
    if training.events or not module.body or training.backward_calls:  # nothing to point at; DDP003
        return
    if training.calls:
        yield Finding(training.calls[0], _NEVER_CALLED)
    elif training.trainers:
        yield Finding(training.trainers[0], _NEVER_TRAINED)
    elif started := [call for call in program.execution.calls() if _PROGRAM.search(program.effects.command(call))]:
        file = program.written(program.effects.command(started[0]))
        yield Finding(started[0], _IN_A_CELL.format(file) if file else _IN_A_PROGRAM)
    elif called := program.execution.calls(_FUNCTION)[:1]:
        yield Finding(called[0], f"{program.tree.text(called[0].func)}() {_IN_A_FUNCTION}")
    else:
        yield Finding(next(iter(program.loads), module.body[0]), _NOTHING)


@rule("DDP003", Severity.ERROR)
def handwritten_training_loop(program: Program) -> Iterator[Finding]:
    """A notebook that trains with `loss.backward()` and no Trainer is refused; beside a Trainer it gets a warning."""
    if not program.training.events:
        calls, so, severity = program.training.backward_calls, ", so there is no script", None
    else:
        together = Phase.BEFORE | Phase.BETWEEN
        calls = [call for call in program.training.backward_calls if program.execution.runs(call, together)]
        so, severity = "", Severity.WARNING
    for call in calls[:1]:
        yield Finding(
            call,
            f"a training loop written by hand would train another model in each process{so}:"
            " train with a Trainer; a loop that uses an Accelerator needs no conversion, only accelerate launch",
            severity=severity,
        )


_LAUNCHERS = re.compile(
    r"(accelerate(\.launchers)?\.)?(notebook_launcher|debug_launcher)|torch\.multiprocessing\.(spawn|start_processes)"
    r"|ray\.(train|tune)\.\w+|wandb\.agent|torch\.distributed\.init_process_group|deepspeed\.init_distributed"
)
_WORKERS = re.compile(
    r"threading\.(Thread|Timer)|_thread\.start_new_thread|concurrent\.futures\.\w+Executor"
    r"|(torch\.)?multiprocess(ing)?(\.\w+)*\.(Process|Pool|ThreadPool)"
)
_COMMAND = re.compile(r"(^|[;&|]\s*)(accelerate\s+launch|torchrun|deepspeed|python\S*\s+-m\s+torch\.distributed)\b")
#: Training arguments and variables that spread one model over several GPUs.
_OTHER_STRATEGIES = ("fsdp", "deepspeed", "context_parallel_size", "parallelism_config")
_VARIABLES = ("UNSLOTH_FSDP2", "UNSLOTH_TP_SIZE", "UNSLOTH_PP_SIZE")
_OWN = "starts processes of its own inside each of the job's, so there is no script: call the training function itself"
_GROUP = "opens a process group, which the job's launcher does, so there is no script: take it out"
_JOB = (
    "starts a distributed job of its own inside each of the job's processes, so there is no script: convert the"
    " notebook that holds its training"
)
_A_SCRIPT = (
    "starts {0}, which a cell writes, on several GPUs, so there is no script to make: that file is one; to "
    "convert it, take out this line and the line %%writefile {0}, so that its code is the notebook's own"
)
_SHARDS = "shards the model, which excludes DDP, so there is no script: leave it out if the model fits one GPU"
_APART = (
    "trains in a separate thread or process, which the job does not control, so there is no script: call the "
    "function directly"
)


@rule("DDP004", Severity.ERROR)
def other_launcher(program: Program) -> Iterator[Finding]:
    """A notebook that starts processes itself (`notebook_launcher`, `torchrun`, FSDP, DeepSpeed) is refused."""
    tree = program.tree
    for call in program.execution.calls(_LAUNCHERS):
        name = tree.qualified(call.func).rsplit(".", 1)[-1]
        yield Finding(call, f"{name} {_GROUP if name.startswith('init_') else _OWN}")
    for value in program.training.handed_on:
        if (starter := _starter(tree, value)) is not None:
            yield Finding(starter, _APART)
    for call, _ in program.forms_of(Kind.SHELL, Kind.CELL_MAGIC):
        if tree.is_live(call) and _COMMAND.search(program.effects.command(call)):
            file = program.written(program.effects.command(call))
            yield Finding(call, _A_SCRIPT.format(file) if file else _JOB)
    for call in program.training.arguments:
        for strategy in _OTHER_STRATEGIES:
            passed = keyword(call, strategy)
            if passed is not None and tree.literal(passed.value) not in (None, "", False, 1):
                yield Finding(passed, f"{strategy} {_SHARDS}")
    for node, variable, setting in program.settings:
        off = ("", "0", "false") if variable == "UNSLOTH_FSDP2" else ("", "0", "1")
        if variable in _VARIABLES and setting not in off and tree.is_live(node):
            yield Finding(node, f"{variable} {_SHARDS}")


def _starter(tree: Tree, value: cst.CSTNode) -> cst.Call | None:
    """The call that starts a thread or a process, where it is given a value."""
    for call in tree.ancestors(value):
        if isinstance(call, cst.Call):
            pool = tree.maker(call.func.value) if isinstance(call.func, cst.Attribute) else ""
            if _WORKERS.fullmatch(tree.qualified(call.func)) or _WORKERS.fullmatch(pool):
                return call
    return None


@rule("DDP005", Severity.WARNING)
def unknown_name(program: Program) -> Iterator[Finding]:
    """A name that is undefined when the script reads it gets a `TODO`."""
    tree = program.tree
    certain = not _defines_unseen(program)
    together = defaultdict[tuple[cst.CSTNode, bool], list[cst.Name]](list)
    firsts = dict[tuple[cst.CSTNode | None, bool], cst.CSTNode]()  # of neighbouring lines, of which one `TODO` speaks
    for use in _first_uses(program):
        fails = certain and not _is_caught(tree, use) and bool(program.execution.phase(use))
        line = tree.statement(use)
        above = _line_above(program, line) if fails else None
        first = firsts.setdefault((line, fails), firsts.get((above, fails), line))
        together[first, fails].append(use)
    for (_, fails), uses in together.items():
        told = f"the script stops here; {_remedy(tree, uses)}" if fails else _PERHAPS
        yield Finding(uses[0], f"{_said(program, uses)}: {told}", todo=fails)


def _remedy(tree: Tree, uses: list[cst.Name]) -> str:
    if all(tree.around(use, cst.Del) is not None for use in uses):
        return "leave this line out"
    return f"define {'it' if len(uses) == 1 else 'them'} above"


_PERHAPS = (
    "where this runs, the script stops, unless a `try` goes on or something else defines it; look whether it does"
)


def _line_above(program: Program, line: cst.CSTNode) -> cst.CSTNode | None:
    """The statement above a statement, in the same suite of the same cell."""
    tree = program.tree
    suite = list(getattr(tree.parents[line], "body", ()))
    above = suite[suite.index(line) - 1] if line in suite[1:] else None
    return (
        above if above is not None and program.cell_at(tree.start(above)) == program.cell_at(tree.start(line)) else None
    )


def _first_uses(program: Program) -> list[cst.Name]:
    """Where each name that stands for nothing is read for the first time, in order."""
    tree, names = program.tree, program.names

    def is_stop(line: cst.CSTNode) -> bool:
        return isinstance(line, cst.Expr) and names.is_stop(line)

    unknown = (
        [use for use in tree.loads(name) if names.is_unknown(use) and not is_stop(tree.parents[use])]
        for name in set(tree.names_read) - IN_SETUP
    )
    return sorted((uses[0] for uses in unknown if uses), key=tree.start)


def _said(program: Program, uses: Iterable[cst.Name]) -> str:
    """What is wrong with the names of one statement: those of one reason together."""
    by_reason = defaultdict[str, list[str]](list)
    for use in uses:
        by_reason[_reason(program, use)].append(repr(use.value))
    return ", ".join(
        f"{names[0]} is {reason}" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} are {reason}"
        for reason, names in by_reason.items()
    )


def _reason(program: Program, use: cst.Name) -> str:
    tree = program.tree
    bindings = [each for each in tree.bindings(use.value) if tree.is_live(each.node)]
    here = any(tree.span(each.node)[0] <= tree.start(use) < tree.span(each.node)[1] for each in bindings)
    values = [each.value for each in bindings]
    needed = [value is not None and use.value in map(tree.text, tree.within(value, cst.Name)) for value in values]
    if here or (needed and all(needed)):
        return "made of itself before it has a value"
    if not bindings:
        return "never defined"
    in_cell = program.cell_at(tree.start(bindings[0].node)) == program.cell_at(tree.start(use))
    return "defined only further down" + ("" if in_cell else " (the cells are out of order)")


def _defines_unseen(program: Program) -> bool:
    """True where names may come from what is run as text, or from another notebook."""
    magics = any(form.name in ("run", "store", "load") for _, form in program.forms_of(Kind.LINE_MAGIC))
    return magics or any(program.execution.calls(name) for name in ("exec", "globals", "locals", "vars"))


def _is_caught(tree: Tree, use: cst.Name) -> bool:
    """True below a `try` that goes on without the name."""
    return any(isinstance(above, cst.Try) and above.handlers for above in tree.ancestors(use))


_ELSEWHERE = re.compile(
    r"(?is)KeyboardInterrupt|NameError|(ModuleNotFound|Import)Error|.*(\bFailed to import\b|"
    r"\bout of (memory|resource)\b|OutOfMemory|MemoryError|allocate memory|enough GPU RAM|No space left|StorageFull|"
    r"the disk is full|\babruptly\b|killed by signal|NVIDIA driver|\bneed a GPU|update Unsloth|no (CUDA|GPU)s?\b|"
    r"\berror loading\b.*\bdll\b|cannot open shared object|already added LoRA)"
)
#: What an error of the Hub begins with: `(Request ID: Root=...)`.
_REQUEST = re.compile(r"\(Request ID: [^()]*\)\s*")
_FAILED = "this cell failed when the notebook was saved ({}), and the script has it: run the notebook again and save it"
_LOST = "this cell failed when the notebook was saved ({}): if it fails again, the script stops here, after training"


@rule("DDP008", Severity.WARNING)
def failed_when_saved(program: Program) -> Iterator[Finding]:
    """A cell that failed when the notebook was saved gets a `TODO`: the script has its code, and may stop there."""
    lines = {
        cell: [
            line
            for line in program.lines_of(cell.number)
            if program.tree.is_live(line) and not program.installs.covers(line)
        ]
        for cell in program.code_cells
    }
    last = max((cell.number for cell, own in lines.items() if own), default=0)
    for cell, own in lines.items():
        if not own or not cell.failed or _ELSEWHERE.match(cell.failed):
            continue
        needed = [line for line in own if program.training.is_before_end(line)]
        error = textwrap.shorten(_REQUEST.sub("", cell.failed), 90, placeholder="...")
        if needed:
            yield Finding(needed[0], _FAILED.format(error), todo=True)
        elif cell.number != last:
            yield Finding(own[0], _LOST.format(error), todo=True)


@rule("DDP009", Severity.WARNING)
def unfilled_template(program: Program) -> Iterator[Finding]:
    """A template that gets too few values gets a `TODO`: the script stops where they are filled in."""
    tree = program.tree
    for call in tree.live(cst.Call):
        if method(call) != "format" or any(each.star for each in call.args) or is_tried(tree, call):
            continue
        if lacked := [name for name in _fields(tree, call) if name not in _given(call)]:
            name = tree.text(cst.ensure_type(call.func, cst.Attribute).value)
            fields = ", ".join(f"{{{field}}}" for field in lacked)
            yield Finding(call, _MESSAGE.format(name, fields), todo=True)


_MESSAGE = "{} has {}, for which this call gives no value: the script stops here; give it one, or change the template"


def _fields(tree: Tree, call: cst.Call) -> list[str]:
    """The names or numbers of the values that a template asks for, each once; none where nothing tells the template."""
    template = cst.ensure_type(call.func, cst.Attribute).value
    text = tree.literal(template) if tree.function(call) is None else tree.fixed(template)
    numbers = map(str, count())
    try:
        parsed = list(string.Formatter().parse(text)) if isinstance(text, str) else []
    except ValueError:  # no template: of another method of this name
        return []
    asked = [field.partition(".")[0].partition("[")[0] for _, field, _, _ in parsed if field is not None]
    return list(dict.fromkeys(name or next(numbers) for name in asked))


def _given(call: cst.Call) -> set[str]:
    """The names of the values that a call gives, or their numbers."""
    numbers = map(str, count())
    return {next(numbers) if each.keyword is None else each.keyword.value for each in call.args}


_EARLY = ", without training: take the line out to go on"


@rule("DDP317")
def stopped_on_purpose(program: Program) -> Iterator[Finding]:
    """A line such as `1/0`, which stops "Run all", becomes `sys.exit()`."""
    for statement in filter(program.names.is_stop, program.tree.live(cst.Expr)):
        early = program.execution.runs(statement, Phase.BEFORE | Phase.BETWEEN)
        said = "the notebook stops here on purpose, and so does the script" + (_EARLY if early else "")
        yield Finding(statement, said, (Replace(statement, "sys.exit()"),), todo=early)
