"""Make `nb2ddp/fields.json`, which lists the names in each release of TRL and transformers: `python -m tests.fields`.

This downloads the last release of each minor version (without its dependencies) and reads it, but does not import it.
For each name that TRL exports, and each argument of the classes below, the table lists the first and the last release
that has it. A pair that ends with "" lasts to the newest release. A name that was removed for a while has several
pairs. For the newest TRL, the table also lists the modules of `trl.experimental` that have trainers and their configs.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

FILE = Path(__file__).parent.parent / "nb2ddp" / "fields.json"
#: For each library, the first release to read, and the classes whose arguments are recorded.
LIBRARIES = {
    "trl": (
        "0.7.0",
        r"(SFT|DPO|ORPO|KTO|CPO|Reward|GRPO|RLOO|PPO|GKD)(Config|Trainer)",
    ),
    "transformers": ("4.36.0", r"(Seq2Seq)?(TrainingArguments|Trainer)"),
}
#: The files to read, by their paths in a wheel.
_PATHS = re.compile(r"\w+/(__init__|training_args\w*|trainer\w*|(trainer|experimental)/.*)\.py")
Names = dict[str, set[str]]  # a class -> its arguments; "" -> the names that can be imported


def releases(library: str, first: str) -> list[str]:
    """Return the last release of each minor version from `first` on, oldest first."""
    command = (sys.executable, "-m", "pip", "index", "versions", library)
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = [Version(each) for each in re.search(r"Available versions: (.*)", text)[1].split(", ")]  # type: ignore[index]
    last = {(each.major, each.minor): each for each in sorted(found) if each >= Version(first)}
    return [str(each) for each in last.values()]


def sources(library: str, version: str, folder: Path) -> dict[str, str]:
    """Return the Python files to read of a release, by their paths in its wheel."""
    pip = (
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(folder),
    )
    subprocess.run([*pip, f"{library}=={version}"], check=True, stderr=subprocess.DEVNULL)
    wheel = next(folder.glob(f"{library}-{version}-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        found = {name: archive.read(name).decode() for name in archive.namelist() if _PATHS.fullmatch(name)}
    wheel.unlink()
    return found


def names(library: str, files: Mapping[str, str]) -> Names:
    """Return the arguments of each class of a release, and under "" the names to import from the library itself."""
    classes: dict[str, ast.ClassDef] = {}
    for path in sorted(files, key=lambda path: "experimental" not in path):  # the others take precedence
        tree = ast.parse(files[path])
        for node in ast.walk(
            tree
        ):  # `from ..experimental.orpo import ORPOConfig as _ORPOConfig`, which a class extends
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                if alias.asname and alias.name in classes:
                    classes[alias.asname] = classes[alias.name]
        classes |= {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    wanted = re.compile(LIBRARIES[library][1])
    found: Names = {name: set(arguments(name, classes)) for name in classes if wanted.fullmatch(name)}
    if library == "trl":
        found[""] = set(exports(ast.parse(files["trl/__init__.py"])))
    return found


def experimental(files: Mapping[str, str]) -> dict[str, str]:
    """Return the trainers and configs of `trl.experimental`, and the package that each is imported from."""
    return {
        node.name: ".".join(Path(path).parent.parts)
        for path in sorted(files)
        if re.fullmatch(r"trl/experimental/\w+/\w+_(trainer|config)\.py", path)
        for node in ast.parse(files[path]).body
        if isinstance(node, ast.ClassDef) and re.fullmatch(r"[A-Z]\w+(Trainer|Config)", node.name)
    }


def arguments(name: str, classes: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    """Yield the arguments of a class: its fields or the parameters of `__init__`, and those of its base classes."""
    made = classes.get(name)
    if made is None:
        return
    init = next((each for each in made.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
    if init is not None:
        yield from (each.arg for each in (*init.args.args[1:], *init.args.kwonlyargs))
        yield from older_names(init)
        if init.args.kwarg is None:
            return
    yield from (
        each.target.id for each in made.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    )
    for base in made.bases:
        yield from arguments(ast.unparse(base).split(".")[-1], classes)


def older_names(init: ast.FunctionDef) -> Iterator[str]:
    """Yield the names that `@deprecate_kwarg("old", new_name="new")` also accepts for arguments."""
    for each in init.decorator_list:
        if isinstance(each, ast.Call) and ast.unparse(each.func) == "deprecate_kwarg":
            yield str(ast.literal_eval(each.args[0]))


def exports(tree: ast.Module) -> Iterator[str]:
    """Yield the names that the library's own module lists or imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (each.asname or each.name for each in node.names)
        elif isinstance(node, (ast.List, ast.Tuple)):
            yield from (
                each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )


def spans(versions: Iterable[str], has: Iterable[bool]) -> list[list[str]]:
    """Return the first and the last release of each period in which something exists."""
    found: list[list[str]] = []
    before, last = False, ""
    for version, is_there in zip(versions, has, strict=True):
        if is_there and not before:
            found.append([version, ""])
        elif before and not is_there:
            found[-1][1] = last
        before, last = is_there, version
    return found


def table(versions: list[str], seen: list[Names]) -> dict[str, dict[str, list[list[str]]]]:
    """Return the releases in which each class has each argument."""
    owners = sorted({owner for each in seen for owner in each})
    return {
        owner: {
            name: spans(versions, [name in each.get(owner, ()) for each in seen])
            for name in sorted({name for each in seen for name in each.get(owner, ()) if not name.startswith("_")})
        }
        for owner in owners
    }


def main() -> None:
    made: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for library, (first, _) in LIBRARIES.items():
            versions = releases(library, first)
            read = [sources(library, version, Path(folder)) for version in versions]
            made[library] = {"releases": versions, **table(versions, [names(library, files) for files in read])}
            if library == "trl":
                made[library]["experimental"] = experimental(read[-1])
    write(made)


def write(made: Mapping[str, Any]) -> None:
    """Write the table, with one argument on each line."""
    lines = json.dumps(made, indent=1)
    FILE.write_text(
        re.sub(r"\[\s+((?:\[\s+\"[^\]]*\],?\s*)+)\]", lambda m: "[" + " ".join(m[1].split()) + "]", lines) + "\n"
    )


if __name__ == "__main__":
    main()
