"""Rules for the arguments of trainers and models: precision, checkpointing, trackers, resuming, a vLLM server."""

from __future__ import annotations

import re

import libcst as cst

from nb2ddp.facts.execution import Phase
from nb2ddp.facts.loading import ModelKind, model_name, trains_lora
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, Findings, rule, todo, trained, warning
from nb2ddp.script.inserted import SEND_WEIGHTS
from nb2ddp.syntax.arguments import constant, is_closed, passed
from nb2ddp.syntax.edits import AddToSetup, Edit, InsertAbove, Remove, Replace, set_argument
from nb2ddp.syntax.tree import Tree, argument, method

#: How code asks for bfloat16, by Unsloth's function or torch's.
_ASKS = re.compile(r"is_bf(loat)?16_supported")
_STOPS = "fails on a GPU where Unsloth loads the model in another dtype; the script asks the GPU"


@rule("DDP214")
def fixed_precision(program: Program) -> Findings:
    """A fixed `fp16 = True` or `bf16 = True` becomes what the GPU has, where Unsloth loads the model so."""
    tree, training = program.tree, program.training
    loads = [load for load in program.loads if training.is_before_end(load)]
    of_trl = all(tree.family(each.func).startswith(("trl.", "unsloth.")) for each in training.trainers)
    if not (loads and of_trl and program.trains_with_unsloth and all(_follows_gpu(tree, load) for load in loads)):
        return
    has_one = "unsloth.is_bfloat16_supported()"
    values = {"fp16": f"not {has_one}", "bf16": has_one}
    for call in training.arguments:
        given = {name: constant(tree, call, name) for name in values}
        if True in given.values() and is_closed(tree, call):
            fixed = [name for name, value in given.items() if value is True]
            edits = [set_argument(tree, call, name, values[name]) for name, value in given.items() if value is not ...]
            yield Finding(call, f"{fixed[0]} = True {_STOPS}", *edits)


def _follows_gpu(tree: Tree, load: cst.Call) -> bool:
    """Return whether Unsloth loads a model for an adapter, in the best dtype that the GPU has."""
    given = passed(tree, load, "dtype") or passed(tree, load, "torch_dtype") or argument(load, "dtype", 2)
    dtype = None if given is None or tree.literal(given.value) is None else tree.text(tree.value(given.value))
    is_whole = constant(tree, load, "full_finetuning") not in (None, False)
    is_open = is_whole or not is_closed(tree, load) or not tree.qualified(load.func).startswith("unsloth.")
    return not is_open and (dtype is None or bool(_ASKS.search(dtype)))


#: Families of models that keep more memory than estimated, or that were not measured; a script checks the others.
_OTHER_FAMILIES = re.compile(
    r"gemma|lfm|granite|falcon|ernie|glm|microsoft/phi|phi-?4[-_](mini|reasoning|multimodal)|gpt-oss|olmo|smollm3"
    r"|starcoder|stablelm",
    re.IGNORECASE,
)
#: Arguments with which a step keeps more memory than measured, that stream rows, or that drop an epoch's last rows,
#: which differ if a step takes fewer rows at a time.
_KEEPS_MORE = (
    "lora_dropout use_dora modules_to_save load_in_8bit load_in_fp8 qat_scheme compute_metrics streaming"
    " preprocess_logits_for_metrics dataloader_drop_last"
).split()
#: Texts with the same effect: trained embeddings, logits that are kept whole, rows that no trainer tokenizes.
_OTHERWISE = frozenset({"lm_head", "embed_tokens", "UNSLOTH_RETURN_LOGITS", "skip_prepare_dataset"})
#: Names with the same effect: streamed rows, and a user-defined loss.
_OTHER_NAMES = re.compile(r"\b(IterableDataset|to_iterable_dataset|compute_loss)\b")
_FASTER = (
    "gradient checkpointing costs a second forward pass, and a GPU larger than the notebook's may not need it; "
    "the script turns it off if memory allows"
)
#: Trainings of fewer steps gain little.
_LEAST_STEPS = 100


