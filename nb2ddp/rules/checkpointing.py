"""DDP209: A long SFT of a text model trains without gradient checkpointing if the GPU has enough memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.loading import ModelKind, model_name
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import constant
from nb2ddp.syntax.edits import InsertAbove
from nb2ddp.syntax.tree import Tree

_FUNCTION = "skip_checkpointing_if_it_fits"
#: Families of models that keep more than the estimate, or of which nothing was measured; a script asks the others.
_OTHER_FAMILIES = re.compile(
    r"gemma|lfm|granite|falcon|ernie|glm|microsoft/phi|phi-?4[-_](mini|reasoning|multimodal)|gpt-oss|olmo|smollm3"
    r"|starcoder|stablelm",
    re.IGNORECASE,
)
#: Arguments with which a step keeps more than was measured, that bring rows as a stream, or that drop an epoch's last
#: rows, which are others where a step takes fewer at a time.
_KEEPS_MORE = (
    "lora_dropout use_dora modules_to_save load_in_8bit load_in_fp8 qat_scheme compute_metrics streaming"
    " preprocess_logits_for_metrics dataloader_drop_last"
).split()
#: Texts that say the like: trained embeddings, logits that are kept whole, rows that no trainer makes into tokens.
_OTHERWISE = frozenset({"lm_head", "embed_tokens", "UNSLOTH_RETURN_LOGITS", "skip_prepare_dataset"})
#: Names that say so too: rows as a stream, and a loss of the notebook's own.
_OTHER_NAMES = re.compile(r"\b(IterableDataset|to_iterable_dataset|compute_loss)\b")

_MESSAGE = (
    "gradient checkpointing costs a second forward pass, and a GPU larger than the notebook's may not need it; "
    "the script turns it off if memory allows"
)
#: Trainings of fewer steps gain little.
_LEAST_STEPS = 100


@rule("DDP209")
def checkpointing_for_a_smaller_gpu(program: Program) -> Iterator[Finding]:
    tree, training = program.tree, program.training
    measured = program.model_kind is ModelKind.DENSE_TEXT and program.trains_with_unsloth
    options = program.options
    if options.split_model or options.batch is not None or not measured or not _asks_for_it(tree):
        return
    calls = [(call, tree.text(call.func).rpartition(".")) for call in training.calls]
    trains = [(call, trainer) for call, (trainer, _, method) in calls if method not in ("evaluate", "predict")]
    if training.trainer_classes != ["SFTTrainer"] or len(trains) != 1 or _is_unlike_the_measured(program):
        return  # what a second training of the same model would keep is not known at the first
    steps = [constant(tree, config, "max_steps") for config in training.arguments]
    if any(isinstance(number, int) and 0 < number < _LEAST_STEPS for number in steps):
        return
    call, trainer = trains[0]
    if any(isinstance(above, (cst.For, cst.While)) for above in tree.ancestors(call)):
        return
    choice = f"{_FUNCTION}({trainer})"
    chosen = any(tree.text(each) == choice for each in tree.of(cst.Call))
    if tree.text(call.func) == f"{trainer}.train" and not chosen:
        yield Finding(call, _MESSAGE, (InsertAbove(tree.statement(call), choice),))


def _asks_for_it(tree: Tree) -> bool:
    """True unless the notebook says itself that nothing is checkpointed (Unsloth's default is to do it)."""
    given = [tree.literal(each) for each in tree.given("use_gradient_checkpointing")]
    return not given or any(value is not False for value in given)


def _is_unlike_the_measured(program: Program) -> bool:
    """True where more is kept than was measured, or where the rows are not there, as tokens, before training."""
    tree = program.tree
    given = [tree.literal(each) for name in _KEEPS_MORE for each in tree.given(name)]
    return (
        bool(_OTHER_NAMES.search(tree.source))
        or any(_OTHER_FAMILIES.search(model_name(tree, each)) for each in program.loads)
        or any(value not in (None, False, 0) for value in given)
        or any(tree.content(each) in _OTHERWISE and not tree.is_ruled_out(each) for each in tree.live(cst.SimpleString))
    )


_LOAD = """\
from unsloth import FastLanguageModel
from trl import SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B")
model = FastLanguageModel.get_peft_model(model, use_gradient_checkpointing = {})
trainer = SFTTrainer(model = model, train_dataset = dataset)
"""
_STEPS = _LOAD.format('"unsloth"').replace("model = model,", "model = model, args = SFTConfig(max_steps = {}),")
_STEPS = _STEPS.replace("import SFTTrainer", "import SFTConfig, SFTTrainer")
