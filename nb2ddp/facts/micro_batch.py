"""Trainings whose result depends on the micro-batches into which a step is divided."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from nb2ddp.facts.execution import Execution
from nb2ddp.facts.loading import ModelKind
from nb2ddp.facts.training import Training
from nb2ddp.syntax.arguments import constant, passed
from nb2ddp.syntax.tree import Tree, argument, keyword

#: Configs of trainers whose loss compares the samples of a micro-batch, or that generate (TRL).
_COMPARING_CONFIGS = ("KTOConfig", "BCOConfig", "OnlineDPOConfig", "NashMDConfig", "XPOConfig", "PPOConfig")
#: Configs of trainers that add a mean over the chosen answers' tokens in a micro-batch to the loss (TRL 0.22 and 1.15).
_TOKEN_MEAN_CONFIGS = ("ORPOConfig", "CPOConfig", "TPOConfig")
#: DPO losses that are not means over pairs: they add a token mean (`sft`), sort or average pairs of a micro-batch.
_UNLIKE_PAIRS = re.compile(r"\b(sft|aot|aot_unpaired|bco_pair)\b")
#: Options that add the balance of a mixture of experts over a micro-batch's tokens to the loss (transformers).
_BALANCE = re.compile(r"\b(output_router_logits|router_aux_loss_coef|aux_loss_coef)\b")
#: Fields that sort or drop rows by the per-device batch ...
_SHAPED_FIELDS = ("group_by_length", "train_sampling_strategy", "dataloader_drop_last")
#: ... unless they are set to one of these.
_UNSHAPED_VALUES = (False, None, "random", "sequential")
#: Losses with in-batch negatives that can gather those of all devices (sentence-transformers 5.1 and newer; those of
#: cross encoders cannot).
GATHERING_LOSSES = re.compile(
    r"(?!.*cross_encoder)sentence_transformers\.(\w+\.)*\w*(MultipleNegatives(Symmetric)?RankingLoss|GISTEmbedLoss)"
)
#: Kinds whose trainer takes the mean of a micro-batch: their heads do not take `num_items_in_batch`.
_MEANS = (ModelKind.ENCODER, ModelKind.ENCODER_DECODER, ModelKind.AUDIO)


def shares_batches(execution: Execution, config: cst.Call) -> bool:
    """Return whether a config's batch is a pool of negatives: it is not split, and the processes share it."""
    name = execution.tree.family(config.func)
    return name.startswith("sentence_transformers.") and bool(execution.calls(GATHERING_LOSSES))


def why_shape_counts(training: Training, kind: ModelKind, loads: Sequence[cst.Call], config: cst.Call) -> str:
    """Return, in words, why the per-device batch does more than limit the samples per GPU at a time; "" if it does not.

    Sentence encoders draw their negatives from it and classifiers pad within it; KTO compares its samples; rows that
    are grouped by length are sorted in multiples of it; a mean over a micro-batch weights tokens by their number
    (ORPO and CPO use one; code that comes with a model may, since its forward often does not take
    `num_items_in_batch`); a trainer that cannot pad takes rows of unequal length only one at a time; packed rows are
    longer than those that the notebook's GPU took, if the notebook's Unsloth did not pack them.
    """
    tree = training.tree
    family = tree.family(config.func)
    field = next((name for name in _SHAPED_FIELDS if constant(tree, config, name) not in _UNSHAPED_VALUES), "")
    has_code = any(constant(tree, load, "trust_remote_code") is True for load in loads)
    reasons = {
        "whose loss compares samples of a batch": family.endswith(_COMPARING_CONFIGS),
        "whose loss takes a mean over a batch": family.endswith(_TOKEN_MEAN_CONFIGS)
        or _is_no_mean_over_pairs(tree, config)
        or (kind in _MEANS and family.startswith("transformers.")),
        "whose trainer is neither TRL's nor transformers'": not family.startswith(
            ("trl.", "unsloth.", "transformers.")
        ),
        f"which sets {field}": bool(field),
        "which computes its loss itself": _defines(tree, "compute_loss") or bool(tree.given("compute_loss_func")),
        "whose trainer loads its rows itself": _defines(tree, "get_train_dataloader"),
        "whose trainer has nothing to pad rows with": _cannot_pad(training, config),
        # Unsloth hands that on to the config, since when is not known: 2026.5.8 left it out, 2026.10.9 packs
        # (`_backwards_compatible_trainer` in trainer.py): rows are longer than those that the notebook's GPU took
        "whose trainer is told to pack rows (some releases of Unsloth did not)": any(
            constant(tree, call, "packing") is True for call in training.trainers
        ),
        "whose loss balances experts over a batch": _BALANCE.search(tree.source) is not None,
        "whose model may bring a loss of its own (trust_remote_code)": has_code,
    }
    return next((why for why, holds in reasons.items() if holds), "")


def _is_no_mean_over_pairs(tree: Tree, config: cst.Call) -> bool:
    """Return whether a DPO loss is not a mean in which every pair of a micro-batch counts equally."""
    losses = passed(tree, config, "loss_type")
    named = losses is not None and _UNLIKE_PAIRS.search(tree.text(tree.value(losses.value)))
    return bool(named) or constant(tree, config, "rpo_alpha") is not None


def _cannot_pad(training: Training, config: cst.Call) -> bool:
    """Return whether a plain trainer cannot pad and has a batch of 1: its default collator stacks rows."""
    tree = training.tree
    alone = constant(tree, config, "per_device_train_batch_size") in (1, "1")
    padding = ("data_collator", "processing_class", "tokenizer")

    def may_take_it(trainer: cst.Call) -> bool:
        given = argument(trainer, "args", 1)
        made = None if given is None else tree.value(given.value)
        return made is config or made not in training.arguments

    return alone and any(
        name in ("Trainer", "Seq2SeqTrainer") and may_take_it(call) and not any(keyword(call, each) for each in padding)
        for call, name in zip(training.trainers, training.trainer_classes, strict=True)
    )


def _defines(tree: Tree, name: str) -> bool:
    """Return whether the notebook defines or assigns a function or method of this name."""
    return bool(tree.setting(name)) or any(each.name.value == name for each in tree.live(cst.FunctionDef))
