"""The kind of model that a notebook trains, as far as it matters for DDP."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

import libcst as cst

from nb2ddp.facts.flow import called_as, makers, reached, returned
from nb2ddp.facts.values import values
from nb2ddp.syntax.arguments import constant, passed
from nb2ddp.syntax.tree import Tree, argument, keyword

#: Calls that load a model; never a tokenizer, processor or config.
_LOADER = re.compile(
    r"(unsloth(\.\w+)*\.Fast\w*(Model|Transformer)"
    r"|(transformers|peft|trl|unsloth)(\.\w+)*\.(Auto\w*Model\w*|\w+(For[A-Z]\w+|LMHeadModel\w*|Model))"
    r"|diffusers(\.\w+)*\.\w+(Pipeline|Model))\.from_pretrained"
)
#: Device maps that split a model over the available GPUs, because one GPU may not hold it.
SPLITTING = frozenset({"balanced", "balanced_low_0", "sequential", "unsloth"})
_PLANS = ("max_memory", "device_map_planner_kwargs")
_NO_WEIGHTS = re.compile(r"\.(PeftModel\w*|\w*(Tokenizer|Processor|Config|FeatureExtractor)\w*)\.from_pretrained$")
#: Calls that take a model already placed on a device, unless they have a device map.
_TAKES_MODEL = re.compile(r"transformers\.pipeline|peft(\.\w+)*\.PeftModel\w*\.from_pretrained")

#: Heads that no checkpoint of a language model contains.
_CLASSIFIER = re.compile(r"For(\w*Classification|QuestionAnswering|MultipleChoice)\b")

#: The number of parameters in a model's name, in billions: `Llama-3.1-8B`, `Mixtral-8x7B`.
_PARAMETERS = re.compile(r"(?<![A-Za-z\d.])(?:(?P<experts>\d+)x)?(?P<billions>\d+(?:\.\d+)?)b(?![A-Za-z])", re.I)
_QUANTIZED = re.compile(r"4-?bit|gptq|awq|mxfp4|gpt-?oss", re.I)


#: Names of dense text models for which Unsloth has specific classes: llama, mistral, gemma 1 and 2, qwen2 and qwen3,
#: and models that its uploads convert to these: Phi-3, Phi-3.5 and Phi-4 (mapper.py of 2026.10.9 uses the uploads
#: instead of Microsoft's), but not Phi-4-mini, Phi-4-reasoning and models without an upload: Phi-3-mini-128k.
_OWN_CLASS = re.compile(
    r"(?i)llama|mistral|ministral|zephyr|(?<![a-z])(code|shield)?gemma(-1\.1|-?2)?-\d+b|"
    r"qwen-?(1\.5|2|2\.5|3)(?![.\d])|deepseek-r1-distill|"
    r"phi-3(\.5)?-(mini|medium)-(4k|instruct)|phi-?4(?![-_](mini|reasoning|multimodal))|smollm2|yi-\d"
)
#: Options with which `FastLanguageModel` passes any model to the general class.
_GENERAL = ("full_finetuning", "load_in_8bit", "qat_scheme")


class ModelKind(Enum):
    """The kind of a model. It tells whether every trainable weight gets a gradient in every step."""

    DENSE_TEXT = "dense text"
    VISION = "vision"
    AUDIO = "audio"
    MIXTURE_OF_EXPERTS = "mixture-of-experts"
    ENCODER_DECODER = "encoder-decoder"
    ENCODER = "encoder"
    UNKNOWN = "unknown"


#: Patterns for names of models and their classes, in any case. The first match decides.
_KINDS = {
    ModelKind.MIXTURE_OF_EXPERTS: r"moe|mixtral|gpt-?oss|\ba\d+(\.\d+)?b\b|[-_]a\d+(\.\d+)?b\b|deepseek-v[23]|llama-4"
    r"|olmoe|glm.*(air|flash)|qwen3[._]?[56].*(35b|122b|397b)|granite-4.*-h-(tiny|small)|nemotron.*-a\d",
    ModelKind.AUDIO: r"whisper|csm|audio|speech|wav2vec",
    ModelKind.VISION: r"[-_]vl\b|[-_]vl[-_]|vision|pixtral|llava|gemma-?3n|gemma-?4|gemma-3-(4|12|27)b|ocr"
    r"|qwen3[._][56]|idefics|smolvlm|internvl|mistral-small-3|magistral|ministral-3|muse|diffusion|ImageTextToText",
    ModelKind.ENCODER_DECODER: r"\bt5|flan|bart\b|pegasus|marian|seq2seq",
    ModelKind.ENCODER: r"(?-i:SentenceTransformer|Classification)",
}


def loads(tree: Tree) -> list[cst.Call]:
    """Return the live calls that load a model's weights, or prepare to (`functools.partial`), in order."""
    return [call for call in tree.live(cst.Call) if is_load(tree, call)]


