"""Stand-ins for what Unsloth's CPU backend does not support, on transformers, PEFT and sentence-transformers.

What needs no GPU is still from Unsloth: chat templates, training on responses only, and helpers for preparing data.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import json
import os
import re
import sys
import types
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from . import versions
from .events import Program
from .hooks import after_import, attribute, wrap
from .log import Log
from .nodes import every
from .packages import Nothing

#: Arguments that the CPU backend refuses, or that need vLLM.
_FOR_GPU = frozenset("fast_inference load_in_4bit load_in_8bit unsloth_vllm_standby".split())
_WHOLE = ("embed_tokens", "lm_head")  #: trained in full, as with Unsloth, even if LoRA is asked for


def _as_processor(tokenizer: Any) -> Any:
    """Return a tokenizer with the interface of a processor, for a model that gets only texts."""
    base = type(tokenizer)

    def apply(self: Any, conversation: Any, **kwargs: Any) -> Any:
        return base.apply_chat_template(self, conversation, **{"tokenize": False, **kwargs})

    tokenizer.__class__ = type(base.__name__, (base,), {"apply_chat_template": apply})
    tokenizer.tokenizer = tokenizer
    return tokenizer


def _offered(name: str) -> str:
    """Return the name to load a model by: for a missing folder, an id, which has a stand-in."""
    is_missing = name.startswith(("/", "./", "../", "~")) and not os.path.exists(name)
    return f"local/{os.path.basename(os.path.normpath(name))}" if is_missing else name


class Fast:
    """The stand-in for every `Fast*Model`."""

    @staticmethod
    def from_pretrained(
        model_name: str, *_: Any, auto_model: Any = None, num_labels: int | None = None, **given: Any
    ) -> Any:
        """Return the model in float32 on the CPU, and its tokenizer."""
        import transformers

        transformers.set_seed(given.get("random_state", 3407))  # as Unsloth does
        model_name = _offered(model_name)
        loader = _loader(model_name, auto_model)
        extra: dict[str, Any] = {name: given[name] for name in ("id2label", "label2id", "revision") if name in given}
        if num_labels is not None:
            loader, extra["num_labels"] = transformers.AutoModelForSequenceClassification, num_labels
        model = loader.from_pretrained(model_name, dtype="float32", **extra)
        if "Classification" in type(model).__name__:
            model.accepts_loss_kwargs = False  # as with Unsloth: its loss is a mean for any accumulation
        tokenizer = transformers.AutoTokenizer.from_pretrained(model_name)
        if given.get("max_seq_length"):
            tokenizer.model_max_length = int(given["max_seq_length"])
        tokenizer.tokenizer = tokenizer  # a script may expect a processor, which has it
        model.gradient_checkpointing_enable = lambda *_, **__: None  # it only saves memory of a GPU
        return _equipped(model, bool(given.get("fast_inference"))), tokenizer

    @staticmethod
    def get_peft_model(model: Any, r: int = 16, target_modules: Any = None, **given: Any) -> Any:
        """Return the model with LoRA on those named modules that it has, else on all linear ones."""
        import peft
        import transformers

        transformers.set_seed(given.get("random_state", 3407))
        names = {name.split(".")[-1] for name, _ in model.named_modules()}
        asked = [target_modules] if isinstance(target_modules, str) else list(target_modules or ())
        settings = {name: given[name] for name in ("lora_alpha", "bias", "use_rslora", "task_type") if name in given}
        whole = [*(given.get("modules_to_save") or ()), *(name for name in asked if name in _WHOLE)]
        known = [name for name in dict.fromkeys(whole) if name in names]
        config = peft.LoraConfig(
            r=r,
            target_modules=_linear(model, [name for name in asked if name in names and name not in known], given),
            modules_to_save=known or None,
            **settings,
        )
        return _equipped(peft.get_peft_model(model, config), hasattr(model, "vllm_engine"))

    @staticmethod
    def for_inference(model: Any, *_: Any, **__: Any) -> Any:
        """Return the model, ready to generate."""
        return model.eval()

    @staticmethod
    def for_training(model: Any, *_: Any, **__: Any) -> Any:
        """Return the model, ready to train."""
        return model.train()


def _loader(name: str, asked: Any) -> Any:
    """Return the class that loads a model or its adapter, with its vision tower if any, unless a class is given."""
    import peft
    import transformers

    with contextlib.suppress(ValueError, OSError):  # it is not an adapter
        name = peft.PeftConfig.from_pretrained(name).base_model_name_or_path
    sees = hasattr(transformers.AutoConfig.from_pretrained(name), "vision_config")
    if asked is not None and not (sees and asked.__name__.startswith("Auto")):
        return asked
    return transformers.AutoModelForImageTextToText if sees else transformers.AutoModelForCausalLM


def _linear(model: Any, asked: list[str], given: dict[str, Any]) -> Any:
    """Return the modules that get LoRA: those that were asked for, or all; for a vision model, Unsloth's choice."""
    if not hasattr(model.config, "vision_config"):
        return asked or "all-linear"
    chosen = {name: value for name, value in given.items() if name.startswith("finetune_")}
    pattern = rf".*\b({'|'.join(asked)})"
    if not asked or not all(chosen.values()):
        helpers = importlib.import_module("unsloth_zoo.peft_utils")
        pattern = helpers.get_peft_regex(model, target_modules=asked or None, **chosen)
    linear = [name for name, module in model.named_modules() if type(module).__name__ == "Linear"]
    return [name for name in linear if re.fullmatch(rf"({pattern})(\.linear)?", name)]  # alone, or wrapped (Gemma 4)