@rule("DDP209")
def checkpointing_for_a_smaller_gpu(program: Program) -> Findings:
    """A long SFT of a text model trains without gradient checkpointing if the GPU has enough memory."""
    tree, training = program.tree, program.training
    measured = program.model_kind is ModelKind.DENSE_TEXT and program.trains_with_unsloth
    options = program.options
    if options.split_model or options.batch is not None or not measured or not asks_for_checkpointing(tree):
        return
    calls = list(trained(program))
    if training.trainer_classes != ["SFTTrainer"] or len(calls) != 1 or _is_unlike_the_measured(program):
        return  # at the first training, the memory of a second one with the same model is unknown
    steps = [constant(tree, config, "max_steps") for config in training.arguments]
    is_short = any(isinstance(number, int) and 0 < number < _LEAST_STEPS for number in steps)
    if is_short and not options.skip_checkpointing:
        return
    call, trainer = calls[0]
    choice = f"skip_checkpointing_if_it_fits({trainer})"
    is_chosen = choice in map(tree.text, tree.of(cst.Call)) or tree.around(call, cst.For, cst.While) is not None
    if trainer and method(call) == "train" and not is_chosen:
        yield Finding(call, _FASTER, InsertAbove(tree.statement(call), choice))


def asks_for_checkpointing(tree: Tree) -> bool:
    """Return False only if the notebook turns gradient checkpointing off (Unsloth's default is on)."""
    given = [tree.literal(each) for each in tree.given("use_gradient_checkpointing")]
    return not given or any(value is not False for value in given)


def _is_unlike_the_measured(program: Program) -> bool:
    """Return whether a step keeps more memory than measured, or rows are not tokenized before training."""
    tree = program.tree
    given = [tree.literal(each) for name in _KEEPS_MORE for each in tree.given(name)]
    return (
        bool(_OTHER_NAMES.search(tree.source))
        or any(_OTHER_FAMILIES.search(model_name(tree, each)) for each in program.loads)
        or any(value not in (None, False, 0) for value in given)
        or any(tree.content(each) in _OTHERWISE and not tree.is_ruled_out(each) for each in tree.live(cst.SimpleString))
    )


FIELD = "ddp_find_unused_parameters"
_FAILS = (
    f"{FIELD} is not set: transformers would take True for an adapter, which fails or slows down; the script sets False"
)


@rule("DDP202")
def unused_parameters_searched(program: Program) -> Findings:
    """A dense text model with LoRA gets `ddp_find_unused_parameters = False`."""
    tree, kind, adapters = program.tree, program.model_kind, trains_lora(program.tree, program.loads)
    chooses = "Unsloth (2026.10.6 or newer)" if adapters else "transformers"
    why = "the kind of model is unknown, and False makes some fail"
    if kind is not ModelKind.UNKNOWN:
        why = f"False makes some {kind.value} models fail"
    for call in [call for call in program.training.arguments if passed(tree, call, FIELD) is None]:
        if kind is not ModelKind.DENSE_TEXT:
            yield Finding(call, f"{FIELD} is left to {chooses}: {why}")
        elif adapters:
            yield Finding(call, _FAILS, set_argument(tree, call, FIELD, "False"))


_PREPARE = re.compile(r".*accelerator\.prepare(_model)?")
_PREPARED = "Trainer prepares its model itself, and fails with one that is already prepared"


@rule("DDP218")
def model_prepared_twice(program: Program) -> Findings:
    """A model that goes to a Trainer is not handed to `accelerator.prepare` before."""
    tree = program.tree
    models = [argument(trainer, "model", 0) for trainer in program.training.trainers]
    names = {tree.text(model.value) for model in models if model is not None}
    names |= {tree.text(each) for each in tree.attributes("model") if program.training.is_trainer(each.value)}
    for call in program.execution.calls(_PREPARE):
        given, statement = [tree.text(each.value) for each in call.args if each.keyword is None], tree.statement(call)
        if names.isdisjoint(given) and names.isdisjoint(tree.binds(statement)):
            continue
        if len(given) > 1:
            yield todo(call, f"{_PREPARED}: remove the model from this call")
        else:
            is_line = tree.text(statement).strip() == f"{given[0]} = {tree.text(call)}"
            edit = Remove(statement) if is_line else Replace(call, given[0])
            yield Finding(call, f"{_PREPARED}; the script leaves that to it", edit)


_RESUMES = "would start over after a job that ended early; the script saves checkpoints and resumes from the last"
_UNSEEN = "starts over after a job that ended early: write it as trainer.train(), so that the script can resume it"


