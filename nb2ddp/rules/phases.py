"""Rules for job phases: the end of training, servers, ended programs, trainings of some ranks, files and caches."""

from __future__ import annotations

import re
from pathlib import PurePath

import libcst as cst

from nb2ddp.facts.commands import kills_job
from nb2ddp.facts.effects import ACTIONS, Does
from nb2ddp.facts.execution import Phase, Who, handed_on
from nb2ddp.facts.program import Program
from nb2ddp.facts.services import answer, gpus_of, questions
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, Findings, left_out, made_alone, rule, shown, todo
from nb2ddp.script.inserted import LEAVE_GPUS
from nb2ddp.script.templates import render
from nb2ddp.syntax.arguments import passed
from nb2ddp.syntax.edits import AddToSetup, Edit, InsertAfter, Replace, SetKeyword, Wrap, written
from nb2ddp.syntax.tree import Function, Statement, Tree, argument, keyword, small_statements

_ENDS = "every process would run the rest of the notebook (print, generate, save); in the script the main process does"
_WAITING = ", and the others wait until it ends, because its vLLM engine may need them"
_PATIENCE = (
    'os.environ.setdefault("UNSLOTH_DDP_TIMEOUT", "7200")  # seconds that a process waits for another, in training too'
)


@rule("DDP401")
def every_process_goes_on(program: Program) -> Findings:
    """After the last training the process group is closed, and only the main process continues."""
    last, tree = program.training.last, program.tree
    closed = "PartialState().destroy_process_group" in map(tree.text, tree.of(cst.Attribute))
    if last is None or closed:
        return
    message, template, edits = _ENDS, "end_of_training.py.j2", list[Edit]()
    if not program.closes_group:
        message, template = f"{_ENDS}{_WAITING}", "main_process_goes_on.py.j2"
        edits.append(AddToSetup(_PATIENCE, before_imports=True))
    text = render(
        template,
        variable=program.name("variable"),
        goes_on=tree.module.body[-1] is not last,
        asks=program.asks_when_alone,
    )
    yield Finding(program.training.events[-1], message, _below(tree, last, text), *edits)


def _below(tree: Tree, last: Statement, text: str) -> InsertAfter:
    """Insert lines below a statement, with a blank line between them and code that follows."""
    end = tree.line_end(tree.span(last)[1])
    follows = tree.source[end : tree.line_end(end + 1)].strip()
    return InsertAfter(last, text.rstrip("\n") + ("\n" if follows else ""))


_COMMAND = re.compile(
    r"\b(vllm serve|ollama serve|uvicorn|gunicorn|sglang|llama-server|text-generation-launcher|http\.server)\b|--port\b"
)
_HERE = re.compile(r"\b(localhost|127\.0\.0\.1|0\.0\.0\.0)\b|\[::1\]")
_CALLS = re.compile(r"(http\.server|socketserver)\.\w*Server|.*\bSyntheticDataKit\.from_pretrained")
FEWER = "one process fewer than the machine has GPUs"
_ONCE = "asks a service, which may answer each process differently; in the script one asks for all"
_EACH = (
    "asks a service in every process, and each may get a different answer: ask before the job, and read the answer"
    " from a file; a server that keeps state needs a copy for each process"
)
_STARTED = "starts a server in every process; in the script one process of each machine does, and runs the code for it"
_USED = "uses a server that only one process of each machine starts; in the script that process does it"
_TAKEN = "starts a server in every process, and all but the first find its port taken: start it once, before the job"


@rule("DDP405")
def server_or_remote_data(program: Program) -> Findings:
    """A remote service is asked once for all ranks, and a server is started once on each machine."""
    tree, execution, placement = program.tree, program.execution, program.placement
    asked = set[cst.Call]()
    for call in execution.calls(phase=Phase.TOGETHER):
        starts, asks = _starts(program, call), execution.does(call) & Does.ASK
        if starts and (gpus := gpus_of(tree, call, program.effects.command(call))):
            seen = ",".join(str(number) for number in range(8) if str(number) not in gpus)
            text = f"starts a server on GPU {', '.join(gpus)}; the script leaves that GPU to the server: start {FEWER}"
            yield Finding(call, text, AddToSetup(f'{LEAVE_GPUS}"{seen}")', True), severity=Severity.WARNING)
        if not (starts or asks) or placement.runs_alone_as_placed(call):
            continue
        if starts:
            # DDP403 places it like any other program
            if tree.qualified(call.func) != "subprocess.Popen" and program.alone(call) is None:
                yield from made_alone(program, call, _STARTED, _USED, _TAKEN)
        else:
            asked.update(each for each in questions(tree, call) if execution.runs(each))
    for call in tree.in_order(asked):
        if placement.runs_alone_as_placed(call) or _is_rewards(program, call) or _asks_whether(tree, call):
            continue
        given = answer(tree, call)
        edits = placement.shared(given, in_whole_job=True) if given is not None else ()
        yield Finding(call, f"{tree.text(call.func)}(...) {_ONCE if edits else _EACH}", *edits, todo=not edits)


