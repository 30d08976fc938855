"""The Python interface gives the same results as the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nb2ddp
from nb2ddp import (
    Launch,
    NotebookError,
    Options,
    OptionsError,
    Severity,
    Status,
    convert_file,
    convert_paths,
    convert_source,
)
from nb2ddp.project.inputs import InputError
from tests.command import Command, files, read
from tests.notebooks import CELLS, document, text, write


def test_everything_public_is_there_and_documented() -> None:
    page = (Path(__file__).parent.parent / "docs" / "api.md").read_text(encoding="utf-8")
    for name in nb2ddp.__all__:
        assert name in dir(nb2ddp)
        assert getattr(nb2ddp, name).__doc__
        assert f"`{name}" in page, f"docs/api.md does not name {name}"
    with pytest.raises(AttributeError, match="no attribute 'convert_all'"):
        _ = nb2ddp.convert_all


def test_source_to_text(command: Command) -> None:
    write("a.ipynb")
    command("a.ipynb", "t.py", "--gpus", "4")
    options = Options(launch=Launch(gpus=4))
    conversion = convert_source(read("a.ipynb"), "a", "t.py", options)
    assert list(conversion.files) == ["t.py", "accelerate_config.yaml", "t.requirements.txt"]
    assert {name: read(name) for name in conversion.files} == conversion.files
    load = next(each for each in conversion.diagnostics if each.code == "DDP101")
    assert (load.severity, load.fixed, str(load.location)) == (Severity.NOTE, True, "cell 2:2:20")


def test_source_says_where_a_notebook_is_wrong() -> None:
    with pytest.raises(NotebookError, match=r"^cell 2:1:5: the cell is not Python") as caught:
        convert_source(text("x = 1", "y = = 2"))
    assert caught.value.diagnostic.line_text == "y = = 2"
    assert caught.value.code == "DDP001"
    assert "y = = 2" in text("x = 1", "y = = 2").split("\n")[(caught.value.diagnostic.file_line or 0) - 1]


@pytest.mark.parametrize("alone", ["@staticmethod", "x = (1 +", "if x:", "y = 1 \\"])
def test_cell_that_is_python_only_with_the_next_one_is_refused(alone: str) -> None:
    with pytest.raises(NotebookError, match=r"^cell 1:\d+:\d+: the cell is not Python"):
        convert_source(text(alone, "def f(): pass", *CELLS))


@pytest.mark.parametrize("refused", ["if True:\n    return", "for x in []:\n    pass\nbreak", "def f(x, x): pass"])
def test_cell_that_the_compiler_refuses_is_an_error(refused: str) -> None:
    with pytest.raises(NotebookError, match=r"^cell 2:1:1: the cell cannot be converted to Python") as caught:
        convert_source(text("x = 1", refused, *CELLS))
    assert caught.value.code == "DDP001"


def test_what_only_a_cell_may_hold_stands_where_a_script_may_have_it() -> None:
    late = "from __future__ import annotations\nmodel.name: str = 'a'"
    script = convert_source(text(*CELLS[:3], late, CELLS[3]), "a", "t.py").files["t.py"]
    compile(script, "script.py", "exec", dont_inherit=True)
    assert script.index("from __future__ import annotations") < script.index("import os")


def test_place_of_what_a_magic_runs() -> None:
    imports, loads = CELLS[1].split("\n")[:2]
    conversion = convert_source(text(CELLS[0], f"{imports}\n%time {loads}", *CELLS[2:]))
    load = next(each for each in conversion.diagnostics if each.code == "DDP101")
    assert (str(load.location), load.line_text[:10]) == ("cell 2:2:26", "%time mode")


def test_options_are_checked() -> None:
    with pytest.raises(OptionsError, match="at least 1, not 0"):
        Options(batch=0)
    with pytest.raises(OptionsError, match="no rule 'DDP999'"):
        convert_source(text(*CELLS), options=Options(ignore=frozenset({"DDP999"})))


def test_file_to_files(tmp_path: Path) -> None:
    notebook = write(tmp_path / "a.ipynb")
    before = notebook.read_bytes(), notebook.stat().st_mtime_ns
    result = convert_file(notebook, tmp_path / "out/t.py")
    assert result.status is Status.CONVERTED
    names = ("t.py", "accelerate_config.yaml", "t.requirements.txt")
    assert result.written == tuple(tmp_path / "out" / name for name in names)
    assert convert_file(notebook, tmp_path / "out/t.py").status is Status.UNCHANGED
    assert (notebook.read_bytes(), notebook.stat().st_mtime_ns) == before


def test_file_raises_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(NotebookError, match="there is no such file"):
        convert_file(tmp_path / "none.ipynb", tmp_path / "t.py")
    with pytest.raises(NotebookError, match="not Python"):
        convert_file(write(tmp_path / "a.ipynb", "x = = 1"), tmp_path / "t.py")
    assert files(tmp_path) == {"a.ipynb"}


def test_paths_are_what_the_command_does(command: Command, tmp_path: Path) -> None:
    for name in ("a", "b/c", "b/bad"):
        write(f"nb/{name}.ipynb", *(["x = = 1"] if name == "b/bad" else CELLS))
    command("nb", "-o", "one")
    results = list(convert_paths([tmp_path / "nb"], tmp_path / "two", processes=1))
    assert [result.status for result in results] == [Status.CONVERTED, Status.FAILED, Status.CONVERTED]
    assert results[1].failure is not None
    assert str(results[1].failure.location) == "cell 1:1:5"
    assert files("one") == files("two")
    assert all((tmp_path / "one" / n).read_bytes() == (tmp_path / "two" / n).read_bytes() for n in files("one"))
    assert {r.status for r in convert_paths(["nb/a.ipynb"], "two", check=True)} == {Status.UNCHANGED}


def test_paths_refuse_before_they_write(tmp_path: Path) -> None:
    write(tmp_path / "x/a.ipynb")
    write(tmp_path / "y/a.ipynb")
    with pytest.raises(InputError, match="would both become"):
        convert_paths([tmp_path / "x", tmp_path / "y"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


class TestNbconvert:
    """`jupyter nbconvert --to ddp`, through the entry point of the installed package."""

    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        from importlib.metadata import entry_points

        if not entry_points(group="nbconvert.exporters", name="ddp"):
            pytest.skip("the package is not installed, only on the path")

    def convert(self, folder: Path, *arguments: str) -> int:
        from nbconvert.nbconvertapp import NbConvertApp

        app: Any = NbConvertApp()
        try:
            app.initialize(["--to", "ddp", *arguments])
            app.start()
        except SystemExit as error:
            return int(error.code or 0)
        finally:
            NbConvertApp.clear_instance()
        return 0

    def test_writes_what_the_command_writes(self, command: Command, tmp_path: Path) -> None:
        write("a b.ipynb")
        command("a b.ipynb", "one/a b.py")
        assert self.convert(tmp_path, str(tmp_path / "a b.ipynb"), "--output-dir", str(tmp_path / "two")) == 0
        assert files("two") == {"a b.py", "accelerate_config.yaml"}
        for name in files("two"):
            assert (tmp_path / "two" / name).read_text() == (tmp_path / "one" / name).read_text()

    @pytest.mark.parametrize(
        ("typed", "written"),
        [
            ("a.ipynb", "a.py accelerate_config.yaml"),
            ("{here}/nb/a.ipynb", "nb/a.py nb/accelerate_config.yaml"),
            ("a.ipynb --output b.py --output-dir c/d", "c/d/b.py c/d/accelerate_config.yaml"),
            ("a.ipynb --output {here}/c/b", "c/b.py c/accelerate_config.yaml"),
            ("a.ipynb --stdout", ""),
        ],
    )
    def test_takes_every_way_to_name_files(
        self, command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str], typed: str, written: str
    ) -> None:
        write("a.ipynb")
        write("nb/a.ipynb")
        assert self.convert(tmp_path, *typed.format(here=tmp_path).split()) == 0
        assert files() == {*written.split(), "a.ipynb", "nb/a.ipynb"}
        assert len([*Path().rglob("*.requirements.txt")]) == bool(written)
        assert ("Distributed setup" in capsys.readouterr().out) == (not written)

    def test_shows_what_is_in_conflict(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
    ) -> None:
        notebook = write(tmp_path / "a.ipynb")
        assert self.convert(tmp_path, str(notebook)) == 0
        edited = (tmp_path / "a.py").read_text().replace('save_pretrained("lora")', 'save_pretrained("mine")')
        (tmp_path / "a.py").write_text(edited)
        write(notebook, *CELLS[:-1], 'model.save_pretrained("theirs")')
        assert self.convert(tmp_path, str(notebook)) == 1
        assert "DDP905" in caplog.text + capfd.readouterr().err
        assert (tmp_path / "a.py").read_text() == edited

    def test_gives_text_to_those_who_write_it_themselves(self, tmp_path: Path) -> None:
        from nb2ddp.exporter import DDPExporter

        notebook = write(tmp_path / "a.ipynb")
        (tmp_path / "a.py").write_text("mine\n")
        exporter: Any = DDPExporter()  # type: ignore[no-untyped-call]  # nbconvert's
        text, resources = exporter.from_filename(str(notebook))
        assert "Distributed setup" in text
        assert list(resources["outputs"]) == ["./accelerate_config.yaml", "./a.requirements.txt"]

    def test_refuses_what_the_command_refuses(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "a.ipynb").write_text(json.dumps(document("x = = 1")))
        assert self.convert(tmp_path, str(tmp_path / "a.ipynb")) == 1
        assert "a.ipynb: cell 1:1:5: the cell is not Python" in caplog.text + capfd.readouterr().err
        assert files(tmp_path) == {"a.ipynb"}
