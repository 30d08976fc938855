"""Let a script that was written for older versions of the libraries go on, where what it asks for has only moved.

Each such place is noted: where the script runs with the newest versions, it ends there.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from typing import TYPE_CHECKING, Any

from .fast import lenient, older_keywords
from .hooks import after_import, attribute

if TYPE_CHECKING:
    from types import ModuleType

    from .log import Log


#: Fields of training arguments of transformers 4, and what they are called in transformers 5.17; "" if they are gone.
_FIELDS = {
    "evaluation_strategy": "eval_strategy",
    "no_cuda": "use_cpu",
    **dict.fromkeys(
        "dispatch_batches fp16_backend fp16_opt_level group_by_length half_precision_backend include_inputs_for_metrics"
        " include_tokens_per_second jit_mode_eval logging_dir overwrite_output_dir past_index push_to_hub_model_id"
        " push_to_hub_organization push_to_hub_token ray_scope save_safetensors split_batches tpu_num_cores"
        " use_ipex use_mps_device warmup_ratio".split(),
        "",
    ),
}
_KEYWORDS = {"tokenizer": "processing_class"}


def ids_of(value: Any) -> Any:
    """The tokens of what `apply_chat_template` gives since transformers 5; anything else as it is."""
    return value["input_ids"] if type(value).__name__ == "BatchEncoding" else value


def _plain(made: Any) -> Any:
    """A row with tokens as lists."""
    if type(made) is not dict or all(ids_of(value) is value for value in made.values()):
        return made
    return {name: ids_of(value) for name, value in made.items()}


def _plain_rows(rows: ModuleType, log: Log) -> None:
    """Let functions of `Dataset.map` give tokens as transformers 4 did: not as `BatchEncoding` inside of a row."""
    original = attribute(rows, "Dataset.map")

    @functools.wraps(original)
    def map_(self: Any, function: Any = None, *args: Any, **kwargs: Any) -> Any:
        given = function

        def call(*args: Any, **kwargs: Any) -> Any:
            return _plain(given(*args, **kwargs))

        if log.is_own(function):
            function = functools.update_wrapper(call, given)
        return original(self, function, *args, **kwargs)

    rows.Dataset.map = map_


def _plain_prompts(generation: ModuleType, log: Log) -> None:
    original = attribute(generation, "GenerationMixin.generate")

    @functools.wraps(original)
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else kwargs.get("input_ids", kwargs.get("inputs"))
        if given is not None and ids_of(given) is not given:
            log.write("older", what="generate() is given what apply_chat_template returns, for its tokens")
            args = args[1:]
            kwargs = {**given, **{name: value for name, value in kwargs.items() if name not in ("input_ids", "inputs")}}
        return original(self, *args, **kwargs)

    generation.GenerationMixin.generate = generate


def _as_tokens(words: ModuleType, log: Log) -> None:
    """Let a script ask what `apply_chat_template` returns for what its tokens alone have: a shape."""
    original = words.BatchEncoding.__getattr__

    @functools.wraps(original)
    def found(self: Any, name: str) -> Any:
        try:
            return original(self, name)
        except AttributeError:
            if not hasattr(self.data.get("input_ids"), name) or not log.is_asked():
                raise
        log.write("older", what=f".{name} of what apply_chat_template returns is that of its tokens")
        return getattr(self.data["input_ids"], name)

    words.BatchEncoding.__getattr__ = found


def _bring_back(_: ModuleType, log: Log) -> None:
    """Find in `trl.experimental` what has moved there."""
    lazy: Any = type(sys.modules["trl"])
    original = lazy.__getattr__

    def found(self: Any, name: str) -> Any:
        try:
            return original(self, name)
        except AttributeError:
            kind = re.fullmatch(r"([A-Z]+)(Config|Trainer)", name)
            if not kind or self.__name__ != "trl" or not log.is_asked():
                raise
        try:
            value = getattr(importlib.import_module(f"trl.experimental.{kind[1].lower()}"), name)
        except ImportError:
            raise AttributeError(name) from None
        (lenient if kind[2] == "Config" else older_keywords)(value)
        log.write("older", what=f"{name} is taken from trl.experimental")
        setattr(self, name, value)
        return value

    lazy.__getattr__ = found


def _known_as(taker: Any, names: dict[str, str], log: Log) -> None:
    """Let a class of transformers take arguments by the names that they had; those that are gone change nothing."""
    original = taker.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **given: Any) -> None:
        for name in [each for each in names if each in given]:
            log.write("older", what=f"{taker.__name__} has no {name} any more")
            value = given.pop(name)
            if names[name]:
                given[names[name]] = value
        original(self, *args, **given)

    taker.__init__ = init


def _take_fields(name: str, log: Log, module: ModuleType) -> None:
    _known_as(getattr(module, name), _FIELDS, log)


def lay(log: Log) -> None:
    """Do so once the libraries have been imported."""
    for name in ("TrainingArguments", "Seq2SeqTrainingArguments"):
        home = "training_args" if name == "TrainingArguments" else "training_args_seq2seq"
        after_import(f"transformers.{home}", functools.partial(_take_fields, name, log))
    after_import("transformers.trainer", lambda module: _known_as(module.Trainer, _KEYWORDS, log))
    after_import("datasets.arrow_dataset", lambda module: _plain_rows(module, log))
    after_import("transformers.generation.utils", lambda module: _plain_prompts(module, log))
    after_import("transformers.tokenization_utils_base", lambda module: _as_tokens(module, log))
    after_import("trl", lambda module: _bring_back(module, log))