class FastSeeing(Fast):
    """The stand-in for the classes whose models may use pictures, and come with a processor."""

    @staticmethod
    def from_pretrained(*args: Any, **given: Any) -> Any:
        """Return the model and its processor, or a tokenizer instead if it is a text model."""
        from transformers import AutoProcessor

        model, tokenizer = Fast.from_pretrained(*args, **given)
        processor = AutoProcessor.from_pretrained(model.config._name_or_path)
        if not _is_real(processor):
            return model, _as_processor(tokenizer)
        for name in ("pad_token", "pad_token_id"):  # as Unsloth does
            setattr(processor, name, getattr(processor.tokenizer, name))
        return model, processor


class FastSentence(Fast):
    """The stand-in for `FastSentenceTransformer`."""

    @staticmethod
    def from_pretrained(model_name: str, *_: Any, **__: Any) -> Any:
        """Return a sentence encoder on the CPU."""
        from sentence_transformers import SentenceTransformer

        return _with_ways_to_save(SentenceTransformer(model_name, device="cpu"))

    @staticmethod
    def get_peft_model(model: Any, *args: Any, **given: Any) -> Any:
        """Return the encoder with LoRA."""
        import peft
        import transformers

        transformers.set_seed(given.get("random_state", 3407))
        names = {name.split(".")[-1] for name, _ in model[0].named_modules()}
        found = [name for name in given.get("target_modules") or () if name in names]
        model.add_adapter(
            peft.LoraConfig(r=given.get("r", 16), target_modules=found or ["query", "value", "q_proj", "v_proj"])
        )
        return model


class SyntheticData(Nothing):
    """The stand-in for `SyntheticDataKit`, which starts a vLLM server; this class makes no data."""

    def chunk_data(self, filename: str) -> list[str]:
        """Return the names of three parts of a file."""
        stem, dot, kind = filename.rpartition(".")
        return [f"{stem}_{i}{dot}{kind}" for i in range(3)]


def _equipped(model: Any, engine: bool) -> Any:
    """Return the model with what Unsloth adds: more ways to save it, and with an engine, vLLM's way to generate."""
    _with_ways_to_save(model)
    model.fast_generate = functools.partial(_generate_as_vllm, model) if engine else getattr(model, "generate", None)
    if engine:
        model.load_lora = lambda *_, **__: None
        model.vllm_engine = types.SimpleNamespace(generate=model.fast_generate)
    return model


def _with_ways_to_save(model: Any) -> Any:
    """Return the model with Unsloth's missing ways to save it: to a folder as `save_pretrained`; uploads do nothing."""

    def save(folder: Any, *_: Any, **__: Any) -> None:
        model.save_pretrained(folder)

    saving = ("save_pretrained_merged", "save_pretrained_gguf", "save_lora", "save_pretrained_torchao")
    sending = dict.fromkeys(("push_to_hub_merged", "push_to_hub_gguf"), lambda *_, **__: None)
    for name, way in {**dict.fromkeys(saving, save), **sending}.items():
        if name not in vars(model) and not hasattr(type(model), name):
            setattr(model, name, way)
    return model


def _generate_as_vllm(model: Any, prompts: Any, *_: Any, **__: Any) -> Any:
    """Return a few tokens for each prompt, in the shape of vLLM's answers."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model.config._name_or_path)
    found = []
    for prompt in [prompts] if isinstance(prompts, (str, dict)) else prompts:
        text = prompt["prompt"] if isinstance(prompt, dict) else prompt
        ids = tokenizer(text, return_tensors="pt")
        tokens = model.generate(**ids, max_new_tokens=8)[0][ids["input_ids"].shape[1] :]
        answer = types.SimpleNamespace(text=tokenizer.decode(tokens), token_ids=tokens.tolist())
        found.append(types.SimpleNamespace(prompt=text, outputs=[answer]))
    return found


def lenient(config: Any) -> None:
    """Let a configuration ignore the fields that it does not have.

    Unsloth's configurations do this on a GPU (`unsloth.models.rl_config_compat`), for fields of other versions, and for
    fields that Unsloth adds.
    """
    known = set(config.__dataclass_fields__)

    def init(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **{name: value for name, value in kwargs.items() if name in known})

    wrap(config, "__init__", init)


def _of_trl(ending: str, change: Callable[[Any], None]) -> None:
    """Change TRL's classes of a kind, "Trainer" or "Config", once the module of each has been imported."""
    import trl

    def change_own(module: ModuleType) -> None:
        for name, value in list(vars(module).items()):
            if name.endswith(ending) and value.__module__ == module.__name__ and "__init__" in vars(value):
                change(value)

    root = Path(trl.__path__[0])
    for file in sorted(root.rglob(f"*_{ending.lower()}.py")):
        after_import(".".join((root.name, *file.relative_to(root).with_suffix("").parts)), change_own)