def is_load(tree: Tree, call: cst.Call) -> bool:
    """Return whether a call loads a model: `X.from_pretrained(...)`, also through `getattr` or another name."""
    if _TAKES_MODEL.fullmatch(tree.qualified(call.func)):
        return keyword(call, "device_map") is not None
    loader = f"{_class(tree, call.args[0].value if is_partial(tree, call) else call.func)}.from_pretrained"
    return bool(_LOADER.fullmatch(loader)) and not _NO_WEIGHTS.search(loader)


def plans(tree: Tree, call: cst.Call) -> list[tuple[str, str]]:
    """Return the arguments of a load that set how much of a model each GPU gets, with their texts."""
    given = [(name, plan) for name in _PLANS if (plan := keyword(call, name)) is not None]
    texts = [(name, tree.text(plan.value)) for name, plan in given]
    return [(name, text) for name, text in texts if not text.startswith("None")]


def is_split(tree: Tree, call: cst.Call) -> bool:
    """Return whether a load splits its model over the GPUs that one process sees."""
    return bool(plans(tree, call)) or constant(tree, call, "device_map") in SPLITTING


def starts_engine(tree: Tree, load: cst.Call) -> bool:
    """Return whether a load may start a vLLM engine in its process."""
    return constant(tree, load, "fast_inference") not in (None, False)


def is_partial(tree: Tree, node: cst.CSTNode) -> bool:
    """Return whether a node is a call of `functools.partial`."""
    return isinstance(node, cst.Call) and tree.qualified(node.func) == "functools.partial" and bool(node.args)


def _class(tree: Tree, node: cst.BaseExpression) -> str:
    """Return the class whose `from_pretrained` an expression is, also through `functools.partial`; empty for none."""

    def prepared(node: cst.BaseExpression) -> cst.BaseExpression | None:
        value = tree.value(node)
        return value.args[0].value if isinstance(value, cst.Call) and is_partial(tree, value) else None

    owner, name = tree.member(tree.value(tree.followed(node, prepared)[-1])) or (node, "")
    return tree.family(tree.value(owner)) if name == "from_pretrained" else ""


def model_name(tree: Tree, load: cst.Call) -> str:
    """Return the names that a load may pass for its model, if the notebook writes them out, joined by blanks."""
    named = (passed(tree, load, name) for name in ("model_name", "pretrained_model_name_or_path"))
    given = argument(load, "model_name", 0) or next(filter(None, named), None)

    def parts(node: cst.CSTNode) -> Sequence[cst.CSTNode]:  # none for `cfg.name` and `cfg[0]`
        if not isinstance(node, cst.Name):
            return [] if isinstance(node, (cst.Attribute, cst.Subscript)) else node.children
        value, param = tree.value(node), tree.definition(node)
        if value is not node:
            return [value]
        if isinstance(param, cst.Param):
            return [*filter(None, [param.default]), *values(tree, node)]
        return tree.backward_slice(node)[1:2]  # the values of a loop

    found: list[cst.CSTNode] = reached([] if given is None else [given.value], parts)
    strings = [part for part in found if isinstance(part, (cst.SimpleString, cst.FormattedStringText))]
    return " ".join(text for part in strings for text in tree.texts(part))


def has_own_class(tree: Tree, load: cst.Call) -> bool:
    """Return whether Unsloth loads a dense text model with a specific class, such as `FastLlamaModel`.

    `FastLanguageModel.from_pretrained` in unsloth/models/loader.py, 2026.10.9, passes all others to `FastModel`.
    """
    options = [constant(tree, load, name) for name in _GENERAL]
    is_known = _OWN_CLASS.search(model_name(tree, load)) and _kind(tree, load) is ModelKind.DENSE_TEXT
    is_theirs = tree.qualified(load.func).startswith("unsloth.FastLanguageModel.")
    return is_theirs and bool(is_known) and all(value in (None, False) for value in options)


