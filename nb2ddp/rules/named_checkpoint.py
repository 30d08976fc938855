"""DDP215: A checkpoint of the notebook's own training, named by a step that another job may not have, gets a warning.

`checkpoint-125` is the last step of an epoch, or of the training, for the notebook's rows and batch. Where the job's
processes cannot share the batch equally, an epoch takes fewer steps, and the folder has another name: the script would
stop there after the training. A step that `save_steps` or `max_steps` gives is the same in all jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.facts.texts import filled
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.arguments import constant, passed
from nb2ddp.syntax.tree import Tree

_CHECKPOINT = re.compile(r"(?:(?P<folder>.*)/)?checkpoint-(?P<step>\d+)/?")
#: transformers' default.
_SAVE_STEPS = 500
_MESSAGE = (
    "{} is named by a step of the notebook's training, and the job's last step may be another: take the last"
    " checkpoint, transformers.trainer_utils.get_last_checkpoint({})"
)


def find(program: Program) -> Iterator[Finding]:
    tree, training = program.tree, program.training
    begin = min((tree.span(event)[1] for event in training.events), default=len(tree.source))
    folders = {
        PurePosixPath(folder): config
        for config in training.arguments
        if isinstance(folder := constant(tree, config, "output_dir"), str)
    }
    for node, text in _texts(tree):
        named = _CHECKPOINT.fullmatch(text)
        if named is None or tree.start(node) < begin:
            continue
        config = folders.get(PurePosixPath(named["folder"] or "."))
        if config is not None and not _is_certain(tree, config, int(named["step"])):
            folder = named["folder"] or "."
            yield Finding(node, _MESSAGE.format(f"checkpoint-{named['step']}", f'"{folder}"'))


def _texts(tree: Tree) -> Iterator[tuple[cst.CSTNode, str]]:
    """The strings of live code, with constants in the place of f-strings' names."""
    for string in tree.live(cst.SimpleString):
        if "checkpoint-" in string.value:
            yield string, tree.content(string)
    for each in tree.live(cst.FormattedString):
        yield each, filled(tree, "".join(map(tree.text, each.parts)))


def _is_certain(tree: Tree, config: cst.Call, step: int) -> bool:
    """True for a step that a training saves on any number of processes, or may save, as far as its arguments tell."""
    most, strategy = passed(tree, config, "max_steps"), constant(tree, config, "save_strategy")
    last = None if most is None or tree.text(most.value) == "-1" else tree.literal(most.value)
    every = _SAVE_STEPS if (given := constant(tree, config, "save_steps")) is None else given
    if ... in (last, strategy) or not isinstance(every, int) or step == last:
        return True
    return strategy in (None, "steps") and step % max(every, 1) == 0


_TRAINED = """\
from trl import SFTConfig, SFTTrainer
trainer = SFTTrainer(model, args = SFTConfig(output_dir = "outputs", num_train_epochs = 1))
trainer.train()
"""
_LOAD = 'model = PeftModel.from_pretrained(base, "outputs/checkpoint-125")\n'

RULE = Rule(
    name="checkpoint-of-a-step",
    find=find,
    severity=Severity.WARNING,
    also_alone=True,
    examples=(
        Example(_TRAINED + _LOAD, reported=True),
        Example(
            'folder = "./outputs"\n'
            + _TRAINED.replace("num_train_epochs = 1", "max_steps = -1")
            + 'path = f"{folder}/checkpoint-125"\n',
            reported=True,
        ),
        Example(_TRAINED + 'trainer.train(resume_from_checkpoint = "outputs/checkpoint-125")\n', reported=True),
        Example(_TRAINED.replace("train()", 'train(resume_from_checkpoint = "outputs/checkpoint-125")')),
        Example(_TRAINED.replace("num_train_epochs = 1", "max_steps = 125") + _LOAD),
        Example(_TRAINED.replace("num_train_epochs = 1", "save_steps = 25") + _LOAD),
        Example(_TRAINED + _LOAD.replace("125", "500")),
        Example(_TRAINED + _LOAD.replace("outputs", "theirs")),
        Example(_TRAINED + 'print("loads checkpoint-125")\n'),
    ),
)