def _is_rewards(program: Program, call: cst.Call) -> bool:
    """Return whether only rewards make a request (also via an environment), each process for its own completions."""
    tree, function = program.tree, program.tree.function(call)
    if program.rewards.is_only_here(call):
        return True
    used = tree.named(function) if function in program.rewards.functions and function is not None else []
    return bool(used) and all(tree.enclosing_function(use) in program.rewards.functions for use in used)


def _asks_whether(tree: Tree, call: cst.Call) -> bool:
    """Return whether all processes may make a request: to a server on this machine, or to test whether one answers."""
    if tree.text(call.func).rsplit(".", 1)[-1] not in ("get", "head", "urlopen"):
        return False
    url = argument(call, "url", 0)
    if url is not None and any(_HERE.search(tree.text(part)) for part in tree.backward_slice(url.value)):
        return True
    return isinstance(tree.parents[tree.extended(call, cst.Attribute, cst.Call)], cst.Expr)


def _starts(program: Program, call: cst.Call) -> bool:
    """Return whether a call or a shell command starts a server that runs next to the script."""
    if program.execution.does(call) & Does.SERVE:
        return False
    started = _COMMAND.search(program.effects.command(call))
    return bool(started or _CALLS.fullmatch(program.tree.qualified(call.func)))


_BESIDE = re.compile(r"threading\.Thread|multiprocessing(\.\w+)*\.Process")
_SERVES = "serves until a person stops it, and the code below waits for that: start it as a separate program"
_OUTLIVES = "starts a program that would outlive the job; the script ends it"
_HOLDS = "makes a server that would keep the job from ending; in the script it ends with the job"
#: Attributes of a program that are used to wait for it or to end it.
_ENDING = frozenset("communicate kill pid send_signal terminate wait".split())


@rule("DDP322")
def served_until_stopped(program: Program) -> Findings:
    """A server that runs until a person stops it gets a `TODO`; one beside the script ends with it."""
    beside = set[Function | None]()
    for call in program.execution.calls(_BESIDE):
        target = keyword(call, "target")
        functions = handed_on(program.tree, [target.value])[0] if target is not None else []
        serving = [function for function in functions if program.execution.has(function, Does.SERVE)]
        beside.update(serving)
        is_server = serving or (target is not None and program.effects.is_server(target.value))
        if is_server and keyword(call, "daemon") is None and program.execution.runs(call):
            yield Finding(call, f"{shown(program, call)} {_HOLDS}", SetKeyword(call, "daemon", "True"))
    for call in program.execution.calls("subprocess.Popen"):
        if edit := _ended(program.tree, call):
            yield Finding(call, f"{shown(program, call)} {_OUTLIVES}", edit)
    for call in program.execution.calls(does=Does.SERVE):
        if program.execution.phase(call) and program.tree.enclosing_function(call) not in beside:
            yield todo(call, f"{shown(program, call)} {_SERVES}")


def _ended(tree: Tree, call: cst.Call) -> Edit | None:
    """End a program with the script, unless the notebook waits for it, ends it or stores it elsewhere."""
    above, statement = tree.parents[call], tree.statement(call)
    if keyword(call, "shell") is not None:  # its process is the shell, not the program
        return None
    if isinstance(above, cst.Expr):
        return Wrap(call, "atexit.register(", ".terminate)")
    target = above.targets[0].target if isinstance(above, cst.Assign) else None
    if not isinstance(target, cst.Name) or not isinstance(statement, cst.SimpleStatementLine):
        return None
    asked = {tree.parents[use] for use in tree.loads(target.value)}
    if any(isinstance(each, cst.Attribute) and each.attr.value in _ENDING for each in asked):
        return None
    return InsertAfter(statement, f"atexit.register({target.value}.terminate)")


_RANK = "only some ranks reach the joint step below, and wait for the others forever: move it out of the condition"
_TRY = "if this fails in one process, the others wait for it until the job times out: let the exception end the script"
_CLOCK = "each rank reads its own clock, and one may train once more than the others: count the rounds instead"
_TIME = re.compile(r"\b(time|monotonic|perf_counter|now)\(")
#: Decorators that call a function again after it failed.
_RETRY = re.compile(r"\b(find_executable_batch_size|retry|on_exception)\b")
_EXIT = re.compile(r"(sys\.|os\._)?exit\((?!0?\))")


