"""Whatever an option that names a file is given, no file that nb2ddp did not write changes."""

from __future__ import annotations

import json
import os
import re
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import Result

from nb2ddp.project import files
from tests.command import Command
from tests.notebooks import write

#: What an option may be given by mistake, below the folder of `_fill`.
TARGETS = (
    "n.ipynb",
    "./away/../n.ipynb",
    "sub/../n.ipynb",
    "FOLDER/n.ipynb",  # as an absolute path
    "link.ipynb",
    "hard.ipynb",
    "here/n.ipynb",  # through a link to the folder
    "other.ipynb",
    "mine.py",
    "mine.html",
    "mine.md",
    "data.jsonl",
    "model.safetensors",
    "pyproject.toml",
    "edited.py",
    "edited.html",
    "to_mine.md",  # a link
    "nowhere.html",  # a link that leads nowhere
    "sub",
    "mine.md/page.html",
    "pipe",
    "mine.ipynb.py",
    "read_only.html",
)
#: Command lines, by the option that they give a target.
LINES = {
    "OUTPUT": ("n.ipynb", "TARGET"),
    "-o": ("n.ipynb", "-o", "TARGET"),
    "--report": ("n.ipynb", "t.py", "--report", "TARGET"),
    "--check --report": ("n.ipynb", "t.py", "--check", "--report", "TARGET"),
    "--summary-file": ("n.ipynb", "t.py", "--summary-file", "TARGET"),
    "--sarif-file": ("n.ipynb", "t.py", "--sarif-file", "TARGET"),
    "rehearse --report": ("rehearse", "n.ipynb", "--report", "TARGET"),
    "rehearse --keep": ("rehearse", "n.ipynb", "--keep", "TARGET"),
    "rehearse --hub": ("rehearse", "n.ipynb", "--hub", "TARGET"),
}


def _fill(folder: Path, command: Command) -> None:
    """Make everything that a user may have in a folder."""
    write(folder / "edited.ipynb")
    assert command("edited.ipynb", "--report", "edited.html").exit_code == 0
    for name in ("edited.py", "edited.html"):
        (folder / name).write_text((folder / name).read_text() + "# mine\n")
    write(folder / "n.ipynb")
    write(folder / "other.ipynb")
    for name in ("mine.py", "mine.html", "mine.md", "data.jsonl", "mine.ipynb.py"):
        (folder / name).write_text(f"# {name}: a day's work\n")
    (folder / "pyproject.toml").write_text("[project]\nname = 'mine'\n")
    (folder / "model.safetensors").write_bytes(bytes(range(256)))
    (folder / "read_only.html").write_text("mine")
    (folder / "read_only.html").chmod(0o444)
    (folder / "sub").mkdir()
    (folder / "sub" / "mine.txt").write_text("mine")
    (folder / "link.ipynb").symlink_to("n.ipynb")
    (folder / "to_mine.md").symlink_to("mine.md")
    (folder / "nowhere.html").symlink_to("nothing")
    (folder / "here").symlink_to(".")
    (folder / "hard.ipynb").hardlink_to(folder / "n.ipynb")
    os.mkfifo(folder / "pipe")


