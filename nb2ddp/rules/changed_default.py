"""DDP213: What transformers 5 and datasets 4 changed is written out, where the notebook relies on the old way.

`apply_chat_template` returns tokens in transformers 4 and a dictionary since 5 (`return_dict`): `.shape` and `[0]` fail
there, and `len` counts the keys. `generate(input_ids = ...)` takes the dictionary only where Unsloth has a class of its
own for the model, such as Llama's. `TrainingArguments` report to every installed tracker in 4, and to none since 5
(`report_to`; 4.56.2 and 5.17.0 compared). `rows["messages"]` is a list in datasets 3 and a `Column` since 4, which
`apply_chat_template` takes for one conversation.

A notebook that asks for the old version, or for the new one, keeps its calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from nb2ddp.facts.flow import reached, returned
from nb2ddp.facts.loading import ModelKind, has_own_class, trained_loads
from nb2ddp.facts.program import Program
from nb2ddp.facts.releases import asked_for, taken, uses_unsloth
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.arguments import constant, is_closed, passed
from nb2ddp.syntax.edits import SetKeyword, Wrap
from nb2ddp.syntax.tree import Tree, argument
from nb2ddp.versions import tables

_CHANGED = Version("5")
_TRACKERS = ("wandb", "mlflow", "comet_ml", "neptune", "clearml", "swanlab", "trackio")
#: What tokens and a dictionary of them both have.
_OF_BOTH = frozenset({"to", "cuda"})
_OF_DICTIONARY = frozenset({"input_ids", "attention_mask", "items", "keys", "values", "get", "data", "pop"})
#: What makes a data set of the notebook's own rows, or of others.
_MAKERS = re.compile(r"datasets\.(Dataset\.from_\w+|concatenate_datasets|interleave_datasets)")
_TAKES_TOKENS = frozenset({"len", "generate", "decode", "batch_decode"})


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    loads = trained_loads(tree, program.training.trainers, program.loads) or program.loads
    takes_both = bool(loads) and all(has_own_class(tree, load) for load in loads)
    templated = [call for call in tree.live(cst.Call) if tree.text(call.func).endswith(".apply_chat_template")]
    if SpecifierSet(asked_for(program.text, "datasets")).contains(tables()["newest"]["datasets"]):
        for call in templated:
            given = argument(call, "conversation", 0)
            if given is not None and _is_column(tree, given.value):
                said = "a column is no list since datasets 4, and would be taken for one conversation"
                yield Finding(call, f"{said}; the script makes a list of it", (Wrap(given.value, "list(", ")"),))
    releases = taken("transformers", asked_for(program.text, "transformers"), uses_unsloth(tree))
    if not releases or not Version(releases[0]) < _CHANGED <= Version(releases[-1]):
        return
    trackers = sorted({tree.qualified(call.func).split(".")[0] for call in tree.live(cst.Call)} & {*_TRACKERS})
    for call in tree.live(cst.Call):
        if call in templated and _is_of_tokens(tree, call, takes_both, program.model_kind is ModelKind.VISION):
            said = "apply_chat_template returns a dictionary since transformers 5; the script asks it for the tokens"
            yield Finding(call, said, (SetKeyword(call, "return_dict", "False"),))
        if trackers and _leaves_trackers_to_the_default(tree, call):
            names = ", ".join(f'"{name}"' for name in trackers)
            names = names if len(trackers) == 1 else f"[{names}]"
            said = f"transformers 5 reports to no tracker by default; the script says report_to = {names}"
            yield Finding(call, said, (SetKeyword(call, "report_to", names),))


def _is_column(tree: Tree, node: cst.BaseExpression) -> bool:
    """Whether an expression is a column of a data set, loaded or made, and perhaps mapped: `rows["messages"]`."""
    key = node.slice[0].slice if isinstance(node, cst.Subscript) else None
    if not isinstance(key, cst.Index) or not isinstance(tree.literal(key.value), str):
        return False
    rows = tree.value(cst.ensure_type(node, cst.Subscript).value)
    sources = reached([rows], lambda made: _made_from(tree, made))
    return any(isinstance(source, cst.Call) and _makes_rows(tree, source) for source in sources)


def _makes_rows(tree: Tree, call: cst.Call) -> bool:
    """Whether a call gives one data set, not a dictionary of them."""
    is_split = tree.text(call.func).endswith("load_dataset") and passed(tree, call, "split") is not None
    return is_split or _MAKERS.fullmatch(tree.qualified(call.func)) is not None


def _made_from(tree: Tree, made: cst.BaseExpression) -> list[cst.BaseExpression]:
    """What a method or a function makes a data set from: its owner, or its first argument, and what it returns."""
    if not isinstance(made, cst.Call):
        return []
    owner = [made.func.value] if isinstance(made.func, cst.Attribute) else []
    first = [each.value for each in made.args[:1]]
    return list(map(tree.value, [*(owner or first), *returned(tree, tree.definition(made.func))]))


def _leaves_trackers_to_the_default(tree: Tree, call: cst.Call) -> bool:
    is_one = tree.family(call.func).endswith(("transformers.TrainingArguments", "unsloth.UnslothTrainingArguments"))
    return is_one and is_closed(tree, call) and passed(tree, call, "report_to") is None


def _is_of_tokens(tree: Tree, call: cst.Call, takes_both: bool, is_processor: bool) -> bool:
    """Whether what a template gives is used as tokens, and nowhere as a dictionary of them.

    Args:
        tree: the notebook.
        call: of the template.
        takes_both: `generate` takes either as its `input_ids`: `unsloth_fast_generate` (models/llama.py, 2026.10.9) of
            models that have a class of their own does; `unsloth_base_fast_generate` (models/vision.py) takes tokens.
        is_processor: the template is a processor's, which gives text by default (`ProcessorMixin`, 4.56.2 and 5.17.0).
    """
    if constant(tree, call, "tokenize") is False or passed(tree, call, "return_dict") is not None:
        return False
    kinds = {_kind(tree, use, takes_both, is_processor) for use in _uses(tree, call)}
    return "tokens" in kinds and "dictionary" not in kinds


def _uses(tree: Tree, node: cst.CSTNode) -> list[cst.CSTNode]:
    """The value where it stands, or the uses of the name that it alone is bound to."""
    node = _moved(tree, node)
    assign = tree.parents[node]
    return [_moved(tree, use) for use in tree.bound_uses(assign)] if isinstance(assign, cst.Assign) else [node]


def _moved(tree: Tree, node: cst.CSTNode) -> cst.CSTNode:
    """What `.to(...)` and the like make of a value, or the value."""
    while isinstance(above := tree.parents[node], cst.Attribute) and above.attr.value in _OF_BOTH:
        node = tree.parents[above]
    return node


def _kind(tree: Tree, use: cst.CSTNode, takes_both: bool, is_processor: bool) -> str:
    above = tree.parents[use]
    if isinstance(above, cst.Attribute):
        return "dictionary" if above.attr.value in _OF_DICTIONARY else "tokens"
    if isinstance(above, cst.Subscript):
        return "dictionary" if any(tree.within(part, cst.SimpleString) for part in above.slice) else "tokens"
    if isinstance(above, cst.DictElement):
        return "" if is_processor else "tokens"
    if not isinstance(above, cst.Arg):
        return ""
    called = tree.parents[above]
    name = tree.text(called.func).rsplit(".", 1)[-1] if isinstance(called, cst.Call) else ""
    if above.star == "**":
        return "dictionary"
    if takes_both and above.keyword is not None and above.keyword.value == "input_ids":
        return ""
    return "tokens" if name in _TAKES_TOKENS else ""


_IMPORT = "from unsloth import FastLanguageModel\n"
_LLAMA, _PHI_MINI = (
    f'{_IMPORT}model, tokenizer = FastLanguageModel.from_pretrained("unsloth/{name}")\n'
    for name in ("Llama-3.2-1B", "Phi-4-mini-instruct")
)
_TEMPLATE = 'ids = tokenizer.apply_chat_template(messages, return_tensors = "pt").to("cuda")\n'
_ON_COLAB = 'import os\nif "COLAB_" in "".join(os.environ):\n    !pip install transformers==4.56.2\n'
_MAP = _IMPORT + 'rows = rows.map(lambda row: {"tokens": tokenizer.apply_chat_template(row["messages"])})\n'
_VISION = 'model, tokenizer = FastVisionModel.from_pretrained("unsloth/gemma-3-4b-it")\n'
_COLUMN = """\
from datasets import load_dataset
rows = load_dataset("a/b", split = "train")
rows = rows.map(clean)
texts = tokenizer.apply_chat_template(rows["messages"], tokenize = False)
"""
_MADE = """\
from datasets import Dataset
def build(texts):
    return Dataset.from_dict({"text": texts})