@rule("DDP408")
def trained_by_some_processes(program: Program) -> Findings:
    """A training that a rank may skip, leave or repeat gets a `TODO`: by a test of the rank, a `try`, a retry."""
    tree, training = program.tree, program.training
    for test in tree.of(cst.If):
        is_asked = program.execution.asks_rank(test.test) is not Who.EVERY and program.execution.runs(test)
        if is_asked and training.is_collective(test.body):
            yield todo(test, _RANK)
    for loop in tree.of(cst.While):
        if _TIME.search(tree.text(loop.test)) and training.is_collective(loop.body):
            yield todo(loop, _CLOCK)
    for call in dict.fromkeys([*training.calls, *training.events]):
        tried = [each for each in tree.ancestors(call) if isinstance(each, cst.Try)]
        handlers = [each for above in tried if call in tree.within(above.body, type(call)) for each in above.handlers]
        if not all(_ends(tree, handler) for handler in handlers):
            yield todo(call, _TRY)
    for function in tree.of(cst.FunctionDef):
        if training.is_collective(function.body) and any(
            _RETRY.search(tree.text(each)) for each in function.decorators
        ):
            yield todo(function, _TRY)


def _ends(tree: Tree, handler: cst.ExceptHandler) -> bool:
    """Return whether the last line of a handler raises, or ends the process with a failure code."""
    last = handler.body.body[-1]
    line = (small_statements(last) or (last,))[-1]
    return isinstance(line, cst.Raise) or _EXIT.match(tree.text(line)) is not None


_OTHERS = (
    "ends programs of the whole machine, including those that other ranks wait for, whose rewards then count as"
    " failures: end only programs that this process started, by process id"
)
_ITSELF = "ends all programs of its kind on the machine, this job among them; the script leaves it out"


@rule("DDP412")
def programs_of_others_ended(program: Program) -> Findings:
    """A command that would end the job itself is removed; one that ends other ranks' programs gets a `TODO`."""
    tree, seen = program.tree, set[object]()
    for call in program.execution.calls(does=Does.KILL):
        command, owner = program.effects.command(call), tree.enclosing_function(call)
        if owner in seen:
            continue
        if program.execution.runs(call, Phase.DURING):
            seen.add(owner)
            yield todo(call, f"{command!r} {_OTHERS}")
        elif kills_job(command):
            yield Finding(call, f"{command!r} {_ITSELF}", left_out(program, call))


#: Fields of training arguments that must be the same in every process.
_SAME_EVERYWHERE = ("output_dir", "logging_dir", "seed", "data_seed")
#: Calls that return the memory or disk space that is free at the moment.
_FREE = re.compile(
    r"torch\.cuda\.(memory\.)?mem_get_info|psutil\.(virtual_memory|disk_usage)|shutil\.disk_usage"
    r"|pynvml\.nvmlDeviceGetMemoryInfo|GPUtil\.get(GPUs|Available)"
)
_NEEDED = (
    "in all processes at once, because other code of this statement must run in each: move it to a statement of its "
    "own, or do it before the job"
)
_ALONE = ", which all processes would do at once; in the script one does it"
_WHILE_OTHERS_WAIT = f"{_ALONE}, and the others wait"
_OF_ITS_OWN = (
    ", but each rank has its own completions; in the script only the first rank of each machine writes: to keep "
    "all, put local_rank into the file's name and let every rank write"
)
_IN_TURN = " into a cache that has no lock; in the script one process of each machine does, before the others"
_SCRATCH = "{}(...): all processes use one scratch file, and overwrite each other's data"
#: Code in an edit that makes the other processes wait.
_WAITS = re.compile(r"wait_for_everyone|run_once|main_process_first")
_PROGRAMS = re.compile(r"subprocess\.(check_output|getoutput|run)|os\.popen")
#: A string literal: the path before the file's extension, and the extension.
_PATH = re.compile(r"""(?P<f>f?)(?P<quote>["'])(?P<stem>[^"']*?[^"'.])(?P<ending>\.\w+)?(?P=quote)""")


