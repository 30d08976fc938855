"""Write the packages that a notebook installs as one requirements file, for pip and uv.

All packages are resolved together, even those that the notebook installs with `--no-deps` to keep Colab's versions. A
few cannot be, because their build imports torch or their metadata requires an old version: the second half of the
command in the file's first lines installs them after the file. The file lists packages that it leaves out as comments,
except those that are only installed on Colab.
"""

from __future__ import annotations

import json
import re
import shlex
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath

import libcst as cst
from packaging.requirements import Requirement
from packaging.specifiers import Specifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from nb2ddp.facts.commands import Command, commands
from nb2ddp.facts.installs import colab_branch
from nb2ddp.facts.loading import model_name, starts_engine
from nb2ddp.facts.program import Program
from nb2ddp.facts.releases import needed, taken, uses, uses_unsloth
from nb2ddp.facts.sounds import sounds
from nb2ddp.facts.values import filled
from nb2ddp.script.launch import path_word
from nb2ddp.script.modules import ON_COLAB, ON_INDEX, requirement_of
from nb2ddp.script.templates import render
from nb2ddp.toml import tables
from nb2ddp.versions import tables as versions

_TABLES = tables(__file__)
_OPTIONS, _PACKAGES = _TABLES["options"], _TABLES["packages"]
_PARSER = ArgumentParser(add_help=False, allow_abbrev=False)
for _names in (names.split() for group in _OPTIONS.values() for names in group):
    _PARSER.add_argument(*_names, dest=_names[0], action="append", nargs="?", const="", default=[])
#: The command that installs the packages that are apart.
_APART = "pip install --no-deps --no-build-isolation"
#: The package that starts a script, and the one that its setup block imports.
_NEEDED = ("accelerate", "unsloth")
#: The versions of Python that Unsloth supports.
_PYTHON = ">=3.10,<3.14"
#: The first TRL that accepts the arguments of transformers 5: an older one cannot create a trainer with it.
_KNOWS_TRANSFORMERS_5 = "0.27"
#: Libraries that only work with versions of each other of about the same age.
_PAIR = ("trl", "transformers")
#: The cell number of a package that the notebook's header names.
HEADER = 0
_GEMMA_3N = re.compile(r"(?i)gemma-?3n")
#: An extra of Unsloth with builds for a torch before 2.6, although Unsloth's dependency torchao needs 2.6. An extra
#: without a torch version in its name is for torch 2.1 or 2.2 (`Requires-Dist` of its wheel).
_OLD_BUILDS = re.compile(r"(cu\d+|colab)(-ampere)?(-torch2[1-5]\d)?")
#: The GitHub URL of a Hugging Face library, with the tag of a release: `.../transformers@v4.49.0-Gemma-3`.
_SOURCE = re.compile(r"github\.com/huggingface/[\w-]+(\.git)?(?:@v(?P<version>\d+\.\d+(\.\d+)?))?")
#: The beginning of a URL; a character in text that is unknown until the notebook runs.
_URL = re.compile(r"(git|hg|svn|bzr)\+|\w+://")
_UNKNOWN = re.compile(r"[$`{]")
#: A command that installs.
_INSTALL = re.compile(
    r"(?:(?:\S*/)?python[\d.]* (?:-[uIq] )*-m |\{sys\.executable\} -m )?"
    r"(?:(?:uv (?:-\S+ )*)?(?:\S*/)?pip[\d.]* (?:-\S+ )*install|uv (?:-\S+ )*add) "
)
#: Other commands that are about Python packages: a new environment needs none of them.
_OTHERS = re.compile(r"(?:\S*python[\d.]* -m )?(?:pip|uv|find|rm|kill|ldconfig)")