rows = build(texts)
texts = tokenizer.apply_chat_template(rows.map(clean)["messages"], tokenize = False)
"""
_ARGUMENTS = "import wandb\nfrom transformers import TrainingArguments\nwandb.login(key = KEY)\n"
_UNSLOTH_ARGUMENTS = "import wandb\nfrom unsloth import UnslothTrainingArguments\nwandb.login(key = KEY)\n"

RULE = Rule(
    name="changed-default",
    find=find,
    severity=Severity.NOTE,
    also_alone=True,
    examples=(
        Example(
            _IMPORT + _TEMPLATE + "length = ids.shape[1]\n",
            _IMPORT + _TEMPLATE.replace('"pt")', '"pt", return_dict = False)') + "length = ids.shape[1]\n",
        ),
        Example(_COLUMN, _COLUMN.replace('rows["messages"]', 'list(rows["messages"])')),
        Example(_MADE, _MADE.replace('rows.map(clean)["messages"]', 'list(rows.map(clean)["messages"])')),
        Example('!pip install "datasets>=3.4.1,<4.0.0"\n' + _COLUMN),
        Example(_COLUMN.replace('rows["messages"]', 'rows[0]["messages"]')),
        Example(_COLUMN.replace("rows = rows", "row = rows").replace(".map(clean)", "[0]").replace("rows[", "row[")),
        Example(_MAP, _MAP.replace('"])', '"], return_dict=False)')),
        Example(_IMPORT.replace("Language", "Vision") + _VISION + _MAP.removeprefix(_IMPORT)),
        Example(_IMPORT + _TEMPLATE + "model.generate(**ids)\n"),
        Example(_LLAMA + _TEMPLATE + "model.generate(input_ids = ids)\n"),
        Example(
            _PHI_MINI + _TEMPLATE + "model.generate(input_ids = ids)\n",
            _PHI_MINI + _TEMPLATE.replace('"pt")', '"pt", return_dict = False)') + "model.generate(input_ids = ids)\n",
        ),
        Example(_IMPORT + _TEMPLATE + 'length = ids["input_ids"].shape[1]\n'),
        Example("!pip install transformers==4.56.2\n" + _IMPORT + _TEMPLATE + "length = ids.shape[1]\n"),
        Example(
            _ON_COLAB + _IMPORT + _TEMPLATE + "length = ids.shape[1]\n",
            _ON_COLAB + _IMPORT + _TEMPLATE.replace('"pt")', '"pt", return_dict = False)') + "length = ids.shape[1]\n",
        ),
        Example("!pip install transformers==5.2.0\n" + _IMPORT + _TEMPLATE + "length = ids.shape[1]\n"),
        Example(_IMPORT + "text = tokenizer.apply_chat_template(messages, tokenize = False)\nprint(text[:9])\n"),
        Example(
            _ARGUMENTS + 'args = TrainingArguments(output_dir = "out")\n',
            _ARGUMENTS + 'args = TrainingArguments(output_dir = "out", report_to = "wandb")\n',
        ),
        Example(_ARGUMENTS + 'args = TrainingArguments(output_dir = "out", report_to = "none")\n'),
        Example(
            _UNSLOTH_ARGUMENTS + 'args = UnslothTrainingArguments(output_dir = "out")\n',
            _UNSLOTH_ARGUMENTS + 'args = UnslothTrainingArguments(output_dir = "out", report_to = "wandb")\n',
        ),
        Example('from transformers import TrainingArguments\nargs = TrainingArguments(output_dir = "out")\n'),
    ),
)
