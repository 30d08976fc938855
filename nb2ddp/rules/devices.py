"""Rules for placing models and tensors: devices, ranks, settings that Unsloth reads, a model split over GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.environment import Setting, statement_of
from nb2ddp.facts.execution import Phase, added
from nb2ddp.facts.flow import reached
from nb2ddp.facts.loading import SPLITTING, is_partial, is_split, plans, trained_loads, trains_whole
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, Findings, rule, todo, without_names
from nb2ddp.syntax.arguments import Passed, entry, passed
from nb2ddp.syntax.edits import AddToSetup, Cut, Edit, Remove, Replace, SetKeyword, set_argument
from nb2ddp.syntax.environ import LAUNCHER_VARIABLES, environ_key
from nb2ddp.syntax.tree import Tree, argument, keyword, method

_ENGINE = re.compile(r"vllm(\.\w+)*\.(LLM|LLMEngine|AsyncLLMEngine|AsyncLLM)(\.from_\w+)?")
_CPU = re.compile(r"""["']cpu["']""")
_PLACED = "processes would load onto each other's GPUs; in the script each loads onto its own"
_SPREAD_LOAD = "the model would load onto one GPU; the script's single process spreads it over all"
_ENGINES = (
    "every process would start this vLLM engine, and all may take the first GPU: before the job, start one with `vllm"
    " serve`, or generate its output"
)


@rule("DDP101")
def model_not_on_local_gpu(program: Program) -> Findings:
    """Every model load gets `device_map = local_rank`."""
    tree, splits = program.tree, program.options.split_model
    loads = [load for load in program.loads if not program.training.last or program.training.is_before_end(load)]
    for call in loads:
        given = passed(tree, call, "device_map")
        text = tree.text(given.value) if given is not None else ""
        is_split = splits and given is not None and tree.literal(given.value) in SPLITTING
        if text.startswith("local_rank") or _CPU.search(text) or is_split:
            continue
        if given is None and is_partial(tree, tree.value(call.func)):
            continue  # edited at the call of `functools.partial`
        message = f"device_map = {text}" if given else "no device_map"
        edit = set_argument(tree, call, "device_map", _place(program, given))
        yield Finding(call, f"{message}: {_SPREAD_LOAD if splits else _PLACED}", edit)
    for call in program.training.arguments:
        kwargs = passed(tree, call, "model_init_kwargs")
        given = entry(tree, kwargs.value, "device_map") if kwargs is not None else None
        if given is not None and not tree.text(given.value).startswith("local_rank"):
            message = f"device_map = {tree.text(given.value)}: {_PLACED}"
            yield Finding(given.value, message, Replace(given.value, _place(program, given)))
    for call in program.execution.calls(_ENGINE, phase=Phase.TOGETHER):
        if not program.placement.runs_alone(call):
            yield todo(call, _ENGINES)


def _place(program: Program, given: Passed | None) -> str:
    """Return the `device_map` as code: this process's GPU, or all GPUs if one process splits the model over them."""
    if program.options.split_model:
        return '"balanced"'
    if given is None or program.tree.literal(given.value) not in SPLITTING:
        return "local_rank"
    return f"local_rank if world_size > 1 else {program.tree.text(given.value)}"


_INDEXED = re.compile(r"cuda:(\d+)")
#: Functions of torch.cuda whose first argument is a device.
_QUERIES = re.compile(
    r"torch\.cuda\.(\w+\.)*(current_stream|device|empty_cache|get_device_\w+|max_memory_\w+|mem_get_info|memory_\w+"
    r"|reset_peak_memory_stats|set_device|synchronize|utilization)"
)
#: Calls that take a device only as a keyword argument.
_TAKES_DEVICE = re.compile(r"torch\..*|.*(\.pipeline|SentenceTransformer|CrossEncoder)")
_FIXED = "names one GPU for all processes; in the script each names its own"


@rule("DDP102")
def fixed_gpu(program: Program) -> Findings:
    """A GPU named by its number becomes this process's GPU."""
    tree = program.tree
    for string in tree.of(cst.SimpleString):
        value = tree.content(string) if "cuda:" in string.value else ""
        if _INDEXED.fullmatch(value) and program.execution.runs(string):
            parent = tree.parents[string]
            if isinstance(parent, cst.Arg) and parent.keyword and parent.keyword.value == "device_map":
                continue  # of a model load, which DDP101 edits
            yield Finding(string, f'"{value}" {_FIXED}', Replace(string, 'f"cuda:{local_rank}"'))
    for call in program.execution.calls(phase=Phase.TOGETHER):
        given = _device(tree, call)
        if given is not None and isinstance(given.value, cst.Integer):
            yield Finding(call, f"{tree.text(call)} {_FIXED}", Replace(given.value, "local_rank"))


def _device(tree: Tree, call: cst.Call) -> cst.Arg | None:
    """Return the argument with a call's device: `torch.device("cuda", 0)`, `x.to(0)`, `pipeline(..., device = 0)`."""
    name, called = tree.qualified(call.func), method(call)
    if name == "torch.device" and len(call.args) == 2 and tree.literal(call.args[0].value) == "cuda":
        return call.args[1]
    if called == "cuda" or (called == "to" and len(call.args) == 1) or _QUERIES.fullmatch(name):
        return argument(call, "device", 0)
    return keyword(call, "device") if _TAKES_DEVICE.fullmatch(name) else None


_POPS = re.compile(r"os\.(environ\.(pop|__delitem__)|unsetenv)")
_OUT = "is set by the launcher for each process; the script leaves this out: set it where you start the script"
_STAYS = "is set by the launcher for each process: leave it out here"


@rule("DDP103", Severity.WARNING)
def launcher_variable_set(program: Program) -> Findings:
    """Lines that set or delete `CUDA_VISIBLE_DEVICES`, `WORLD_SIZE`, `RANK` and the like are removed."""
    tree = program.tree
    found = [(node, name, statement_of(program, node)) for node, name, _ in program.settings if tree.is_live(node)]
    found += [(line, environ_key(tree, line.target), line) for line in tree.live(cst.Del)]
    for call in tree.live(cst.Call):
        if _POPS.fullmatch(tree.qualified(call.func)) and call.args:
            found.append((call, tree.literal(call.args[0].value), program.alone(call)))
    for node, name, statement in found:
        if name in LAUNCHER_VARIABLES:
            edits = list[Edit]()
            if isinstance(statement, cst.BaseSmallStatement) and not isinstance(node, (cst.DictElement, cst.Arg)):
                edits.append(Remove(statement, keep_comment=False, comments_above=True))
            yield Finding(node, f"{name} {_OUT if edits else _STAYS}", *edits, todo=not edits)
    for loop in tree.live(cst.For):
        names = sorted(LAUNCHER_VARIABLES.intersection(tree.texts(tree.value(loop.iter))))
        if names and re.search(r"\bdel os\.environ|environ\.pop\(", tree.text(loop.body)):
            yield todo(loop, f"{names[0]} {_STAYS}")


_PARALLEL = re.compile(r"torch\.nn\.(parallel\.)?DataParallel")
_ALONE = "one process spreads the model over all GPUs, which work in turn; if several start, the script ends at once"


@rule("DDP104", Severity.WARNING)
def model_split_over_gpus(program: Program) -> Findings:
    """A model split over several GPUs gets a warning, and is split only if one process runs."""
    tree = program.tree
    if program.options.split_model:
        for call in program.loads[:1]:
            yield Finding(
                call, _ALONE, AddToSetup("refuse_several_processes()", before_imports=True), severity=Severity.NOTE
            )
        return
    for call in program.loads:
        if is_split(tree, call):
            alone = ((name, f"None if world_size > 1 else {text}") for name, text in plans(tree, call))
            yield Finding(
                call,
                "the notebook splits this model over its GPUs; with several processes the script puts a whole copy"
                " on each GPU: if one GPU cannot hold it, start one process (python ...), which still splits it",
                *(SetKeyword(call, name, value) for name, value in alone),
            )
    for call in program.execution.calls(_PARALLEL):
        message = (
            "DataParallel spreads each process over all GPUs, which breaks the job: leave it out, DDP does the same"
        )
        yield todo(call, message)


_IMPORTED = "os is imported only for variables that the setup block sets; the script leaves it out"


@rule("DDP105")
def setting_after_import(program: Program) -> Findings:
    """Environment variables set before Unsloth is imported move to the setup block."""
    tree, moved = program.tree, set[cst.CSTNode]()
    for setting in program.early_settings:
        node, small = setting.node, statement_of(program, setting.node)
        edits = list[Edit]()
        if setting.moves and small is not None:
            moved.add(small)
            edits = [Remove(small, keep_comment=False), *_comments(tree, setting)]
        message = f"{setting.name} must be set before Unsloth is imported; the script sets it above that import"
        yield Finding(node, message, *edits, fixed=True)
    for statement in tree.of(cst.Import):
        others = [alias for alias in statement.names if tree.text(alias).rstrip(", ") != "os"]
        uses = tree.readers("os", statement) if len(others) < len(statement.names) else []
        if uses and all(moved.intersection(tree.ancestors(use)) for use in uses):
            edit = without_names(program, statement, others) if others else Remove(statement)
            yield Finding(statement, _IMPORTED, edit)


def _comments(tree: Tree, setting: Setting) -> Iterator[Cut]:
    """Yield a cut of the comments that move with a setting, and of the blank line above them."""
    if setting.comments:
        is_apart = tree.source[: setting.above].endswith("\n\n")
        yield Cut(setting.above - is_apart, tree.line_start(tree.start(setting.node)))


FOLDER = "_unsloth_temporary_saved_buffers"
OWN = f"f\"{FOLDER}/{{os.environ.get('RANK', 0)}}\""
#: Modules whose weights Unsloth offloads to disk if they are trained.
_EMBEDDINGS = frozenset({"embed_tokens", "lm_head"})
_MESSAGE = (
    "Unsloth offloads trained embeddings to disk, all processes to one file; the script gives each its own folder"
)


@rule("DDP106")
def offloaded_into_one_file(program: Program) -> Findings:
    """If embeddings are trained, `get_peft_model` gets an offload folder for each process."""
    tree = program.tree
    adding = [each for each in tree.live(cst.Call) if tree.qualified(each.func).endswith("add_new_tokens")]
    for call in tree.live(cst.Call):
        if not tree.text(call.func).endswith("get_peft_model") or passed(tree, call, "temporary_location") is not None:
            continue
        checkpointing = passed(tree, call, "use_gradient_checkpointing")
        unsloth = checkpointing is None or tree.literal(checkpointing.value) in ("unsloth", ...)
        has_new_tokens = any(tree.start(other) < tree.start(call) for other in adding)
        if unsloth and (has_new_tokens or trains_embeddings(tree, call)):
            yield Finding(call, _MESSAGE, set_argument(tree, call, "temporary_location", OWN))


def trains_embeddings(tree: Tree, call: cst.Call) -> bool:
    """Return whether adapters may come with trained embeddings or a trained head.

    The module names are searched for in all values that the notebook binds to the variables or adds to their lists,
    except in branches that a constant rules out: `[...] if WHOLE else []`.
    """
    given = [passed(tree, call, name) for name in ("target_modules", "modules_to_save")]
    parts = reached([each.value for each in given if each is not None], lambda node: _sources(tree, node))
    strings = [each for part in parts for each in tree.within(part, cst.SimpleString) if tree.is_live(each)]
    return any(tree.content(each) in _EMBEDDINGS and not tree.is_ruled_out(each) for each in strings)


def _sources(tree: Tree, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the values that the names in an expression are bound to, and those that are added to their lists."""
    for name in tree.within(node, cst.Name):
        bound = tree.definition(name)
        for binding in tree.bindings(name.value, bound) if bound is not None else ():
            if isinstance(binding.node, (cst.Assign, cst.AnnAssign, cst.AugAssign)) and binding.node.value is not None:
                yield binding.node.value
        yield from added(tree, name.value)


_SPREAD_TRAINING = "one process would train on all GPUs, with a larger batch; the script lets it see one"


@rule("DDP107")
def trained_on_all_gpus(program: Program) -> Findings:
    """One process sees one GPU, if a Trainer would otherwise train on all of them."""
    tree, trainers = program.tree, program.training.trainers
    chosen = [value for node, name, value in program.settings if name == "CUDA_VISIBLE_DEVICES" and tree.is_live(node)]
    uses_several = any("," in str(value) for value in chosen) or any(is_split(tree, load) for load in program.loads)
    if trainers and not (uses_several or program.options.split_model) and (chosen or not _is_prevented(program)):
        yield Finding(trainers[0], _SPREAD_TRAINING, AddToSetup("see_one_gpu()", before_imports=True))


def _is_prevented(program: Program) -> bool:
    """Return whether Unsloth sets `_n_gpu` of the trainers, all TRL's (models/rl.py:649), or loads a model for LoRA."""
    tree = program.tree
    families = [tree.family(each.func) for each in program.training.trainers]
    if any(tree.imports("unsloth")) and all(family.startswith(("trl.", "unsloth.")) for family in families):
        return True
    trained = trained_loads(tree, program.training.trainers, program.loads)
    of_unsloth = [tree.qualified(load.func).startswith("unsloth") for load in trained]
    return bool(trained) and all(of_unsloth) and not trains_whole(tree, trained)