@dataclass(frozen=True)
class Package:
    """One requirement of a notebook.

    Attributes:
        line: its line in a requirements file.
        name: its canonical name; for a bare URL, taken from the URL's last part.
        cell: the notebook's cell that installs it.
        sources: the lines about indexes from its command.
        is_apart: whether it is installed after the others, without its dependencies and without build isolation.
    """

    line: str
    name: str
    cell: int
    sources: tuple[str, ...] = ()
    is_apart: bool = False

    @cached_property
    def requirement(self) -> Requirement | None:
        """The line as a `Requirement`, which must not be changed; None for a bare URL or a file."""
        return requirement_of(self.line)

    @property
    def is_source(self) -> bool:
        """True if it is a URL or a file."""
        own = self.requirement
        return own is None or bool(own.url)

    @property
    def specifier(self) -> SpecifierSet:
        """The bounds on its version; empty for any version, a URL or a file."""
        own = self.requirement
        return SpecifierSet() if own is None else own.specifier

    @property
    def is_open(self) -> bool:
        """True if it accepts any version."""
        return not self.is_source and not self.specifier

    @property
    def tops(self) -> list[Version]:
        """The upper bounds of its version."""
        return [_version(part) for part in self.specifier if part.operator in ("==", "<", "<=", "~=")]

    def with_versions(self, bounds: str) -> Package:
        """Return the package with only these bounds on its version; a URL or a file stays as it is."""
        own = copy(self.requirement)
        if own is None or own.url:
            return self
        own.specifier = SpecifierSet(bounds)
        return replace(self, line=str(own))

    def with_extras(self, other: Package) -> Package:
        """Return the package with the extras of another one and, if it lacked any of these, with its indexes too."""
        own, more = copy(self.requirement), other.requirement
        if own is None or more is None or more.extras <= own.extras:
            return self
        own.extras = own.extras | more.extras
        return replace(self, line=str(own), sources=tuple(dict.fromkeys((*other.sources, *self.sources))))

    def fits(self, bounds: str) -> bool:
        """Return whether it allows a version within the bounds, or a newer one: a newer Unsloth may accept that."""
        wanted = SpecifierSet(bounds)
        limits = [_version(part) for part in wanted if part.operator in ("<", "<=")]
        is_newer = not self.tops or min(self.tops) > max(limits, default=min(self.tops))
        both = self.specifier & wanted
        return is_newer or any(both.contains(_version(part), True) for part in both)


@dataclass(frozen=True)
class Requirements:
    """The packages of a notebook.

    Attributes:
        packages: in the notebook's order.
        notes: what the file leaves out and why, as pairs of cell and sentence.
    """

    packages: tuple[Package, ...]
    notes: tuple[tuple[int, str], ...]

    def __bool__(self) -> bool:
        return bool(self.packages or self.notes)

    def files(self, script_name: str, title: str = "the notebook") -> dict[str, str]:
        """Return the text of the file by its name; nothing if the notebook installs nothing."""
        together = [package for package in self.packages if not package.is_apart]
        text = render(
            "requirements.txt.j2",
            title=title,
            command=self.command(script_name),
            notes=self.notes,
            options=_sources(together),
            lines=[package.line for package in together],
        )
        return {file_name(script_name): text} if self else {}

    def command(self, script_name: str) -> str:
        """Return the line that installs them, from the folder of the file."""
        apart = [shlex.quote(package.line) for package in self.packages if package.is_apart]
        file = f"pip install -r {shlex.quote(path_word(file_name(script_name)))}"
        return f"{file} && {_APART} {' '.join(apart)}" if apart else file

    def header(self, requires_python: str = "") -> str:
        """Return the packages as inline script metadata, which uv reads.

        If a package is installed apart because it requires a version that Unsloth does not accept, the version bounds
        of Unsloth override that requirement.

        Args:
            requires_python: the accepted versions of Python; empty means those that Unsloth supports.
        """
        lines = {
            package.name: package.line if package.requirement else f"{package.name} @ {package.line}"
            for package in self.packages
            if not package.line.startswith("-")
        }
        asked = {Requirement(versions()["unfit"][name]).name for name in lines.keys() & versions()["unfit"].keys()}
        overrides = [f"{name}{versions()['allowed'][name]}" for name in sorted(asked)]
        missing = [name for name in _NEEDED if name not in lines]
        options = [
            option.split(" ", 1)[1] for each in self.packages for option in each.sources if "index-url" in option
        ]
        return render(
            "metadata.py.j2",
            requires_python=requires_python or _PYTHON,
            dependencies=sorted([*lines.values(), *missing], key=str.lower),
            overrides=overrides,
            indexes=list(dict.fromkeys(options)),
            quoted=json.dumps,
        ).strip("\n")


def _sources(packages: list[Package]) -> list[str]:
    """Return the lines about indexes. An index that only some packages came from is added to PyPI."""
    lines = dict.fromkeys(line for package in packages for line in package.sources)
    return [
        line
        if all(line in package.sources for package in packages)
        else line.replace("--index-url", "--extra-index-url")
        for line in lines
    ]


def file_name(script_name: str) -> str:
    """Return the name of a script's requirements file, next to the script."""
    return f"{PurePosixPath(script_name).stem}.requirements.txt"


def install_command(file: str, text: str) -> str:
    """Return the line that installs a requirements file.

    Args:
        file: its path from the current folder.
        text: the file's content.
    """
    apart = re.search(rf"(?m)^#   .*( && {_APART} .*)$", text)
    return f"pip install -r {shlex.quote(path_word(file))}{apart[1] if apart else ''}"