def older_keywords(trainer: Any) -> None:
    """Let a trainer accept what Unsloth's accepts on a GPU: `tokenizer`, and fields that its configuration has or had
    (`unsloth.trainer._backwards_compatible_trainer`).
    """
    known = {name for each in trainer.__mro__ for name in inspect.signature(each.__init__).parameters}

    def init(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        if "tokenizer" in kwargs:
            kwargs["processing_class"] = kwargs.pop("tokenizer")
        for name in [name for name in kwargs if name not in known and name in _ever_taken()]:
            value = kwargs.pop(name)
            if hasattr(kwargs.get("args"), name):
                setattr(kwargs["args"], name, value)
        original(self, *args, **kwargs)

    wrap(trainer, "__init__", init)


@functools.cache
def _ever_taken() -> frozenset[str]:
    """Return the arguments that any release of TRL's or transformers' trainers and configurations has accepted."""
    releases = json.loads((Path(__file__).parents[2] / "fields.json").read_text(encoding="utf-8"))
    classes = (names for table in releases.values() for owner, names in table.items() if owner[:1].isupper())
    return frozenset(name for names in classes for name in names)


def _take_lists(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """Let a trainer accept rows in a list, and Unsloth's collator of pictures."""
    collator = kwargs.get("data_collator")
    if _is_real(processor := getattr(collator, "processor", None)):  # TRL needs it as an argument; Unsloth does not
        kwargs.pop("tokenizer", None)
        kwargs["processing_class"] = processor
    for name in ("train_dataset", "eval_dataset"):
        if isinstance(kwargs.get(name), list):
            kwargs[name] = _listed(kwargs[name])
    original(self, *args, **kwargs)


def _format_batches(
    original: Any, self: Any, dataset: Any, words: Any, args: Any, packing: bool, formatting: Any, *rest: Any
) -> Any:
    """Let a formatting function return a list of texts for a batch, as Unsloth expects on a GPU
    (`unsloth_zoo.dataset_utils.sft_prepare_dataset`).
    """
    first = next(iter(dataset), None) if formatting is not None else None
    if first is not None and "input_ids" not in first and isinstance(formatting(first), list):
        field, given_by = args.dataset_text_field or "text", formatting
        dataset = dataset.map(lambda rows: {field: given_by(rows)}, batched=True, remove_columns=[*first])
        formatting = None
    return original(self, dataset, words, args, packing, formatting, *rest)


def _take_the_width_of_the_head(losses: ModuleType) -> None:
    """Compute the loss for the real width of a head, which the script may have cut, instead of the vocabulary of the
    configuration, as Unsloth does (`unsloth_zoo.loss_utils`).
    """
    original = attribute(losses, "ForCausalLMLoss")

    @functools.wraps(original)
    def loss(logits: Any, labels: Any, vocab_size: int, *args: Any, **given: Any) -> Any:
        return original(logits, labels, logits.shape[-1], *args, **given)

    losses.LOSS_MAPPING["ForCausalLM"] = loss


def _end_no_texts(original: Any, self: Any, function: Any = None, *args: Any, **given: Any) -> Any:
    """Let TRL add no end token to texts, as Unsloth adds none (`unsloth_zoo.dataset_utils.sft_prepare_dataset`)."""
    is_end = getattr(function, "__name__", "") == "add_eos" and function.__module__.startswith("trl.")
    return self if is_end else original(self, function, *args, **given)


def _is_real(processor: Any) -> bool:
    """Return whether this is a processor, not a tokenizer in place of one."""
    from transformers import ProcessorMixin

    return isinstance(processor, ProcessorMixin)


def _listed(rows: list[Any]) -> Any:
    """Return a data set of the rows that a script has in a list, including pictures."""
    from datasets import Dataset

    def given(batch: dict[str, list[int]]) -> dict[str, list[Any]]:
        return {name: [rows[number][name] for number in batch["number"]] for name in rows[0]}

    return Dataset.from_dict({"number": list(range(len(rows)))}).with_transform(given)


def _extend(unsloth: ModuleType) -> None:
    _of_trl("Trainer", lambda trainer: wrap(trainer, "__init__", _take_lists))
    helpers: dict[str, Any] = {
        **dict.fromkeys(("FastLanguageModel", "FastTextModel"), Fast),
        **dict.fromkeys(("FastModel", "FastVisionModel", "FastBaseModel"), FastSeeing),
        "FastSentenceTransformer": FastSentence,
        "PatchDPOTrainer": lambda: None,
        "PatchFastRL": lambda *_, **__: None,
        "vLLMSamplingParams": lambda **given: types.SimpleNamespace(**given),
        "is_bf16_supported": lambda: False,
        "is_bfloat16_supported": lambda: False,
        "unsloth_train": lambda trainer, *args, **given: trainer.train(*args, **given),
    }
    vars(unsloth).update(helpers)
    collator = importlib.import_module("unsloth_zoo.vision_utils").UnslothVisionDataCollator
    for module in (unsloth, sys.modules["unsloth.trainer"]):
        vars(module)["UnslothVisionDataCollator"] = collator
    after_import("unsloth.dataprep", lambda module: setattr(module, "SyntheticDataKit", SyntheticData))
    _borrow(unsloth)


def _see(original: Any, *args: Any, **given: Any) -> Any:
    """Give a tokenizer that `AutoProcessor` returns the interface of a processor."""
    found = original(*args, **given)
    return found if _is_real(found) else _as_processor(found)


def _borrow(unsloth: ModuleType) -> None:
    """Add helpers of Unsloth that need no GPU if the CPU backend leaves them out."""
    of_rewards = ("check_python_modules", "create_locked_down_function", "execute_with_time_limit")
    homes = dict.fromkeys(of_rewards, "unsloth_zoo.rl_environments") | {"to_sharegpt": "unsloth.chat_templates"}
    for name, home in homes.items():
        if not hasattr(unsloth, name):
            with contextlib.suppress(Exception):  # the helper is then missing, and the script fails where it uses it
                setattr(unsloth, name, getattr(importlib.import_module(home), name))


def _pass_over(unsloth: ModuleType) -> None:
    _of_trl("Config", lenient)
    _of_trl("Trainer", older_keywords)
    for loader in dict.fromkeys((unsloth.FastLanguageModel, unsloth.FastModel)):
        loader.from_pretrained = staticmethod(_without_gpu(loader.from_pretrained))


def _without_gpu(load: Any) -> Any:
    text = inspect.getsource(load)
    dropped = _FOR_GPU.union(name for name in _taken_on_gpus() if name not in text)

    @functools.wraps(load)
    def loaded(*args: Any, **given: Any) -> Any:
        kept = {name: value for name, value in given.items() if name not in dropped}
        if "model_name" in kept:
            kept["model_name"] = _offered(kept["model_name"])
        model, words = load(*map(_offered, args[:1]), *args[1:], **kept, load_in_4bit=False)
        return _with_ways_to_save(model), words

    return loaded


@functools.cache
def _taken_on_gpus() -> set[str]:
    """Return the arguments of Unsloth's loaders on a GPU, which cannot be imported without one."""
    file = metadata.distribution("unsloth").locate_file("unsloth/models/loader.py")
    text = Path(str(file)).read_text(encoding="utf-8")
    loaders = (each for each in every(ast.parse(text), ast.FunctionDef) if each.name == "from_pretrained")
    return {argument.arg for loader in loaders for argument in every(loader, ast.arg)}


def _make_no_gguf(log: Log, _: Any, model: Any, folder: Any, *__: Any, **___: Any) -> list[str]:
    """Write only the header of a GGUF file: for a real one, llama.cpp would have to be downloaded and built."""
    log.write(Program("llama.cpp, which makes GGUF files"))
    model.save_pretrained(folder)
    file = Path(folder) / "model.gguf"
    file.write_bytes(b"GGUF")
    return [str(file)]


def lay(kind: str, log: Log) -> None:
    """Extend Unsloth once it has been imported: with everything ("stand-in"), or only where its CPU backend is stricter
    than it is on a GPU ("real").
    """
    after_import("unsloth", _pass_over)
    wrap("trl.trainer.sft_trainer", "SFTTrainer._prepare_dataset", _format_batches)
    wrap("datasets.arrow_dataset", "Dataset.map", _end_no_texts)
    after_import("transformers.loss.loss_utils", _take_the_width_of_the_head)
    wrap("unsloth_zoo.cpu.loader", "save_pretrained_gguf", _make_no_gguf, log)
    if kind == "stand-in":
        after_import("unsloth", _extend)
        wrap("transformers.generation.utils", "GenerationMixin.generate", versions.unpack_prompts)
        wrap("transformers.models.auto.processing_auto", "AutoProcessor.from_pretrained", _see)
