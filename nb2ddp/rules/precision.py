"""DDP214: A fixed `fp16 = True` or `bf16 = True` becomes what the GPU has, where Unsloth loads the model so.

Without a `dtype`, Unsloth loads a model in bfloat16 on GPUs that have it, and in float16 on others, such as a T4.
`fp16 = True` then ends the script on an A100 or H100 ("Model is in bfloat16 precision but you want to use float16", or
"At most one of fp16 and bf16 can be True"), and `bf16 = True` ends it on a T4. A model that the notebook loads in
float16 stops there too where the fields ask the GPU: they become the model's. Any other fixed `dtype` keeps its fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.arguments import constant, is_closed, passed, set_argument
from nb2ddp.syntax.edits import Edit, Wrap
from nb2ddp.syntax.tree import Tree, argument, keyword

_SUPPORTED = "is_bfloat16_supported"
#: How code asks for bfloat16, by Unsloth's function or torch's.
_ASKS = re.compile(r"is_bf(loat)?16_supported")
_STOPS = "{} = True stops on a GPU {} bfloat16, by which Unsloth chooses the model's dtype; the script asks the GPU"
_IN_FLOAT16 = (
    "Unsloth refuses to train a float16 model with bf16, which a GPU with bfloat16 turns on here; the script has fp16"
)


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in program.training.arguments if program.trains_with_unsloth else ():
        loads = _of_unsloth(tree, _loads(program, call))
        if not loads or not is_closed(tree, call):
            continue
        fixed = {name for name in ("fp16", "bf16") if constant(tree, call, name) is True}
        if fixed and all(_follows_gpu(tree, load) for load in loads):
            has_one = _supported(tree, call)
            values = {"fp16": f"not {has_one}", "bf16": has_one}
            edits = [_set(tree, call, name, value) for name, value in values.items() if _is_set(tree, call, name)]
            said = _STOPS.format(*(("fp16", "with") if "fp16" in fixed else ("bf16", "without")))
            yield Finding(call, said, tuple(edits))
        elif _asks_gpu(tree, call) and _is_in_float16(program):
            values = {"fp16": "True", "bf16": "False"}
            yield Finding(call, _IN_FLOAT16, tuple(_set(tree, call, name, value) for name, value in values.items()))


def _is_in_float16(program: Program) -> bool:
    """Whether all models that Unsloth loads before the end are in float16, whatever the GPU."""
    tree = program.tree
    dtypes = [(load, _dtype(tree, load)) for load in _of_unsloth(tree, _early(program))]
    return bool(dtypes) and all(
        dtype is not None
        and tree.text(dtype) in ("torch.float16", "torch.half")
        and tree.is_certain(dtype)  # else it may follow the GPU
        and tree.is_certain(load)
        for load, dtype in dtypes
    )


def _early(program: Program) -> list[cst.Call]:
    """The loads of models before the end of training."""
    return [load for load in program.loads if program.training.is_before_end(load)]


def _of_unsloth(tree: Tree, loads: list[cst.Call]) -> list[cst.Call]:
    return [load for load in loads if tree.qualified(load.func).startswith("unsloth.")]


def _loads(program: Program, arguments: cst.Call) -> list[cst.Call]:
    """The loads of the models that are trained with some arguments; every load before the end where not all are known.

    Several may lead to one model: a base model, and what is made of it.
    """
    early = _early(program)
    trainers = [each for each in program.training.trainers if arguments in _calls(program.tree, each)]
    models = [argument(trainer, "model", 0) for trainer in trainers]
    loaded = [_calls(program.tree, model.value).intersection(early) if model else () for model in models]
    return [load for each in loaded for load in each] if loaded and all(loaded) else early


def _calls(tree: Tree, node: cst.CSTNode) -> set[cst.Call]:
    """The calls that a value is made of."""
    return {call for part in tree.made_of(node) for call in tree.within(part, cst.Call)}


def _follows_gpu(tree: Tree, load: cst.Call) -> bool:
    """True for a load whose dtype is the best that the GPU has."""
    dtype = _dtype(tree, load)
    return is_closed(tree, load) and (dtype is None or bool(_ASKS.search(tree.text(dtype))))


def _dtype(tree: Tree, load: cst.Call) -> cst.BaseExpression | None:
    given = passed(tree, load, "dtype") or passed(tree, load, "torch_dtype") or argument(load, "dtype", 2)
    return None if given is None or tree.literal(given.value) is None else tree.value(given.value)


def _asks_gpu(tree: Tree, call: cst.Call) -> bool:
    """True for arguments that say themselves that bf16 is on where the GPU has bfloat16."""
    given = keyword(call, "bf16")
    return given is not None and bool(re.fullmatch(rf"[\w.]*{_ASKS.pattern}\(\)", tree.text(tree.value(given.value))))


def _is_set(tree: Tree, call: cst.Call, name: str) -> bool:
    """True for a field to write: one that is missing or a constant, not one that is worked out."""
    return constant(tree, call, name) is not ...


def _set(tree: Tree, call: cst.Call, name: str, value: str) -> Edit:
    """Pass a field; one that is missing stands above the other, or in front of it, and is written as that is."""
    other = keyword(call, "bf16" if name == "fp16" else "fp16")
    if other is None or passed(tree, call, name) is not None:
        return set_argument(tree, call, name, value)
    equal = tree.source[tree.start(other) + len(name) : tree.start(other.value)]
    lead = tree.indentation(other)
    return Wrap(other, f"{name}{equal}{value}," + (" " if lead.strip() else f"\n{lead}"), "")


def _supported(tree: Tree, call: cst.Call) -> str:
    """A call of Unsloth's function, by the notebook's own name for it."""
    binding = tree.bound(_SUPPORTED, call)
    is_theirs = binding is not None and (binding.imported or "").startswith("unsloth.")
    return f"{_SUPPORTED}()" if is_theirs else f"unsloth.{_SUPPORTED}()"


_LOAD = """\
from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained(name, dtype = None, device_map = local_rank)
"""
_TRAIN = "trainer = SFTTrainer(model, args = args)\ntrainer.train()\n"
_TO_FLOAT = _LOAD.replace("None", "torch.float16")
_BY_GPU = _LOAD.replace("None", "torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16")
_OTHER = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
base = AutoModelForCausalLM.from_pretrained("gpt2", device_map = local_rank)
other = Trainer(base, args = TrainingArguments(fp16 = True))
other.train()
"""
_IMPORT = "from unsloth import is_bfloat16_supported\n"