def _hashes(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        found[name] = sha256(path.read_bytes()).hexdigest() if path.is_file() else str(path.is_symlink())
    return found


def _is_clean(result: Result) -> bool:
    """An error of the command, and no fault of ours."""
    return result.exit_code == 2 and isinstance(result.exception, SystemExit) and "Traceback" not in result.output


@pytest.mark.parametrize("option", LINES)
def test_no_target_loses_what_it_holds(command: Command, tmp_path: Path, option: str) -> None:
    _fill(tmp_path, command)
    before = _hashes(tmp_path)
    for target in TARGETS:
        given = target.replace("FOLDER", str(tmp_path))
        result = command(*(given if word == "TARGET" else word for word in LINES[option]))
        after = _hashes(tmp_path)
        assert {name: after.get(name) for name in before} == before, target
        if option != "-o" or target != "sub":  # a folder is what it takes
            assert _is_clean(result), (target, result.output)
            assert not set(after) - set(before), (target, set(after) - set(before))
        else:
            (tmp_path / "sub/n.py").unlink()
            (tmp_path / "sub/accelerate_config.yaml").unlink()


@pytest.mark.parametrize("target", ["n.ipynb", "./away/../n.ipynb", "link.ipynb", "hard.ipynb", "here/n.ipynb"])
@pytest.mark.parametrize("option", [name for name in LINES if "keep" not in name and "hub" not in name])
def test_force_never_replaces_the_notebook(command: Command, tmp_path: Path, option: str, target: str) -> None:
    _fill(tmp_path, command)
    before = _hashes(tmp_path)
    assert _is_clean(command(*(target if word == "TARGET" else word for word in LINES[option]), "--force"))
    assert _hashes(tmp_path) == before


def test_force_never_replaces_a_notebook_that_is_a_script(command: Command, tmp_path: Path) -> None:
    cells = "# %%\nfrom trl import SFTTrainer\ntrainer = SFTTrainer()\n# %%\ntrainer.train()\n"
    (tmp_path / "a.py").write_text(cells)
    (tmp_path / "here").symlink_to(".")
    for target in ("a.py", "here/a.py", "x/../a.py"):
        assert _is_clean(command("a.py", target, "--force"))
    assert (tmp_path / "a.py").read_text() == cells


def test_a_name_in_another_case_is_the_notebook_where_the_file_system_ignores_case(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "n.ipynb")
    monkeypatch.setattr(files, "_ignores_case", lambda folder: True)
    result = command("n.ipynb", "t.py", "--report", "N.IPYNB")
    assert "--report N.IPYNB: that is the notebook" in result.stderr


@pytest.mark.parametrize("option", ["--report", "--summary-file", "--sarif-file"])
@pytest.mark.parametrize("target", ["t.py", "accelerate_config.yaml", "t.requirements.txt", "here/t.py"])
def test_no_page_takes_the_place_of_a_script(command: Command, tmp_path: Path, option: str, target: str) -> None:
    write(tmp_path / "n.ipynb")
    (tmp_path / "here").symlink_to(".")
    result = command("n.ipynb", "t.py", "--requirements", option, target, "--force")
    assert _is_clean(result)
    assert re.search(rf"{option} {target}: that is (the script|a file of the script t.py); name another", result.stderr)
    assert not (tmp_path / "t.py").exists()


def test_two_pages_are_two_files(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "n.ipynb")
    result = command("n.ipynb", "t.py", "--summary-file", "page", "--report", "./page")
    assert "--report page: that is the summary of --summary-file" in result.stderr


def test_pages_of_ours_are_written_again_and_named(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "n.ipynb")
    line = ("n.ipynb", "t.py", "--report", "page.html", "--summary-file", "new/s.md", "--sarif-file", "new/s.sarif")
    for _ in range(2):
        result = command(*line)
        assert result.exit_code == 0
        names = ("page.html", Path("new/s.md"), Path("new/s.sarif"))
        assert {f"wrote {name}" for name in names} <= set(result.stderr.splitlines())
    assert json.loads((tmp_path / "new/s.sarif").read_text())["runs"][0]["tool"]["driver"]["name"] == "nb2ddp"
    assert (tmp_path / "new/s.md").read_text().count("## nb2ddp\n") == 2
    assert (tmp_path / "page.html").read_text().count("<html") == 1


def test_force_writes_pages_over_other_files(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "n.ipynb")
    (tmp_path / "page.html").write_text("mine")
    (tmp_path / "s.md").write_text("mine\n")
    assert command("n.ipynb", "t.py", "--report", "page.html", "--summary-file", "s.md", "--force").exit_code == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>\n<!-- nb2ddp ")
    assert (tmp_path / "s.md").read_text().startswith("mine\n## nb2ddp\n"), "a summary is added"


def test_the_summary_of_the_job_may_hold_what_others_wrote(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "n.ipynb")
    (tmp_path / "step.md").write_text("## Other steps\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "step.md"))
    assert command("n.ipynb", "t.py", "--summary-file", "step.md").exit_code == 0
    assert (tmp_path / "step.md").read_text().startswith("## Other steps\n## nb2ddp\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_what_cannot_be_written_is_an_error_with_a_code(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "n.ipynb")
    for option, target in (("--report", "/proc/no/page.html"), ("--summary-file", "/dev/full")):
        result = command("n.ipynb", "t.py", option, target)
        assert _is_clean(result)
        assert f"DDP903 error: {option}: " in result.stdout
        assert (tmp_path / "t.py").exists(), "the scripts are written all the same"


def test_a_report_written_by_github_annotations(command: Command, tmp_path: Path) -> None:
    write(tmp_path / "n.ipynb")
    (tmp_path / "mine.html").write_text("mine")
    result = command("n.ipynb", "t.py", "--report", "mine.html", "--format", "github")
    assert result.stdout.startswith("::error title=DDP906 not-ours-to-replace::--report mine.html: the file exists")
