"""Let code for a GPU run on the CPU: "cuda" means the CPU, and questions about a GPU are answered."""

from __future__ import annotations

import collections
import io
import os
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from .hooks import after_import, wrap
from .log import Log

MEMORY = 16 * 2**30
#: Arguments of `from_pretrained` of transformers that are only for a GPU.
_FOR_GPU = frozenset({"device_map", "load_in_4bit", "load_in_8bit", "max_memory", "quantization_config"})


#: Functions of `torch.cuda` that do nothing here.
_DONE = (
    "reset_peak_memory_stats reset_max_memory_allocated reset_max_memory_cached reset_accumulated_memory_stats "
    "ipc_collect synchronize set_device set_stream default_stream manual_seed_all set_rng_state set_rng_state_all"
).split()


def _here(value: Any) -> Any:
    """Return "cpu" for a CUDA device in any form, and for "cpu:0", which torch.load does not know; else the value."""
    is_device = isinstance(value, str) or type(value).__name__ == "device"
    return "cpu" if is_device and str(value).split(":")[0] in ("cuda", "cpu") else value


def _place_here(original: Any, *args: Any, **kwargs: Any) -> Any:
    return original(*map(_here, args), **{name: _here(value) for name, value in kwargs.items()})


def _keep_on_cpu(torch: ModuleType) -> None:
    from torch.utils._device import _device_constructors

    keep = lambda self, *_, **__: self  # noqa: E731
    torch.Tensor.cuda = torch.nn.Module.cuda = keep
    makers = ((getattr(function, "__name__", ""), function) for function in _device_constructors())
    own = [name for name, function in makers if getattr(torch, name, None) is function]
    for name in ("Tensor.to", "nn.Module.to", "autocast.__init__", "load", "set_default_device", *own):
        wrap(torch, name, _place_here)


def _gpus() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def seen_by_script(answer: Callable[[], int], log: Log) -> Callable[[], int]:
    """Return a function that gives the script this answer about GPUs, and tells libraries that there is no GPU.

    Libraries do not see a GPU of this machine, which a script may make visible with `CUDA_VISIBLE_DEVICES`.
    """

    def ask() -> int:
        given = answer()
        return given if log.is_asked() else type(given)(0)

    return ask


def _answer(torch: ModuleType, log: Log) -> None:
    """Answer `torch.cuda`'s questions about the GPU of this process; functions that work without a GPU stay."""
    gpu = SimpleNamespace(name="No GPU", total_memory=MEMORY, major=8, minor=0, multi_processor_count=1)
    answers = {
        "get_device_properties": gpu,
        "get_device_name": gpu.name,
        "get_device_capability": (8, 0),
        "mem_get_info": (MEMORY, MEMORY),
        "memory_summary": "no GPU",
        "memory_stats": collections.defaultdict(int),
        **dict.fromkeys(_DONE),
        "get_rng_state": torch.get_rng_state(),
        "get_rng_state_all": [torch.get_rng_state()] * _gpus(),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *_, answer=answer, **__: answer)
    torch.cuda.current_device = lambda: int(os.environ.get("LOCAL_RANK", 0))
    for name, answer in (("is_available", lambda: True), ("device_count", _gpus)):
        setattr(torch.cuda, name, seen_by_script(answer, log))
    _keep_on_cpu(torch)


def _decode(_: Any, self: Any, value: Any, **__: Any) -> Any:
    """Decode a sound without torchcodec, which needs ffmpeg."""
    import numpy
    import soundfile

    array, rate = soundfile.read(io.BytesIO(value["bytes"]) if value.get("bytes") else value["path"])
    if self.sampling_rate and self.sampling_rate != rate:
        moments = numpy.linspace(0, len(array) - 1, int(len(array) * self.sampling_rate / rate))
        array, rate = numpy.interp(moments, numpy.arange(len(array)), array), self.sampling_rate
    return {"array": array.astype("float32"), "sampling_rate": rate, "path": value.get("path")}


def _encode(_: Any, self: Any, value: Any) -> Any:
    """Encode a sound without torchcodec."""
    import soundfile

    if not isinstance(value, dict) or value.get("array") is None:
        return {"bytes": None, "path": value} if isinstance(value, str) else value
    with io.BytesIO() as file:
        soundfile.write(file, value["array"], value["sampling_rate"], format="WAV")
        return {"bytes": file.getvalue(), "path": None}


def train_here(arguments: Any) -> None:
    """Make the arguments of a training ask for nothing that needs a GPU."""
    arguments.use_cpu = True
    if "8bit" in str(arguments.optim) or "paged" in str(arguments.optim):
        arguments.optim = "adamw_torch"


def _join_on_cpu(original: Any, self: Any, cpu: bool = True, **given: Any) -> None:
    """Let processes find each other on the CPU, even if a script assumes that there are GPUs."""
    original(self, cpu=True, **given)


def _load_on_cpu(original: Any, cls: Any, *args: Any, **given: Any) -> Any:
    """Let transformers load a model without options for a GPU: its placement, quantisation, and attention kernels."""
    given = {name: value for name, value in given.items() if name not in _FOR_GPU}
    if "flash" in str(given.get("attn_implementation")):
        given["attn_implementation"] = "sdpa"
    return original(cls, *args, **given)


def lay(log: Log) -> None:
    """Install these hooks once the libraries have been imported."""
    wrap("transformers.modeling_utils", "PreTrainedModel.from_pretrained", _load_on_cpu)
    wrap("transformers.models.auto.auto_factory", "_BaseAutoModelClass.from_pretrained", _load_on_cpu)
    wrap("accelerate.state", "PartialState.__init__", _join_on_cpu)
    after_import("torch", lambda torch: _answer(torch, log))
    wrap("datasets.features.audio", "Audio.decode_example", _decode)
    wrap("datasets.features.audio", "Audio.encode_example", _encode)