def is_general(tree: Tree, load: cst.Call) -> bool:
    """Return whether Unsloth loads a model with its general class, which compiles whole blocks."""
    return tree.qualified(load.func).startswith("unsloth.") and not has_own_class(tree, load)


def weights(tree: Tree, load: cst.Call) -> float:
    """Return the least memory that a model's weights take, in GB, by its name and how it is loaded; 0 if unknown."""
    name = model_name(tree, load)
    sizes = [int(size["experts"] or 1) * float(size["billions"]) for size in _PARAMETERS.finditer(name)]
    if not sizes:
        return 0.0
    options = {field for field in ("full_finetuning", "load_in_16bit", "load_in_8bit") if constant(tree, load, field)}
    in_4_bits = constant(tree, load, "load_in_4bit")
    if "full_finetuning" in options:  # it switches the others off in Unsloth 2026.10.9
        options, in_4_bits = {"full_finetuning"}, False
    if in_4_bits is None:  # Unsloth's default
        in_4_bits = tree.qualified(load.func).startswith("unsloth.") and not options
    is_small = in_4_bits is not False or bool(_QUANTIZED.search(name))
    return sizes[0] * (0.5 if is_small else 1.0 if "load_in_8bit" in options or "fp8" in name.lower() else 2.0)


def has_new_head(tree: Tree, load: cst.Call) -> bool:
    """Return whether a load adds a new head to its model: that of a classifier or a reward model."""
    described = tree.text(load) + _auto_model(tree, load)
    return keyword(load, "num_labels") is not None or bool(_CLASSIFIER.search(described))


def has_lora(tree: Tree) -> bool:
    """Return whether the notebook makes adapters."""
    return any(
        called_as(tree, call) == "get_peft_model" or keyword(call, "peft_config") for call in tree.live(cst.Call)
    )


def trains_lora(tree: Tree, loads: Sequence[cst.Call]) -> bool:
    """Return whether adapters are trained: new ones, or those that Unsloth may find if it makes one of these loads."""
    by_unsloth = any(tree.qualified(call.func).startswith("unsloth.") for call in loads)
    return has_lora(tree) or (by_unsloth and not trains_whole(tree, loads))


def trains_whole(tree: Tree, loads: Sequence[cst.Call]) -> bool:
    """Return whether one of these loads may set full finetuning."""
    options = [given for call in loads if (given := passed(tree, call, "full_finetuning")) is not None]
    return any(tree.literal(given.value) is not False for given in options)


def model_kind(tree: Tree, trainers: Sequence[cst.Call], loads: Sequence[cst.Call]) -> ModelKind:
    """Return the kind of the model that trainers get; if none of the loads makes it, that of the first load."""
    calls = [call for call in loads if not is_partial(tree, call)] or loads
    return next((_kind(tree, call) for call in trained_loads(tree, trainers, calls)), ModelKind.UNKNOWN)


def trained_loads(tree: Tree, trainers: Sequence[cst.Call], loads: Sequence[cst.Call]) -> list[cst.Call]:
    """Return the loads that make the models that trainers get; all loads if none does."""
    models = [model.value for call in trainers if (model := argument(call, "model", 0)) is not None]
    calls = reached(
        [call for model in models for value in values(tree, model) for call in makers(tree, value)],
        lambda call: [maker for value in returned(tree, tree.definition(call.func)) for maker in makers(tree, value)],
    )
    return [call for call in loads if call in calls] or [*loads]


def _auto_model(tree: Tree, load: cst.Call) -> str:
    """Return the class of model that a load names in addition to its loader, after a blank; empty for none."""
    given = keyword(load, "auto_model")
    return f" {tree.text(tree.value(given.value))}" if given is not None else ""


def _kind(tree: Tree, load: cst.Call) -> ModelKind:
    """Return the kind of the model that a call loads, by its loader's class and by its name."""
    loader = _class(tree, load.func) or tree.qualified(load.func)
    name = model_name(tree, load)
    prepared = tree.value(load.func)
    parts = [loader.rsplit(".", 1)[-1], name, _auto_model(tree, load)]
    described = " ".join([*parts, tree.text(prepared) if is_partial(tree, prepared) else ""])
    for kind, pattern in _KINDS.items():
        if re.search(pattern, described, re.IGNORECASE):
            return kind
    is_text = name or "FastLanguageModel" in loader or "ForCausalLM" in described
    return ModelKind.DENSE_TEXT if is_text else ModelKind.UNKNOWN
