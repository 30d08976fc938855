"""Rules for notebooks that have no script, or whose script would stop: no training, other launchers, unknown names."""

from __future__ import annotations

import re
import string
import textwrap
from collections import defaultdict
from itertools import count

import libcst as cst

from nb2ddp.facts.execution import Phase
from nb2ddp.facts.flow import argument_of, is_unconditional, receiver
from nb2ddp.facts.program import Program
from nb2ddp.notebook.magics import Kind
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, Findings, rule, todo
from nb2ddp.script.modules import IN_SETUP
from nb2ddp.syntax.edits import Replace
from nb2ddp.syntax.tree import keyword, method

#: A program that trains: a Python file or module, or a command of a package that fine-tunes.
_PROGRAM = re.compile(
    r"\bpython[\d.]*(\s+-\w+)*\s+[\w./-]*(train|fine_?tun|sft|grpo|dpo)"
    r"|\b(llamafactory-cli|axolotl|swift|xtuner|tune|autotrain|trl|unsloth)\s+(train|sft|grpo|dpo|run|llm)\b",
    re.IGNORECASE,
)
_FUNCTION = re.compile(
    r"(\w+\.)+(((run|start|launch|do)_)?(train|training|fine_?tune|fine_?tuning)(_(model|loop|lora|llm))?|sft)"
)
_NEVER_CALLED = "this training is in a function that the notebook never calls, so there is no script: call it"
_NEVER_TRAINED = "the notebook never calls train() of this trainer, so there is no script: call it"
_IN_A_PROGRAM = (
    "trains in a separate program, which no script can distribute, so there is no script: start that program with"
    " accelerate launch, or move its trainer into the notebook"
)
_IN_A_CELL = (
    "trains in {0}, which a cell writes, so there is no script: remove this line and the line %%writefile {0}, so that"
    " its code becomes part of the notebook"
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
def no_training(program: Program) -> Findings:
    """A notebook without a training call is refused."""
    training, module = program.training, program.tree.module
    if training.events or training.backward_calls:
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
        yield Finding([*program.loads, *module.body, module][0], _NOTHING)


@rule("DDP003", Severity.ERROR)
def handwritten_training_loop(program: Program) -> Findings:
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
            f"a training loop written by hand would train a different model in each process{so}: train with a Trainer;"
            " a loop that uses an Accelerator needs no conversion, only accelerate launch",
            severity=severity,
        )


_LAUNCHERS = re.compile(
    r"(accelerate(\.launchers)?\.)?(notebook_launcher|debug_launcher)|torch\.multiprocessing\.(spawn|start_processes)"
    r"|ray\.(train|tune)\.\w+|wandb\.agent|torch\.distributed\.init_process_group|deepspeed\.init_distributed"
)
_WORKERS = re.compile(
    r"threading\.(Thread|Timer)|_thread\.start_new_thread|(torch\.)?multiprocess(ing)?(\.\w+)*\.Process"
)
_COMMAND = re.compile(r"(^|[;&|]\s*)(accelerate\s+launch|torchrun|deepspeed|python\S*\s+-m\s+torch\.distributed)\b")
#: Training arguments and variables that spread one model over several GPUs.
_OTHER_STRATEGIES = ("fsdp", "deepspeed", "context_parallel_size", "parallelism_config")
_VARIABLES = ("UNSLOTH_FSDP2", "UNSLOTH_TP_SIZE", "UNSLOTH_PP_SIZE")
_OWN = "starts processes inside each process of the job, so there is no script: call the training function directly"
_GROUP = "opens a process group, which would conflict with the script's own, so there is no script: remove it"
_JOB = (
    "starts another distributed job inside each process of the job, so there is no script: convert the notebook that"
    " holds its training"
)
_A_SCRIPT = (
    "starts {0}, which a cell writes, on several GPUs, so there is no script: that file already is one; to convert it,"
    " remove this line and the line %%writefile {0}, so that its code becomes part of the notebook"
)
_SHARDS = "shards the model, which excludes DDP, so there is no script: leave it out if the model fits one GPU"
_APART = (
    "trains in a separate thread or process, which the job does not control, so there is no script: call the "
    "function directly"
)


@rule("DDP004", Severity.ERROR)
def other_launcher(program: Program) -> Findings:
    """A notebook that starts processes itself (`notebook_launcher`, `torchrun`, FSDP, DeepSpeed) is refused."""
    tree = program.tree
    for call in program.execution.calls(_LAUNCHERS):
        name = tree.qualified(call.func).rsplit(".", 1)[-1]
        yield Finding(call, f"{name} {_GROUP if name.startswith('init_') else _OWN}")
    for value in program.training.handed_on:
        starter = argument_of(tree, value)
        if starter is not None and _WORKERS.fullmatch(tree.qualified(starter.func)):
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


_PERHAPS = "if this line runs, the script stops, unless a `try` catches the error or other code defines the name"


