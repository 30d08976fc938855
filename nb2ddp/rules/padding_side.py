"""DDP207: A classifier like BERT that pads on the left gets a warning.

Unsloth sets the tokenizers that it loads to pad on the left, for generation (`padding_side`, 2026.10.9). The head of a
model like BERT reads the first token, which is then padding in all rows but the longest of the micro-batch. Eight rows
on each rank instead of sixteen change the first loss from 1.473 to 1.504, on one GPU too; padded on the right it is
1.446 in both.

A notebook that sets the padding side itself gets no warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nb2ddp.facts.loading import has_new_head, model_name
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.tree import Tree

#: Encoders whose heads read the first token, or whose positions count from it (ModernBERT's takes a mean of all).
_READS_FIRST_TOKEN = re.compile(r"(?<!modern)bert|electra|mpnet|ernie|longformer|big-?bird", re.IGNORECASE)
_MESSAGE = (
    "Unsloth's tokenizer pads on the left, and this kind of model reads the first token: losses depend on which rows"
    ' share a micro-batch, and so on the number of processes; set tokenizer.padding_side = "right" after loading'
)


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    if _padding_is_chosen(tree):
        return
    for call in program.loads:
        by_unsloth = tree.qualified(call.func).startswith("unsloth.")
        if by_unsloth and has_new_head(tree, call) and _READS_FIRST_TOKEN.search(model_name(tree, call)):
            yield Finding(call, _MESSAGE)


def _padding_is_chosen(tree: Tree) -> bool:
    """True where the notebook pads on another side than the left, or every row to one length."""
    sides = [*(assign.value for assign in tree.setting("padding_side")), *tree.given("padding_side")]
    to_one_length = "max_length" in map(tree.literal, tree.given("padding"))
    return to_one_length or any(tree.literal(side) != "left" for side in sides)


_LOAD = """\
from unsloth import FastModel
from transformers import AutoModelForSequenceClassification
model, tokenizer = FastModel.from_pretrained(
    "google-bert/bert-base-uncased", auto_model = AutoModelForSequenceClassification, num_labels = 6)
"""

RULE = Rule(
    name="padded-on-the-left",
    find=find,
    severity=Severity.WARNING,
    examples=(
        Example(_LOAD, reported=True),
        Example(_LOAD + 'tokenizer.padding_side = "right"\n'),
        Example(_LOAD + 'dataset = dataset.map(lambda rows: tokenizer(rows["text"], padding = "max_length"))\n'),
        Example(_LOAD.replace("google-bert/bert-base-uncased", "unsloth/Llama-3.2-1B")),
        Example(_LOAD.replace("google-bert/bert-base-uncased", "answerdotai/ModernBERT-base")),
    ),
)