@rule("DDP211")
def training_goes_on(program: Program) -> Findings:
    """With `--resume`, a script that is started again continues from its last complete checkpoint."""
    for call, trainer in trained(program) if program.options.resume else ():
        checkpoint, given = f"last_checkpoint({trainer})", argument(call, "resume_from_checkpoint", 0)
        if not trainer or method(call) != "train":
            yield todo(call, _UNSEEN)
        elif given is not None and given.keyword is None:
            yield Finding(call, _RESUMES, Replace(given.value, checkpoint))
        else:
            yield Finding(call, _RESUMES, set_argument(program.tree, call, "resume_from_checkpoint", checkpoint))


_OTHERS = re.compile(
    r"(mlflow|comet_ml|neptune|trackio|clearml|swanlab|aim)\.(?!(last_)?active_run$|get_tracking_uri$).*|weave\.init"
)
_WANDB = re.compile(r"wandb\.(init|login|log|Table)")
_REPORTS = "wandb would begin a run in every process; in the script only the main one reports"
_ONE_RUN = """if not is_main_process:
    os.environ["WANDB_MODE"] = "disabled"  # one run, not one for each process"""


@rule("DDP406")
def run_in_every_process(program: Program) -> Findings:
    """Only the main process reports to Weights & Biases and other trackers."""
    for call in program.execution.calls(_WANDB, phase=Phase.TOGETHER)[:1]:
        yield Finding(call, _REPORTS, AddToSetup(_ONE_RUN))
    for call in program.execution.calls(_OTHERS, phase=Phase.TOGETHER):
        edits: tuple[Edit, ...] = program.placement.on_main_process(call) if program.alone(call) else ()
        does = "; in the script the main process does it" if edits else ": call it in the main process only"
        if not program.placement.runs_alone(call):
            message = f"{program.tree.text(call.func)} is for one process (each would begin a run of its own)"
            yield Finding(call, f"{message}{does}", *edits, todo=not edits)


#: Arguments of a load that quantise the model; the first is Unsloth's default.
_QUANTISED = ("load_in_4bit", "load_in_8bit", "load_in_fp8")
_ENGINE = re.compile(r".*\.(fast_generate|load_lora)")
_SENT = (
    "takes its completions from a vLLM server; TRL would send it weights without adapters, and the script sends both"
)
_STARTED = "would start an engine in each process; in the script a server writes the completions"
_PACKED = "loads quantised weights, which a vLLM server cannot take from the trainer: load them in 16 bits"
_SAMPLING = "does not reach a server: write temperature, top_p, top_k and min_p into the arguments of the trainer"
_NEEDED = "needs an engine in the process, and only the server has one: use model.generate(...)"


@rule("DDP210", also_alone=True)
def completions_from_a_server(program: Program) -> Findings:
    """With `vllm-server = true` in pyproject.toml, a vLLM server on one more GPU generates the completions of GRPO."""
    tree, wanted = program.tree, program.options.vllm_server
    trainings = [
        call for call in program.training.arguments if tree.class_name(call.func).endswith(("GRPOConfig", "RLOOConfig"))
    ]
    asked = [call for call in trainings if constant(tree, call, "vllm_mode") == "server" and not program.engines]
    for call in trainings if wanted else asked:
        fields = (("use_vllm", "True"), ("vllm_mode", '"server"'))
        edits = tuple(set_argument(tree, call, name, value) for name, value in fields) if wanted else ()
        yield Finding(call, _SENT, *edits, AddToSetup(SEND_WEIGHTS))
        if wanted and passed(tree, call, "vllm_sampling_params") is not None:
            yield warning(call, f"vllm_sampling_params {_SAMPLING}")
    if wanted and trainings:
        yield from _without_engine(program)


def _without_engine(program: Program) -> Findings:
    """Yield findings on code that needs an engine in the process, which only the server has."""
    tree = program.tree
    for load in program.engines:
        yield Finding(load, _STARTED, set_argument(tree, load, "fast_inference", "False"))
        by_default = constant(tree, load, "load_in_4bit") is None
        if by_default or any(constant(tree, load, name) not in (None, False) for name in _QUANTISED):
            yield todo(load, _PACKED)
    needing = {tree.statement(call): call for call in program.execution.calls(_ENGINE)}
    for call in needing.values():
        yield todo(call, f"{tree.text(call.func)}(...) {_NEEDED}")