@rule("DDP403")
def written_by_every_process(program: Program) -> Findings:
    """File writes, downloads and programs before training run in one process of each machine; the others wait."""
    tree = program.tree
    scratch_files = set[tuple[cst.FunctionDef | None, str]]()
    for decision in program.placement.decisions:
        call, function = decision.call, tree.function(decision.call)
        action = ACTIONS[program.execution.does(call) & Does.ACT]
        message = f"{tree.text(call.func)}(...) {action}"
        if function is not None and decision.place is not call:
            message = f"{function.name.value}() {action} ({tree.text(call.func)}){_WHILE_OTHERS_WAIT}"
            yield Finding(decision.place, message, *decision.edits)
        elif (scratch := _scratch(program, call)) is not None:
            if (function, scratch) not in scratch_files:
                scratch_files.add((function, scratch))
                yield from _apart(program, call, scratch)
        elif decision.edits:
            is_reward = function in program.rewards.functions
            severity = Severity.WARNING if is_reward else None
            waits = any(_WAITS.search(text) for edit in decision.edits for text in written(edit))
            consequence = _OF_ITS_OWN if is_reward else _WHILE_OTHERS_WAIT if waits else _ALONE
            yield Finding(call, f"{message}{consequence}", *decision.edits, severity=severity)
        elif tree.qualified(call.func) == "subprocess.Popen":
            once = f"{message}{_WHILE_OTHERS_WAIT}"
            yield from made_alone(program, call, once, once, f"{message} {_NEEDED}")
        else:
            yield todo(call, f"{message} {_NEEDED}")
    yield from _own_values(program)
    yield from _cached(program)


def _apart(program: Program, call: cst.Call, scratch: str) -> Findings:
    """Give each process a separate scratch file if the notebook writes its path out; else leave a `TODO`."""
    tree = program.tree
    bound = tree.bindings(scratch, call)
    path = bound[0].value if len(bound) == 1 else None
    if isinstance(path, cst.Call) and tree.qualified(path.func) in ("os.path.join", "pathlib.Path") and path.args:
        path = path.args[-1].value
    parts = _PATH.fullmatch(tree.text(path)) if isinstance(path, (cst.SimpleString, cst.FormattedString)) else None
    message = _SCRATCH.format(tree.text(call.func))
    if path is not None and "local_rank" in tree.text(path):
        return
    if path is None or parts is None or (not parts["f"] and "{" in parts["stem"]):
        yield todo(call, f"{message}: put local_rank into {scratch}")
        return
    own = "f{quote}{stem}_{{local_rank}}{ending}{quote}".format(**parts.groupdict(""))
    yield Finding(call, f"{message}; the script gives each its own", Replace(path, own))


def _cached(program: Program) -> Findings:
    """Yield findings on downloads into caches in which processes disturb each other."""
    calls = program.execution.calls(does=Does.CACHE, phase=Phase.BEFORE | Phase.BETWEEN)
    guards = [(guard, call) for call in calls for guard in program.placement.in_turn(call)]
    for guard, call in dict(reversed(guards)).items():
        is_own = guard.first is program.tree.statement(call)
        message = f"{program.tree.text(call.func)}(...) downloads{_IN_TURN}"
        yield Finding(call if is_own else guard.first, message, guard)


def _own_values(program: Program) -> Findings:
    """Yield findings on folders, seeds and batch sizes that come from the time, a random name or free memory."""
    tree = program.tree
    configs = program.training.arguments
    fields = [passed(tree, config, name) for config in configs for name in _SAME_EVERYWHERE]
    folders = [argument(config, "output_dir", 0) for config in configs]
    values = [field.value for field in (*fields, *folders) if field is not None]
    early = Phase.BEFORE | Phase.BETWEEN
    asked = [call for call in program.execution.calls(_PROGRAMS, phase=early) if "nvidia-smi" in tree.text(call)]
    free = [*program.execution.calls(_FREE, phase=early), *asked]
    uses = [(call, tree.bound_uses(assign)) for call in free if (assign := tree.around(call, cst.Assign)) is not None]
    kept = [call for call, names in uses if any(tree.around(name, cst.Assign, cst.If, cst.IfExp) for name in names)]
    for node in dict.fromkeys([*(node for value in values for node in program.execution.unlike(value)), *kept]):
        message = f"{tree.text(node)} differs between processes, and so may the training"
        if edits := program.placement.shared(node, in_whole_job=True):
            yield Finding(node, f"{message}; in the script one process computes it for all", *edits)
        elif not program.placement.runs_alone(node):
            yield todo(node, f"{message}: write a fixed value")


def _scratch(program: Program, call: cst.Call) -> str | None:
    """Return the name of a path that this call uses and its function removes again; None if there is none.

    In a reward, which each process calls with its own rows, return the text of a path that it names more than once.
    """
    tree, function = program.tree, program.tree.function(call)
    if function is None:
        return None
    for text in tree.within(call, cst.SimpleString) if function in program.rewards.functions else ():
        path = tree.content(text)
        if PurePath(path).suffix and sum(path in other for other in tree.texts(function)) > 1:
            return tree.text(text)
    calls = tree.within(function, cst.Call)
    removing = [each for each in calls if tree.qualified(each.func) in ("os.remove", "os.unlink", "shutil.rmtree")]
    named = {name.value: name for each in removing for name in tree.within(each, cst.Name)}
    removed = {text for text, name in named.items() if tree.bindings(text, name)}
    return next((name.value for name in tree.within(call, cst.Name) if name.value in removed), None)
