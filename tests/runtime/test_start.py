"""What runs before the imports of a script."""

import os

import pytest

from nb2ddp.runtime.start import see_one_gpu


@pytest.mark.parametrize(
    ("seen", "processes", "then"),
    [(None, None, "0"), ("2,3", None, "2"), ("", None, ""), ("2,3", "2", "2,3"), (None, "2", None)],
)
def test_a_process_without_a_launcher_sees_one_gpu(
    seen: str | None, processes: str | None, then: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("CUDA_VISIBLE_DEVICES", seen), ("WORLD_SIZE", processes)):
        monkeypatch.setenv(name, value or "")
        if value is None:
            monkeypatch.delenv(name)
    see_one_gpu()
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == then
