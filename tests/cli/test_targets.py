"""No value of an option that names a file makes nb2ddp change a file that it did not write."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import Result

from tests.command import Command, read
from tests.notebooks import write

#: Values that an option may get by mistake; the files are in the folder of `_fill`.
TARGETS = (
    # the notebook, by other names and through links
    "n.ipynb ./away/../n.ipynb sub/../n.ipynb FOLDER/n.ipynb link.ipynb hard.ipynb here/n.ipynb "
    # files that a person made or edited, and paths that cannot be written as files
    "other.ipynb mine.py mine.html mine.md data.jsonl model.safetensors pyproject.toml edited.py edited.html "
    "to_mine.md nowhere.html sub mine.md/page.html pipe mine.ipynb.py read_only.html"
).split()
#: Command lines, by the option that gets the target.
LINES = {
    "OUTPUT": ("n.ipynb", "TARGET"),
    "-o": ("n.ipynb", "-o", "TARGET"),
    "rehearse --keep": ("rehearse", "n.ipynb", "--keep", "TARGET"),
}


def _fill(folder: Path, command: Command) -> None:
    """Create everything that a user may have in a folder."""
    write(folder / "edited.ipynb")
    assert command("edited.ipynb").exit_code == 0
    (folder / "edited.py").write_text((folder / "edited.py").read_text() + "# mine\n")
    (folder / "edited.html").write_text("mine")
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
    """Return whether the command ended with an error message and did not crash."""
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
        if option != "-o" or target != "sub":  # -o accepts a folder
            assert _is_clean(result), (target, result.output)
            assert not set(after) - set(before), (target, set(after) - set(before))
        else:
            Path("sub/n.py").unlink()
            Path("sub/accelerate_config.yaml").unlink()
            Path("sub/n.requirements.txt").unlink()


@pytest.mark.parametrize("target", ["n.ipynb", "./away/../n.ipynb", "link.ipynb", "hard.ipynb", "here/n.ipynb"])
@pytest.mark.parametrize("option", [name for name in LINES if "keep" not in name and "hub" not in name])
def test_force_never_replaces_the_notebook(command: Command, tmp_path: Path, option: str, target: str) -> None:
    _fill(tmp_path, command)
    before = _hashes(tmp_path)
    assert _is_clean(command(*(target if word == "TARGET" else word for word in LINES[option]), "--keep", "nothing"))
    assert _hashes(tmp_path) == before


def test_force_never_replaces_a_notebook_that_is_a_script(command: Command) -> None:
    cells = "# %%\nfrom trl import SFTTrainer\ntrainer = SFTTrainer()\n# %%\ntrainer.train()\n"
    Path("a.py").write_text(cells)
    Path("here").symlink_to(".")
    for target in ("a.py", "here/a.py", "x/../a.py"):
        assert _is_clean(command("a.py", target, "--keep", "nothing"))
    assert read("a.py") == cells