def requirements(program: Program, minimums: Iterable[tuple[str, str]] = ()) -> Requirements:
    """Return the packages that a notebook installs outside Colab, in its order.

    Args:
        program: the notebook.
        minimums: package -> first version that the script accepts, required if the notebook accepts any.
    """
    return _Reading(program).result(dict(minimums))


class _Reading:
    """Reads a notebook's installs in the order in which they run."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.tree = program.tree
        self.notes: list[tuple[int, str]] = []
        #: The packages by name.
        self.packages: dict[str, Package] = {}

    def result(self, minimums: dict[str, str]) -> Requirements:
        self._install(self.program.notebook.metadata.dependencies, HEADER)
        for call in self.tree.live(cst.Call):
            for command in commands(filled(self.tree, self.program.effects.command(call))):
                self._command(call, command)
        self._add_imported()
        if (fixed := self.packages.get("transformers")) and "==" in fixed.line:
            self.packages.pop("tokenizers", None)  # transformers requires the right version
        if minimums:
            self._fit(minimums)
        self._bound_removed_names()
        self._bound_by_trl()
        self._add_decoders()
        return Requirements(tuple(self.packages.values()), tuple(dict.fromkeys(self.notes)))

    def _cell(self, node: cst.CSTNode) -> int:
        return self.program.cell_at(self.tree.start(node)).number

    def _note(self, cell: int, text: str) -> None:
        line = " ".join(text.split())
        self.notes.append((cell, line if line.isprintable() else line.encode("unicode_escape").decode()))

    # -- commands -------------------------------------------------------------------------------------------

    def _command(self, call: cst.Call, command: Command) -> None:
        """Read one simple command, if it installs something."""
        text, cell = " ".join(command.words), self._cell(call)
        install = _INSTALL.match(f"{text} ")
        if install is None and (_OTHERS.match(text) or command.does != "install"):
            return
        where = self._elsewhere(call)
        if where:
            self._note(cell, f"left out, {where}: {text}")
        elif where is None and install is None:
            self._note(cell, f"not a Python package: {text}")
        elif where is None and install is not None and not self._install(command.words[install[0].count(" ") :], cell):
            self._note(cell, f"not known before the notebook runs: {text}")

    def _elsewhere(self, call: cst.Call) -> str | None:
        """Return where a command runs if not here, in words (empty for Colab alone); None for one that runs here."""
        below: cst.CSTNode = call
        for above in self.tree.ancestors(call):
            if isinstance(above, cst.If):
                on_colab = colab_branch(self.tree, above)
                if on_colab is below:
                    return ""
                if on_colab is None and above.body is not below and self._installs_in(above.body):
                    return f"installed unless {self.tree.text(above.test)}"
            elif isinstance(above, cst.Try) and isinstance(below, cst.ExceptHandler) and self._installs_in(above.body):
                return "a fallback if another install fails"
            below = above
        return None

    def _installs_in(self, body: cst.CSTNode) -> bool:
        return any(self.program.installs.is_install(call) for call in self.tree.within(body, cst.Call))

    def _install(self, arguments: Sequence[str], cell: int) -> bool:
        """Read the arguments of `pip install` and `uv add`; return whether they name a package."""
        known, words = _PARSER.parse_known_args(arguments)
        options: dict[str, list[str]] = vars(known)
        flags = {word for word in words if word.startswith("-")}
        sources = sorted(flags & {"--pre", "--prefer-binary", "--no-index"})
        for names in (*_OPTIONS["kept"], *_OPTIONS["lost"]):
            name = names.split()[0]
            for line in (f"{name} {value}" for value in options[name]):
                if names in _OPTIONS["lost"] or not line.isprintable():
                    self._note(cell, f"a requirements file cannot have this option: {line}")
                elif _UNKNOWN.search(line):
                    self._note(cell, f"not known before the notebook runs: {line}")
                else:
                    sources.append(line)
        named = [("", word) for word in words if word not in flags]
        named += [(option, word) for option in ("-e", "-r") for word in options[option]]
        for option, word in named:
            package = self._package(option, word.strip(), cell)  # as pip reads it
            if package is not None:
                is_built = package.requirement is None and "--no-build-isolation" in flags
                is_apart = is_built or package.name in (*_PACKAGES["built-with-torch"], *versions()["unfit"])
                is_newest = bool(flags & {"-U", "--upgrade"}) and package.is_open
                self._add(replace(package, sources=tuple(sources), is_apart=is_apart), is_newest)
        return bool(named)

    def _package(self, option: str, word: str, cell: int) -> Package | None:
        """Return one argument as a package; None for an installer or, with a note, for no package."""
        line = f"{option} {word}".strip()
        own = None if option else requirement_of(word)
        if _UNKNOWN.search(line):
            self._note(cell, f"not known before the notebook runs: {line}")
            return None
        if not word.isprintable() or (own is None and (" " in word or not _URL.match(word))):
            self._note(cell, f"not on a package index: {line}")
            return None
        name = canonicalize_name(own.name) if own else _name_of_url(word)
        if name == "marimo" or (name in _PACKAGES["installers"] and self._taken_by(name) is None):
            return None
        new, why = own or Requirement(name), ""
        if name in _allowed() and (source := _SOURCE.search(word)):
            new.url, new.specifier = None, SpecifierSet(f"=={source['version']}" if source["version"] else "")
            why = "the script needs another version"
        if name == "unsloth" and (old := set(filter(_OLD_BUILDS.fullmatch, new.extras))):
            new.extras -= old
            why = f"{', '.join(sorted(old))} takes builds for an old torch"
        if why:
            self._note(cell, f"{line} is replaced by {new}: {why}")
            line = str(new)
        return Package(line, f"{name}; {new.marker}" if new.marker else name, cell)

    def _add(self, new: Package, is_newest: bool) -> None:
        """Add a package. If two commands name it, the later one decides, unless it accepts any installed version."""
        old = self.packages.get(new.name, new)
        kept = old.with_extras(new) if new.is_open and not is_newest else new.with_extras(old)
        if not old.is_open and old.line != kept.line:
            self._note(old.cell, f"{old.line} is replaced by {kept.line} of cell {new.cell}")
        self.packages[new.name] = kept

    # -- what the code needs --------------------------------------------------------------------------------

    def _add_for(self, line: str, node: cst.CSTNode, why: str) -> None:
        """Add a package that some code needs, with a note on the reason, if the notebook does not install it."""
        name = canonicalize_name(Requirement(line).name)
        if name not in self.packages:
            self.packages[name] = Package(line, name, self._cell(node))
            self._note(self._cell(node), f"{name} is added: {why}")

    def _add_imported(self) -> None:
        """Add the packages that the code imports, or needs to start an engine."""
        trained_with = {"unsloth": "unsloth"} if uses_unsloth(self.tree) else _TABLES["training"]
        for module, line in (ON_COLAB | ON_INDEX | trained_with).items():
            if found := self._taken_by(module):
                self._add_for(line, found[0], found[1] + (", and Colab has it" if module in ON_COLAB else ""))

    def _taken_by(self, module: str) -> tuple[cst.CSTNode, str] | None:
        """Return the code that uses a module, and how it does; None if there is none."""
        if self.program.written(f"{module}.py") == f"{module}.py":  # the notebook writes the module
            return None
        covers, loads = self.program.installs.covers, self.program.loads
        imports = [node for node, *_ in self.tree.imports(module) if self.tree.is_live(node) and not covers(node)]
        if imports:
            return min(imports, key=self.tree.start), "the code imports it"
        if module == "vllm" and any(starts_engine(self.tree, load) for load in loads):
            return loads[0], "fast_inference needs it"
        if module == "timm" and any(_GEMMA_3N.search(model_name(self.tree, load)) for load in loads):
            return loads[0], "Gemma 3n needs it for images"
        trackers = (value for value in self.tree.given("report_to") if module in self.tree.texts(value))
        return next(((value, "report_to names it") for value in trackers), None)

    def _add_decoders(self) -> None:
        """Add the packages that datasets needs to decode sounds (its documentation, "Load audio data")."""
        datasets = self.packages.get("datasets")
        for sound in sounds(self.tree)[:1]:
            if datasets is not None and not datasets.fits(">=4"):
                self._add_for("librosa", sound, "datasets 3 decodes audio with it")
                self._add_for("soundfile", sound, "datasets 3 decodes audio with it")
            else:
                self._add_for("torchcodec", sound, "datasets 4 decodes audio with it; it needs ffmpeg")
        for pair in self.tree.live(cst.DictElement):
            is_sound = (self.tree.literal(pair.key), self.tree.literal(pair.value)) == ("type", "audio")
            if is_sound and "torchcodec" not in self.packages:
                self._add_for("librosa", pair, "transformers reads audio in messages with it")

    # -- versions -------------------------------------------------------------------------------------------

    def _fit(self, minimums: dict[str, str]) -> None:
        """Replace the versions that the script or its Unsloth does not accept, and require those that the script needs.

        If TRL or transformers is too old, both get the versions that most notebooks pin; other packages get any
        version. A package that is made for one torch keeps its version only if the notebook's torch keeps its version.

        Args:
            minimums: package -> first version that the script accepts.
        """
        floors: dict[str, str] = {canonicalize_name(name): f">={version}" for name, version in minimums.items()}
        bounds = _allowed() | floors
        unfit = {name for name, own in self.packages.items() if name in bounds and not own.fits(bounds[name])}
        # what most notebooks pin, of the libraries whose newest they do not take
        pinned = versions()["pinned"].items() if unfit.intersection(_PAIR) else ()
        other = [(name, each) for name, each in pinned if each != versions()["newest"][name]]
        pins: dict[str, str] = {canonicalize_name(name): f"=={each}" for name, each in other}
        for use in uses(self.tree) if pins else ():
            if not use.successor and not use.is_in(versions()["pinned"][use.library]):
                pins.pop(use.library, None)  # the code needs another release
        torch = self.packages.get("torch")
        if torch is None or "torch" in unfit or not torch.tops:
            unfit |= {name for name in _PACKAGES["made-for-a-torch"] if name in self.packages}
        for name, own in self.packages.items():
            if name in pins and (name in unfit or own.is_open):
                new = own.with_versions(pins[name])
            elif own.is_open or (name in unfit and own.tops):
                new = own.with_versions(floors.get(name, ""))
            else:
                continue
            self.packages[name] = new
            if not own.is_open:
                self._note(own.cell, f"{own.line} is replaced by {new.line}: the script needs another version")
        near = next((self.packages[name] for name in _PAIR if name in unfit), None)
        if near is not None:
            self._add_missing(pins, near)
        unsloth = self.packages.get("unsloth")
        if unsloth is not None and str(unsloth.specifier) == floors.get("unsloth"):
            self._add_missing({name: f">={version}" for name, version in minimums.items()}, unsloth)

    def _add_missing(self, wanted: dict[str, str], near: Package) -> None:
        for name, bounds in wanted.items():
            if canonicalize_name(name) not in self.packages:
                self.packages[canonicalize_name(name)] = Package(f"{name}{bounds}", canonicalize_name(name), near.cell)

    def _releases(self, library: str) -> tuple[str, ...]:
        """Return the releases of a library that a job may have, the oldest first."""
        own = self.packages.get(library)
        return taken(library, str(own.specifier) if own else "", uses_unsloth(self.tree))

    def _bound_removed_names(self) -> None:
        """Require the last version with each name that the code uses, if the newest one lacks it."""
        for use in [use for library in _PAIR for use in needed(self.tree, library, self._releases(library))]:
            releases = self._releases(use.library)
            last = next((each for each in reversed(releases) if use.is_in(each)), None)
            if last is not None and last != releases[-1]:
                self._bound(use.library, f"<={last}", self._cell(use.node), f"no later version has {use.name}")

    def _bound_by_trl(self) -> None:
        """Require transformers 4 with a TRL that supports no later one, if the notebook also allows transformers 5."""
        trl, known, releases = self.packages.get("trl"), self._releases("trl"), self._releases("transformers")
        is_old = bool(trl and known) and Version(known[-1]) < Version(_KNOWS_TRANSFORMERS_5)
        if trl and is_old and releases and Version(releases[0]) < Version("5") <= Version(releases[-1]):
            self._bound("transformers", "<5", trl.cell, f"TRL {known[-1]} knows no later one")

    def _bound(self, name: str, bound: str, cell: int, why: str) -> None:
        """Bound the version of a package; add the package if the notebook does not install it."""
        own = self.packages.get(name, Package(name, name, cell))
        self.packages[name] = own.with_versions(str(own.specifier & SpecifierSet(bound)))
        self._note(cell, f"{self.packages[name].line}: {why}")


def _name_of_url(url: str) -> str:
    named = re.search(r"#.*(?:egg=|subdirectory=.*/)([\w.-]+)", url)
    last = url.split("#")[0].rstrip("/").rsplit("/", 1)[-1].split("@")[0].removesuffix(".git")
    wheel = re.match(r"([A-Za-z0-9_.]+?)-\d", last)
    return canonicalize_name(named[1] if named else wheel[1] if wheel else last)


def _allowed() -> dict[str, str]:
    """Return the bounds of the versions that Unsloth accepts, by package."""
    return {canonicalize_name(name): bounds for name, bounds in versions()["allowed"].items()}


def _version(part: Specifier) -> Version:
    return Version(part.version.removesuffix(".*"))
