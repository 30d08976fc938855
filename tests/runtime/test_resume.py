"""What makes a checkpoint whole."""

from __future__ import annotations

from pathlib import Path

from nb2ddp.runtime.resume import name_adapters, sizes


def test_a_default_adapter_stands_beside_others(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "ref"):
        folder.mkdir(exist_ok=True)
        (folder / "adapter_config.json").write_text("{}", encoding="utf-8")
        (folder / "adapter_model.safetensors").write_text(folder.name, encoding="utf-8")
    name_adapters(tmp_path)
    assert (tmp_path / "default" / "adapter_model.safetensors").read_text() == tmp_path.name
    assert (tmp_path / "ref" / "adapter_model.safetensors").read_text() == "ref"


def test_one_adapter_stays_alone(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}", encoding="utf-8")
    name_adapters(tmp_path)
    assert sizes(tmp_path) == {"adapter_config.json": 2}


def test_sizes_leave_out_what_is_written_later(tmp_path: Path) -> None:
    for name in ("whole.json", "trainer_state.json", "model.safetensors", "default/x.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1", encoding="utf-8")
    assert sizes(tmp_path) == {"default/x.json": 1, "model.safetensors": 1}
