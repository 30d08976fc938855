"""DDP204: gather in-batch negatives over all processes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import SetKeyword
from nb2ddp.syntax.tree import keyword

FIELD = "gather_across_devices"
#: Losses with this field (sentence_transformers/losses, version 5.1 and newer).
_GATHERING = re.compile(r"(Cached)?(MultipleNegatives(Symmetric)?RankingLoss|GISTEmbedLoss)")
#: Losses that compare the samples of one device's batch and cannot gather.
_LOCAL = re.compile(
    r"Batch(All|Hard|SemiHard|HardSoftMargin)TripletLoss|MegaBatchMarginLoss|ContrastiveTensionLossInBatchNegatives"
)


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in tree.of(cst.Call):
        name = tree.qualified(call.func)
        loss = name.rsplit(".", 1)[-1]
        if not name.startswith("sentence_transformers.") or not tree.is_live(call):
            continue
        if _GATHERING.fullmatch(loss) and keyword(call, FIELD) is None:
            yield Finding(
                call,
                f"{loss} takes its negatives from one device's part of the batch",
                edits=(SetKeyword(call, FIELD, "True"),),
            )
        elif _LOCAL.fullmatch(loss):
            yield Finding(
                call,
                f"{loss} compares the samples of one device's part of the batch, and cannot gather the others': more"
                " processes change the loss",
                severity=Severity.WARNING,
            )


RULE = Rule(
    code="DDP204",
    name="negatives-not-gathered",
    summary="Losses with in-batch negatives get `gather_across_devices = True` where they take it.",
    why="With a batch of 256 each sample has 255 negatives. Split over two processes it has 127, unless the embeddings"
    " are gathered: the loss itself would change with the number of GPUs (sentence-transformers 5.1 or newer).",
    find=find,
    examples=(
        Example(
            "from sentence_transformers.losses import MultipleNegativesRankingLoss\n"
            "loss = MultipleNegativesRankingLoss(model)\n",
            "from sentence_transformers.losses import MultipleNegativesRankingLoss\n"
            "loss = MultipleNegativesRankingLoss(model, gather_across_devices=True)\n",
        ),
        Example("from sentence_transformers.losses import CosineSimilarityLoss\nloss = CosineSimilarityLoss(model)\n"),
    ),
)