@rule("DDP005", Severity.WARNING)
def unknown_name(program: Program) -> Findings:
    """A name that is undefined when the script reads it gets a `TODO`."""
    tree = program.tree
    certain = not _defines_unseen(program)
    together = defaultdict[tuple[cst.CSTNode, str], list[cst.Name]](list)
    for use in _first_uses(program):
        is_bound = any(tree.is_live(each.node) for each in tree.bindings(use.value))
        reason = "not defined here yet" if is_bound else "never defined"
        together[tree.statement(use), reason].append(use)
    for (_, reason), uses in together.items():
        tried = any(isinstance(above, cst.Try) and above.handlers for above in tree.ancestors(uses[0]))
        fails = certain and not tried and bool(program.execution.phase(uses[0]))
        names = ", ".join(repr(use.value) for use in uses)
        remedy = f"define {'it' if len(uses) == 1 else 'them'} above"
        if tree.around(uses[0], cst.Del) is not None:
            remedy = "leave this line out"
        outcome = f"the script stops here; {remedy}" if fails else _PERHAPS
        yield Finding(uses[0], f"{names} {'is' if len(uses) == 1 else 'are'} {reason}: {outcome}", todo=fails)


def _first_uses(program: Program) -> list[cst.Name]:
    """Return the first use of each undefined name, in order."""
    tree, names = program.tree, program.names

    def is_stop(line: cst.CSTNode) -> bool:
        return isinstance(line, cst.Expr) and names.is_stop(line)

    unknown = (
        [use for use in tree.loads(name) if names.is_unknown(use) and not is_stop(tree.parents[use])]
        for name in set(tree.names_read) - IN_SETUP
    )
    return sorted((uses[0] for uses in unknown if uses), key=tree.start)


def _defines_unseen(program: Program) -> bool:
    """Return whether names may come from code that is run as text, or from another notebook."""
    magics = any(form.name in ("run", "store", "load") for _, form in program.forms_of(Kind.LINE_MAGIC))
    return magics or any(program.execution.calls(name) for name in ("exec", "globals", "locals", "vars"))


_ELSEWHERE = re.compile(
    r"(?is)KeyboardInterrupt|NameError|(ModuleNotFound|Import)Error|.*(\bFailed to import\b|"
    r"\bout of (memory|resource)\b|OutOfMemory|MemoryError|allocate memory|enough GPU RAM|No space left|StorageFull|"
    r"the disk is full|\babruptly\b|killed by signal|NVIDIA driver|\bneed a GPU|update Unsloth|no (CUDA|GPU)s?\b|"
    r"\berror loading\b.*\bdll\b|cannot open shared object|already added LoRA)"
)
#: The beginning of an error of the Hub: `(Request ID: Root=...)`.
_REQUEST = re.compile(r"\(Request ID: [^()]*\)\s*")
_FAILED = "this cell failed when the notebook was saved ({}), and is in the script: run the notebook again and save it"
_LOST = "this cell failed when the notebook was saved ({}): if it fails again, the script stops here, after training"


@rule("DDP008", Severity.WARNING)
def failed_when_saved(program: Program) -> Findings:
    """A cell that failed when the notebook was saved gets a `TODO`: the script has its code, and may stop there."""
    tree, installs = program.tree, program.installs
    lines = {
        cell: own
        for cell in program.code_cells
        if (own := [each for each in program.lines_of(cell.number) if tree.is_live(each) and not installs.covers(each)])
    }
    last = next(reversed(lines), None)
    for cell, own in lines.items():
        if not cell.failed or _ELSEWHERE.match(cell.failed):
            continue
        needed = [line for line in own if program.training.is_before_end(line)]
        error = textwrap.shorten(_REQUEST.sub("", cell.failed), 90, placeholder="...")
        if needed:
            yield todo(needed[0], _FAILED.format(error))
        elif cell is not last:
            yield todo(own[0], _LOST.format(error))


_LACKS = "{} has {{{}}}, for which this call gives no value: the script stops here; give it one, or change the template"


@rule("DDP009", Severity.WARNING)
def unfilled_template(program: Program) -> Findings:
    """A template that gets too few values gets a `TODO`: the script stops where they are filled in."""
    tree = program.tree
    for call in tree.live(cst.Call):
        template = receiver(call) if method(call) == "format" else None
        if template is None or any(each.star for each in call.args) or not is_unconditional(tree, call):
            continue
        text = tree.literal(template) if tree.function(call) is None else tree.fixed(template)
        plain = sum(each.keyword is None for each in call.args)
        given = {each.keyword.value for each in call.args if each.keyword} | set(map(str, range(plain)))
        lacked = [name for name in _fields(text) if name not in given] if isinstance(text, str) else []
        if lacked:
            yield todo(call, _LACKS.format(tree.text(template), lacked[0]))


def _fields(template: str) -> list[str]:
    """Return the names or numbers of a template's fields; none if the text is not a template."""
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
    except ValueError:
        return []
    numbers = map(str, count())
    return [re.split(r"[.\[]", field)[0] or next(numbers) for field in fields]


_EARLY = ", without training: remove the line to continue"


@rule("DDP317")
def stopped_on_purpose(program: Program) -> Findings:
    """A line such as `1/0`, which stops "Run all", becomes `sys.exit()`."""
    for statement in filter(program.names.is_stop, program.tree.live(cst.Expr)):
        early = program.execution.runs(statement, Phase.BEFORE | Phase.BETWEEN)
        message = "the notebook stops here on purpose, and so does the script" + (_EARLY if early else "")
        yield Finding(statement, message, Replace(statement, "sys.exit()"), todo=early)