RULE = Rule(
    name="fixed-precision",
    find=find,
    examples=(
        Example(
            _LOAD + "args = SFTConfig(fp16 = True, seed = 1)\n" + _TRAIN,
            _LOAD
            + "args = SFTConfig(bf16 = unsloth.is_bfloat16_supported(), "
            + "fp16 = not unsloth.is_bfloat16_supported(), seed = 1)\n"
            + _TRAIN,
        ),
        Example(
            _LOAD + "args = SFTConfig(\n    seed = 1,\n    bf16 = True, # an A100\n    tf32 = True,\n)\n" + _TRAIN,
            _LOAD
            + "args = SFTConfig(\n    seed = 1,\n    fp16 = not unsloth.is_bfloat16_supported(),\n"
            + "    bf16 = unsloth.is_bfloat16_supported(), # an A100\n    tf32 = True,\n)\n"
            + _TRAIN,
        ),
        Example(
            _IMPORT + _LOAD + "args = SFTConfig(fp16 = True, bf16 = is_bfloat16_supported())\n" + _TRAIN,
            _IMPORT
            + _LOAD
            + "args = SFTConfig(fp16 = not is_bfloat16_supported(), bf16 = is_bfloat16_supported())\n"
            + _TRAIN,
        ),
        Example(
            _IMPORT + _BY_GPU + "args = SFTConfig(fp16 = False, bf16 = True)\n" + _TRAIN,
            _IMPORT
            + _BY_GPU
            + "args = SFTConfig(fp16 = not is_bfloat16_supported(), bf16 = is_bfloat16_supported())\n"
            + _TRAIN,
        ),
        Example(
            _LOAD
            + "model = FastLanguageModel.get_peft_model(model, r = 16)\n"
            + "trainer = SFTTrainer(model, args = SFTConfig(bf16 = True, fp16 = False))\ntrainer.train()\n"
            + _OTHER,
            _LOAD
            + "model = FastLanguageModel.get_peft_model(model, r = 16)\n"
            + "trainer = SFTTrainer(model, args = SFTConfig(bf16 = unsloth.is_bfloat16_supported(), "
            + "fp16 = not unsloth.is_bfloat16_supported()))\ntrainer.train()\n"
            + _OTHER,
        ),
        Example(  # whose model nothing tells
            _LOAD + "trainer = make(SFTConfig(fp16 = True))\ntrainer.train()\n" + _OTHER,
            _LOAD
            + "trainer = make(SFTConfig(bf16 = unsloth.is_bfloat16_supported(), "
            + "fp16 = not unsloth.is_bfloat16_supported()))\ntrainer.train()\n"
            + _OTHER,
        ),
        Example(
            _IMPORT
            + _TO_FLOAT
            + "args = SFTConfig(fp16 = not is_bfloat16_supported(), bf16 = is_bfloat16_supported())\n"
            + _TRAIN,
            _IMPORT + _TO_FLOAT + "args = SFTConfig(fp16 = True, bf16 = False)\n" + _TRAIN,
        ),
        Example(
            "dtype = torch.half\n"
            + _LOAD.replace("None", "dtype")
            + "has_one = torch.cuda.is_bf16_supported()\nargs = SFTConfig(bf16 = has_one)\n"
            + _TRAIN,
            "dtype = torch.half\n"
            + _LOAD.replace("None", "dtype")
            + "has_one = torch.cuda.is_bf16_supported()\nargs = SFTConfig(fp16 = True, bf16 = False)\n"
            + _TRAIN,
        ),
        Example(
            "if torch.cuda.is_bf16_supported():\n    dtype = torch.bfloat16\nelse:\n    dtype = torch.float16\n"
            + _LOAD.replace("None", "dtype")
            + "args = SFTConfig(bf16 = torch.cuda.is_bf16_supported())\n"
            + _TRAIN,
        ),
        Example(
            _TO_FLOAT
            + "if torch.cuda.is_bf16_supported():\n    "
            + _LOAD.splitlines(keepends=True)[2].replace("None", "torch.bfloat16")
            + "args = SFTConfig(bf16 = torch.cuda.is_bf16_supported())\n"
            + _TRAIN
        ),
        Example(_LOAD + _OTHER),
        Example(_TO_FLOAT + "args = SFTConfig(fp16 = True)\n" + _TRAIN),
        Example(_LOAD + "args = SFTConfig(fp16 = not torch.cuda.is_bf16_supported())\n" + _TRAIN),
        Example(_LOAD + "args = SFTConfig(fp16 = False)\n" + _TRAIN),
        Example(_LOAD.replace("dtype = None", "**settings") + "args = SFTConfig(fp16 = True)\n" + _TRAIN),
    ),
)
