"""Codecs of speech models, and torchaudio's resampling, for scripts that import them where they are not installed.

The shapes of codes are those of SNAC at 24 kHz (https://github.com/hubertsiuzdak/snac: three layers, each twice as fine
as the one before) and of X-Codec 2 (https://github.com/zhenye234/X-Codec-2.0: one code for 320 samples).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

_FRAME, _STEP = 2048, 320  # samples of a code: of SNAC's coarsest layer, of X-Codec


def resample(wave: Any, orig_freq: int, new_freq: int, **_: Any) -> Any:
    """The wave at another rate, by linear interpolation."""
    import torch

    size = max(1, wave.shape[-1] * new_freq // orig_freq)
    flat = wave.reshape(1, -1, wave.shape[-1]).float()
    return torch.nn.functional.interpolate(flat, size=size, mode="linear").reshape(*wave.shape[:-1], size)


class Resample:
    """`resample` as an object."""

    def __init__(self, orig_freq: int = 16000, new_freq: int = 16000, **_: Any) -> None:
        self.rates = orig_freq, new_freq

    def __call__(self, wave: Any) -> Any:
        """The wave at the new rate."""
        return resample(wave, *self.rates)

    def to(self, *_: Any, **__: Any) -> Resample:
        """Itself, on the CPU."""
        return self


class Codec:
    """Codes of a wave that depend on its loudness alone, and a soft noise for codes."""

    @classmethod
    def from_pretrained(cls, *_: Any, **__: Any) -> Codec:
        """One without weights."""
        return cls()

    def to(self, *_: Any, **__: Any) -> Codec:
        """Itself, on the CPU."""
        return self

    eval = cpu = cuda = half = float = to

    def encode(self, wave: Any) -> list[Any]:
        """As SNAC does: three layers of codes."""
        count = max(1, wave.shape[-1] // _FRAME)
        return [_codes(wave, count * finer).reshape(1, -1) for finer in (1, 2, 4)]

    def decode(self, codes: list[Any]) -> Any:
        """As SNAC does: a wave."""
        return _noise(_FRAME * codes[0].shape[-1])

    def encode_code(self, wave: Any, **_: Any) -> Any:
        """As X-Codec does: codes of one layer."""
        return _codes(wave, max(1, wave.shape[-1] // _STEP)).reshape(1, 1, -1)

    def decode_code(self, codes: Any) -> Any:
        """As X-Codec does: a wave."""
        return _noise(_STEP * codes.shape[-1])


def _codes(wave: Any, count: int) -> Any:
    import torch

    return (torch.arange(count) * 7 + int(wave.abs().sum() * 100)) % 4096


def _noise(count: int) -> Any:
    import torch

    return torch.linspace(-0.1, 0.1, max(2, count)).reshape(1, 1, -1)


_GIVEN: dict[str, dict[str, Any]] = {
    "torchaudio.functional": {"resample": resample},
    "torchaudio.transforms": {"Resample": Resample},
    "snac": {"SNAC": Codec},
    "xcodec2.modeling_xcodec2": {"XCodec2Model": Codec},
}


def fill(module: ModuleType) -> None:
    """Put into a module what stands for its own."""
    vars(module).update(_GIVEN.get(module.__name__, {}))
    if module.__name__ == "torchaudio":
        for name in ("functional", "transforms"):
            importlib.import_module(f"torchaudio.{name}")
