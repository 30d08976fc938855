"""Write the packages that a notebook installs as one requirements file, for pip and uv.

All are resolved together, also those that the notebook installs with `--no-deps`, to keep what Colab has. The few that
cannot be, because their build imports torch or their metadata asks for an old version, are installed after the file,
by the second half of the command in its first lines. What is no Python package, or not known before the notebook
runs, is kept as a comment.
"""

from __future__ import annotations

import json
import re
import shlex
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import dropwhile
from pathlib import PurePosixPath

import libcst as cst
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import Specifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from nb2ddp.facts.installs import is_colab
from nb2ddp.facts.loading import model_name
from nb2ddp.facts.program import Program
from nb2ddp.facts.releases import SUCCESSORS, needed, taken, trl_beside, uses, uses_unsloth
from nb2ddp.facts.shell import is_install
from nb2ddp.facts.sounds import asked_as_dictionary, sounds
from nb2ddp.facts.waiting import starts_engine
from nb2ddp.notebook.magics import Kind
from nb2ddp.script.launch import path_word
from nb2ddp.script.modules import ON_COLAB, ON_INDEX
from nb2ddp.script.templates import render
from nb2ddp.versions import tables

#: What installs the packages that are apart.
_APART = "pip install --no-deps --no-build-isolation"
#: Options that keep their meaning in a requirements file, with the other names that pip and uv have for them.
_SOURCES = (
    *("--index-url -i --default-index", "--extra-index-url --index", "--find-links -f", "--trusted-host"),
    *("--no-binary", "--only-binary", "-c --constraint"),
)
#: Options that name what is installed.
_NAMING = ("-e --editable", "-r --requirement --requirements")
#: Options with a value that decide what is installed, and that no requirements file can hold.
_LOST_OPTIONS = (
    "--torch-backend --exclude-newer --target -t --prefix --root --config-settings --config-setting -C --override"
    " --overrides --resolution --group --python-version --platform --abi --implementation --index-strategy"
    " --global-option --install-option --build-option".split()
)
#: Options with a value that do not.
_IDLE_OPTIONS = (
    "--cache-dir --timeout --retries --progress-bar --upgrade-strategy --log --proxy --cert --client-cert --report"
    " --use-feature --use-deprecated --exists-action --src --python -p --keyring-provider --link-mode --prerelease"
    " --refresh-package --reinstall-package --upgrade-package -P --color --directory --project --config-file"
    " --allow-insecure-host --no-build-isolation-package --no-build-package --build-constraint -b".split()
)
#: Options without a value, as they stand with a blank in them: `-- quiet`.
_SPLIT = re.compile(r"(?<!\S)--\s(?=(?:quiet|upgrade|no-deps|no-cache-dir|force-reinstall|user|pre)(?!\S))")
#: Reads the options that have a value; all else is left.
_OPTIONS = ArgumentParser(add_help=False, allow_abbrev=False)
for _names in (each.split() for each in (*_SOURCES, *_NAMING, *_LOST_OPTIONS, *_IDLE_OPTIONS)):
    _OPTIONS.add_argument(*_names, dest=_names[0], action="append", nargs="?", const="", default=[])
#: Lets pre-releases in.
_PRE_RELEASES = ">=0.dev0"
#: What starts a script, and what its setup block imports.
_NEEDED = ("accelerate", "unsloth")
#: The versions of Python that Unsloth supports.
_PYTHON = ">=3.10,<3.14"
#: The first TRL that takes arguments of transformers 5: an older one makes no trainer with it.
_KNOWS_TRANSFORMERS_5 = "0.27"
#: What Unsloth brings, where a script trains without it. Older versions of datasets do not know today's pyarrow.
_OF_TRAININGS = {name: name for name in ("torch", "transformers", "trl", "peft")} | {"datasets": "datasets>=3.4.1"}
#: The last datasets that gives sounds as dictionaries.
_DATASETS_3 = "3.6.0"
#: The first TRL that asks for a later one (`Requires-Dist` of its wheel).
_NEEDS_DATASETS_4 = "1.0.0"
#: They fit only versions of each other of about the same age.
_PAIR = ("trl", "transformers")
#: The packages that Unsloth bounds.
_BOUNDED = frozenset(map(canonicalize_name, tables()["allowed"]))
#: What bounds a version from above.
_AT_MOST = ("==", "<", "<=", "~=")
#: The versions of vLLM that bring a torch in which the newest Unsloth starts, whose torchao needs torch 2.6.
_VLLM = ">=0.8.0"
#: Packages of which each version is made for one version of torch.
_OF_TORCH = ("torchvision", "torchaudio", "xformers")
#: Packages that are built, and import torch to be built.
_BUILT_WITH_TORCH = frozenset({"causal-conv1d", "flash-attn", "mamba-ssm"})
#: Packages that mostly serve to install others, or to uninstall them.
_INSTALLERS = frozenset({"pip", "pip-autoremove", "pip3-autoremove", "uv"})
#: Packages that show and run notebooks, and the modules that need them; `tqdm.notebook` draws with ipywidgets.
_OF_NOTEBOOKS = frozenset(
    "ipykernel ipython ipywidgets jupyter jupyterlab jupyterlab-widgets notebook widgetsnbextension".split()
)
_USES_NOTEBOOKS = ("IPython", "ipykernel", "ipywidgets", "jupyterlab", "notebook", "tqdm.notebook", "traitlets")
#: Stands for the number of a cell where a notebook's own header names a package.
HEADER = 0
#: What stands for a value: of Python's, `{name}` or `$name`, as IPython fills it in.
_VALUE = re.compile(r"(?<!\$)\{([^{}]*)\}|\$([A-Za-z_]\w*)")
#: A variable of the shell; what stands for a value of the shell's or of Python's.
_VARIABLE = re.compile(r"\$(?P<brace>\{)?(?P<name>[A-Za-z_]\w*)(?(brace)\})")
_UNKNOWN = re.compile(r"[$`{]")
_SECRET = re.compile(r"(?i)key|token|secret|password")
_GEMMA_3N = re.compile(r"(?i)gemma-?3n")
#: An extra of Unsloth that takes builds for one torch, with parts of its version; without them for torch 2.1 or 2.2
#: (`Requires-Dist` of its wheel).
_OLD_BUILDS = re.compile(r"(?:cu\d+|colab)(?:-ampere)?(?:-torch(?P<major>\d)(?P<minor>\d+)\d)?")
#: A release's tag in a repository's URL: `...unsloth.git@2025-02-v2`, `...transformers@v4.49.0-Gemma-3`.
_TAG = re.compile(r"@(?:[a-z]\w*-)?v?(\d+[.-]\d+(?:\.\d+)?)(?![\w.])")
#: A library's own repository, and a commit there.
_HUGGING_FACE = re.compile(r"github\.com/huggingface/")
_COMMIT = re.compile(rf"{_HUGGING_FACE.pattern}.*@[0-9a-f]{{7,40}}(?!\w)")
#: A file or a folder.
_LOCAL = re.compile(r"[./~]|[^@]*/|.*\.(whl|zip|tar\.gz|tgz|tar\.bz2)(\[[^\]]*\])?$")
#: Begins a note of what the files list from one branch of several.
_LISTED = "listed, though"
#: Begins a note of what another branch installs for the same Python.
_OTHERWISE = re.compile(r"left out, (?!installed for python)")
#: Tests for what a new environment lacks.
_LACKED = re.compile(r"""find_spec\(["']([\w.]+)["']\) is None""")
_MISSING = re.compile(r"importlib\.util\.find_spec\(.*\) is None|(shutil\.)?which\(.*\) is None")
#: What may stand before a command.
_ENVIRONMENT = re.compile(r"sudo|time|exec|[A-Za-z_]\w*=.*", re.DOTALL)
_STARTS = re.compile(r"os\.(system|popen)|subprocess\.(run|call|check_call|check_output|Popen|getoutput)")
#: An expression in braces, whose blanks stand in strings.
_BRACES = r"""\{(?:"[^"]*"|'[^']*'|[^{}\s"'])*\}"""
#: A word of the shell. Unlike there, `transformers>=4.50` without quotes is one: nobody means the file `=4.50`.
_WORD = rf"""(?:{_BRACES}|'[^']*'|"[^"]*"|\\.|[^\s;|&()])+"""
#: Comments and redirections, which are no words; what ends a command; words.
_TOKEN = re.compile(rf"(?<!\S)(?:#.*|(?:\d*|&)[<>]+[^\S\n]*&?(?:{_WORD})?)|(?P<end>[;|&\n()]+)|(?P<word>{_WORD})")
_QUOTED = re.compile(rf"""({_BRACES})|'([^']*)'|"([^"]*)"|\\(.)""")
#: `pip` before its subcommand, also as `python -m pip` and `uv pip`; `uv` before `add`, which installs as well.
_PIP = re.compile(
    r"(?:(?:(?:\S*/)?python[\d.]*|\{sys\.executable\}) (?:-[uIq] )*-m )?(?:(?:uv )?(?:\S*/)?pip[\d.]*|uv(?= add)) "
)


@dataclass(frozen=True)
class Package:
    """One requirement of a notebook.

    Attributes:
        line: its line in a requirements file.
        name: its canonical name; for a bare URL, taken from the URL's last part.
        cell: the notebook's cell that installs it.
        sources: the lines about indexes from its command.
        is_apart: it is installed after the others, without its dependencies and without build isolation.
    """

    line: str
    name: str
    cell: int
    sources: tuple[str, ...] = ()
    is_apart: bool = False

    @property
    def requirement(self) -> Requirement | None:
        """The line as a `Requirement`; None for a bare URL or a file."""
        return _requirement(self.line)

    @property
    def specifier(self) -> str:
        """The bounds on its version; empty for any version, a URL or a file."""
        own = self.requirement
        return "" if own is None else str(own.specifier)

    @property
    def is_open(self) -> bool:
        """True if it accepts any version."""
        own = self.requirement
        return own is not None and not own.url and self.specifier in ("", _PRE_RELEASES)

    def bounded(self, bound: str) -> Package:
        """Return the package with another bound on its version, in place of looser ones; URLs and files stay."""
        has_top = bound.startswith("<")
        tops = (part for part in SpecifierSet(self.specifier) if has_top and part.operator in ("<", "<="))
        looser = {str(part) for part in tops if not SpecifierSet(bound).contains(part.version, True)}
        return self.with_versions(",".join(part for part in [*self.specifier.split(","), bound] if part not in looser))

    def takes(self, version: str) -> bool:
        """True if the notebook leaves this version open; of a source, if it is the newest."""
        own = self.requirement
        return own.specifier.contains(version, True) if own and not own.url else not _TAG.search(self.line)

    def released(self, bounds: str) -> Package:
        """Return the package in a release within these bounds, also in place of a source."""
        name = re.split("[ @]", self.line)[0] if self.requirement else self.name
        return self.with_versions(bounds) if self.specifier or self.is_open else replace(self, line=f"{name}{bounds}")

    def with_versions(self, bounds: str) -> Package:
        """Return the package with only these bounds on its version; URLs and files stay as they are."""
        own = self.requirement
        if own is None or own.url:
            return self
        own.specifier = SpecifierSet(bounds)
        return replace(self, line=str(own))


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

        A version that pip installs without dependencies overrides what the others ask for, as it does when pip comes to
        it; mere bounds do not, as pip leaves what is there and meets them. What Unsloth takes overrides what does not
        fit it.

        Args:
            requires_python: the accepted versions of Python; empty means those that Unsloth supports.
        """
        lines: dict[str, str] = {}
        for package in self.packages:
            own = package.requirement
            if own is not None:
                lines.setdefault(canonicalize_name(own.name), package.line)
            elif not package.line.startswith("-"):
                lines.setdefault(package.name, f"{package.name} @ {package.line}")
        asked = {Requirement(tables()["unfit"][name]).name for name in lines.keys() & tables()["unfit"].keys()}
        overrides = [f"{name}{tables()['allowed'][name]}" for name in sorted(asked)]
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
    """Return the name of a script's requirements file, beside the script."""
    return f"{PurePosixPath(script_name).stem}.requirements.txt"


def install_command(file: str, text: str) -> str:
    """Return the line that installs a requirements file.

    Args:
        file: its path from the current folder.
        text: what it holds.
    """
    apart = re.search(rf"(?m)^#   .*( && {_APART} .*)$", text)
    return f"pip install -r {shlex.quote(path_word(file))}{apart[1] if apart else ''}"


def requirements(program: Program, minimums: Iterable[tuple[str, str]] = ()) -> Requirements:
    """Return what a notebook installs outside Colab, in its own order.

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
        #: What a note names, by the note without that.
        self.told: dict[tuple[int, str], list[str]] = {}
        #: The names of the packages that words of commands ask for, by these words; empty for no package.
        self.asked: dict[str, str] = {}
        #: The packages that a command uninstalls and no later one installs, by its note.
        self.uninstalled: dict[tuple[int, str], set[str]] = {}
        #: By their names.
        self.packages: dict[str, Package] = {}
        #: The values that shell commands and Python give variables of the environment; "$" for one that is not known.
        self.variables: dict[str, set[str]] = {}
        for _, name, value in program.settings:
            self.variables.setdefault(str(name), set()).add(value if isinstance(value, str) else "$")

    def result(self, minimums: dict[str, str]) -> Requirements:
        self._install(list(self.program.notebook.metadata.dependencies), HEADER)
        for call in self.tree.live(cst.Call):
            for words in _split(_SPLIT.sub("--", self._shell_text(call))):
                self._command(call, words)
        self._add_imported()
        if (fixed := self.packages.get("transformers")) and "==" in fixed.specifier:
            self.packages.pop("tokenizers", None)  # it brings its own
        packages = list(self.packages.values())
        if minimums:
            packages = self._fitting(packages, minimums)
        packages = _raised(packages, minimums)
        self._bound_what_has_gone(packages)
        self._bound_beside_trl(packages)
        self._decode_sounds(packages)
        return Requirements(tuple(packages), tuple(self._noted(packages)))

    def _noted(self, packages: list[Package]) -> Iterator[tuple[int, str]]:
        """Return the notes in full: of what a branch lists, with what the files have; of values, if that is all.

        What a branch leaves out is told unless the files have it, Unsloth brings it, or another branch asks for it. No
        note tells that a package is not uninstalled which a later command installs.
        """
        names = {package.name for package in packages}
        had = {*(package.line for package in packages), *self.asked}
        had_in_any = names | (_BOUNDED | {"unsloth-zoo"} if "unsloth" in names else frozenset())
        for cell, note in dict.fromkeys(self.notes):
            named = self.told.get((cell, note))
            if named is None and self.uninstalled.get((cell, note)) != set():
                yield cell, note
            elif named:
                known = [word for word in named if word and not _VALUE.fullmatch(word)] or named
                if note.startswith(_LISTED):
                    known = [word for word in known if self.asked.get(word) in names]
                elif _OTHERWISE.match(note):
                    known = [word for word in known if word not in had and _canonical(word) not in had_in_any]
                if known:
                    yield cell, f"{note}: {', '.join(known)}"

    def _add_imported(self) -> None:
        """Add what the code imports, or starts an engine with, and the notebook does not install."""
        named = set(self.packages)
        trained_with = {"unsloth": "unsloth"} if uses_unsloth(self.tree) else _OF_TRAININGS
        for module, line in (ON_COLAB | ON_INDEX | trained_with).items():
            found = self._taken_by(module)
            if found is not None and (name := canonicalize_name(Requirement(line).name)) not in named:
                where, why = found
                has = ", and Colab has it" if module in ON_COLAB else ""
                self._add(Package(line, name, self._cell(where)))
                self.notes.append((self._cell(where), f"{name} is added: {why}{has}"))

    def _taken_by(self, module: str) -> tuple[cst.CSTNode, str] | None:
        """Return what takes a module, and how; None if nothing does."""
        if self.program.written(f"{module}.py") == f"{module}.py":  # a module of the notebook's own
            return None
        imported = self._imported(module)
        if imported is not None and not (module in ON_INDEX and self._does_without(imported)):
            return imported, "the code imports it"
        if module == "vllm" and any(starts_engine(self.tree, load) for load in self.program.loads):
            return self.program.loads[0], "fast_inference takes it"
        if module == "timm":
            seeing = [load for load in self.program.loads if _GEMMA_3N.search(model_name(self.tree, load))]
            if seeing:
                return seeing[0], "Gemma 3n sees with it"
        trackers = [value for value in self.tree.given("report_to") if self.tree.is_live(value)]
        return next(((value, "report_to names it") for value in trackers if module in self.tree.texts(value)), None)

    def _cell(self, node: cst.CSTNode) -> int:
        return self.program.cell_at(self.tree.start(node)).number

    def _bound_what_has_gone(self, packages: list[Package]) -> None:
        """Require the last version that has what the code uses, if the newest one has not."""
        for use in [use for name in _PAIR for use in needed(self.tree, name, self._taken(name, packages)[1])]:
            own, releases = self._taken(use.library, packages)
            has = [release for release in releases if use.is_in(release)]
            if has and not use.is_in(releases[-1]):
                new = Package(use.library, use.library, self._cell(use.node))
                self._bound(packages, own, new, f"<={has[-1]}", f"no later version has {use.name}")

    def _bound_beside_trl(self, packages: list[Package]) -> None:
        """Require transformers 4 beside a TRL that knows no other, if the notebook takes any."""
        (trl, known), (own, releases) = (self._taken(name, packages) for name in ("trl", "transformers"))
        is_old = trl is not None and known and Version(known[-1]) < Version(_KNOWS_TRANSFORMERS_5)
        if trl and is_old and releases and Version(releases[0]) < Version("5") <= Version(releases[-1]):
            new = Package("transformers", "transformers", trl.cell)
            self._bound(packages, own, new, "<5", f"TRL {known[-1]} knows no later one")

    def _bound(self, packages: list[Package], own: Package | None, new: Package, bound: str, why: str) -> None:
        """Bound the version of the notebook's package; of a new one if it has none, or installs the newest source."""
        at = len(packages) if own is None else packages.index(own)
        is_newest = own is not None and own.requirement is None and not _TAG.search(own.line)
        package = (new if is_newest else own or new).bounded(bound)
        packages[at : at + 1] = [package]
        self.notes.append((new.cell, f"{package.line}: {why}"))

    def _decode_sounds(self, packages: list[Package]) -> None:
        """Add what datasets decodes sounds with, and does not bring (its documentation, "Load audio data").

        Where the code needs dictionaries, as datasets 3 gives them, require that, if the notebook takes it.
        """
        decoded = sounds(self.tree)
        own = _of(packages, "datasets")
        asked = asked_as_dictionary(self.program)
        if asked is not None and self._may_take_datasets_3(own, packages):
            new = Package(_OF_TRAININGS["datasets"], "datasets", self._cell(asked))
            why = "no later version gives sounds as dictionaries, as the code needs them"
            self._bound(packages, own, new, "<4", why)
        heard = [pair for pair in self.tree.live(cst.DictElement) if self._is_of_sound(pair)]
        named = {package.name for package in packages}
        is_older = any(own.name == "datasets" and _is_older(own, Version("4")) for own in packages)
        wanted, needs = (("librosa", "soundfile"), "") if is_older else (("torchcodec",), "; it needs ffmpeg")
        for name in [name for name in wanted if decoded and name not in named]:
            why = f"datasets {3 if is_older else 4} decodes sounds with it{needs}"
            self._add_for(packages, name, decoded[0], why)
        if heard and not decoded and not named & {"librosa", "torchcodec"}:
            self._add_for(packages, "librosa", heard[0], "transformers reads sounds of messages with it")

    def _may_take_datasets_3(self, own: Package | None, packages: list[Package]) -> bool:
        """True where the notebook leaves the major version of datasets open, and takes a TRL that takes the third."""
        trl, releases = self._taken("trl", packages)
        is_source = trl is not None and not (trl.specifier or trl.is_open)
        takes = bool(releases) and Version(releases[0]) < Version(_NEEDS_DATASETS_4) and not is_source
        return takes and (own is None or (own.takes(_DATASETS_3) and not _is_older(own, Version("4"))))

    def _add_for(self, packages: list[Package], name: str, node: cst.CSTNode, why: str) -> None:
        """Add a package that some code needs, and say why."""
        packages.append(Package(name, name, self._cell(node)))
        self.notes.append((self._cell(node), f"{name} is added: {why}"))

    def _is_of_sound(self, pair: cst.DictElement) -> bool:
        """True for `"type": "audio"`, which a part of a message has."""
        return (self.tree.literal(pair.key), self.tree.literal(pair.value)) == ("type", "audio")

    def _taken(self, library: str, packages: list[Package]) -> tuple[Package | None, tuple[str, ...]]:
        """Return a package of a notebook, and the releases of it that a job may have."""
        own, transformers = _of(packages, library), _of(packages, "transformers")
        asked, with_unsloth = own.specifier if own else "", uses_unsloth(self.tree)
        if library == "trl" and transformers and (own is None or asked or own.is_open):
            asked = trl_beside(asked, transformers.specifier, with_unsloth)
        return own, taken(library, asked, with_unsloth)

    def _fitting(self, packages: list[Package], minimums: dict[str, str]) -> list[Package]:
        """Return packages without the versions that the script or its Unsloth does not take.

        Where TRL or transformers is too old, both come as most notebooks pin them, unless the code needs another one
        or the notebook asks for transformers 5; all else takes any version. What is made for one torch keeps its
        version only beside a torch of the notebook's own.
        """
        floors = {str(canonicalize_name(name)): f">={version}" for name, version in minimums.items()}
        allowed = {str(canonicalize_name(name)): bounds for name, bounds in tables()["allowed"].items()}
        bounds = {"vllm": _VLLM, **allowed, **floors}
        unfit = {own.name for own in packages if own.name in bounds and not _fits(own, SpecifierSet(bounds[own.name]))}
        old = [own for own in packages if own.name in _PAIR and own.name in unfit and _is_of_version(own)]
        _, releases = self._taken("transformers", packages)
        pins = _pins() if old and not (releases and Version(releases[0]) >= Version("5")) else {}
        older = [use for use in uses(self.tree) if use.name not in SUCCESSORS]
        for library in {use.library for use in older if pins and not use.is_in(tables()["pinned"][use.library])}:
            pins.pop(library)  # the code needs another release
        torch = _of(packages, "torch")
        has_torch = torch is not None and not unfit & {"torch", "vllm"} and _is_held(torch)
        loose = unfit | (set() if has_torch else {*_OF_TORCH}) | ({"torch"} if "vllm" in unfit else set())
        fitting = []
        for own in packages:
            new, why = own, "the script's Unsloth may not accept that version"
            if own.name in pins and (own.name in unfit or own.is_open):
                new, why = own.released(f"=={pins[own.name]}"), "most notebooks pin it"
            elif own.name in unfit or (own.name in loose and _is_held(own)):
                new = own.released(floors.get(own.name, ""))
                why = "on several GPUs the script stops below that" if own.name in floors else why
                why = "each version is made for one torch" if own.name in _OF_TORCH else why
            if new != own:
                self.notes.append((own.cell, f"{own.line} is replaced by {new.line}: {why}"))
            fitting.append(new)
        added = [f"{name}=={version}" for name, version in pins.items() if _of(packages, name) is None]
        self.notes += [(old[0].cell, f"{line} is added: most notebooks pin it") for line in added]
        return [*fitting, *(Package(line, line.partition("==")[0], old[0].cell) for line in added)]

    # -- commands -------------------------------------------------------------------------------------------

    def _shell_text(self, call: cst.Call) -> str:
        """Return the shell command of a call; empty for any other call."""
        form = self.program.form(call)
        if form is None:
            return self._python_command(call)
        if form.kind is Kind.CELL_MAGIC and form.name in ("bash", "sh", "script"):
            return form.body or ""
        return self._filled(str(form), self.tree.start(call)) if form.kind in (Kind.SHELL, Kind.LINE_MAGIC) else ""

    def _python_command(self, call: cst.Call) -> str:
        """Return the command line of `subprocess.run` and similar calls; empty for any other call."""
        if not call.args or not _STARTS.fullmatch(self.tree.qualified(call.func)):
            return ""
        value = call.args[0].value
        if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value == "split":
            value = value.func.value
        value = self.tree.value(value)
        if isinstance(value, (cst.List, cst.Tuple)):
            return shlex.join(self._word(each.value, call) for each in value.elements)
        return self._word(value, call)

    def _word(self, node: cst.BaseExpression, call: cst.Call) -> str:
        text = self._text(node, self.tree.start(call))
        return f"{{{self.tree.text(node)}}}" if text is None else text

    def _command(self, call: cst.Call, words: list[str]) -> None:
        """Read one simple command, if it is about packages."""
        cell = self._cell(call)
        command = _shown(" ".join(words))
        rest = list(dropwhile(_ENVIRONMENT.fullmatch, words))
        subcommand, arguments = _pip(rest)
        if not rest or rest[0] == "export":
            for name, is_set, value in (word.partition("=") for word in words):
                self.variables.setdefault(name, set()).update([value] if is_set else ())
        elif subcommand or is_install(" ".join(rest)):
            is_taken, why = self._branch(call)
            if subcommand in ("install", "add"):
                self._tell(cell, why, _named(list(map(self._without_variables, arguments))))
            elif not is_taken and subcommand in ("", "uninstall", "download", "wheel", "sync"):
                self._tell(cell, why, [command])
            if is_taken and not subcommand and rest[0] not in _INSTALLERS:
                self.notes.append((cell, f"not a Python package: {command}"))
            elif is_taken and subcommand in ("install", "add"):
                self._install(arguments, cell)
            elif is_taken and subcommand in ("", "uninstall", "download", "wheel", "sync"):
                self.notes.append((cell, f"not done here: {command}"))
                if subcommand == "uninstall":
                    self.uninstalled[self.notes[-1]] = set(map(_canonical, _named(arguments)))

    # -- branches -------------------------------------------------------------------------------------------

    def _tell(self, cell: int, why: str, what: list[str]) -> None:
        """Note what is installed elsewhere, or not at all: for each reason in one note of a cell."""
        if why and what:
            self.notes.append((cell, why))
            self.told.setdefault((cell, why), []).extend(map(_shown, what))

    def _branch(self, call: cst.Call) -> tuple[bool, str]:
        """Return whether a command runs outside Colab, and how to begin a note about it; empty for none."""
        why = ""
        below: cst.CSTNode = call
        for above in self.tree.ancestors(call):
            if isinstance(above, cst.If):
                holds, in_body = self._holds(above.test), above.body is below
                test = " ".join(self.tree.text(above.test).split())
                if holds is None and (in_body or not self._installs_below(above.body)):
                    why = f"{_LISTED} the notebook tests {test} first"
                elif holds is not in_body and is_colab(test) is not None:
                    missing = _LACKED.search(test)
                    return False, "left out, on Colab " + (f"or where {missing[1]} is missing" if missing else "only")
                elif holds is not in_body:
                    return False, f"left out, installed {'if' if in_body else 'unless'} {test}"
            elif isinstance(above, cst.ExceptHandler):
                whole = cst.ensure_type(self.tree.parents[above], cst.Try)
                if self._installs_below(whole.body):
                    return False, "left out, a fallback if another install fails"
            below = above
        return True, why

    def _installs_below(self, body: cst.CSTNode) -> bool:
        return any(self.program.installs.is_install(call) for call in self.tree.within(body, cst.Call))

    def _holds(self, test: cst.BaseExpression) -> bool | None:
        """Return whether a test is true in a new environment outside Colab; None if unknown."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            inner = self._holds(test.expression)
            return None if inner is None else not inner
        for text in (self.tree.text(self.tree.value(test)), self.tree.text(test)):
            if (colab := is_colab(text)) is not None:
                return colab  # also of `torch is missing or this is Colab`: what follows is made for Colab
            if _MISSING.fullmatch(text):
                return True
        constant = self.tree.literal(test)
        return bool(constant) if constant is not ... else None

    # -- values ---------------------------------------------------------------------------------------------

    def _filled(self, text: str, before: int) -> str:
        """Return a text with `{name}` and `$name` replaced, if the notebook binds the name once above, to a text."""

        def fill(match: re.Match[str]) -> str:
            bindings = [binding for binding in self.tree.bindings(match[1] or match[2]) if binding.offset < before]
            value = bindings[0].value if len(bindings) == 1 else None
            text = None if value is None else self._text(value, bindings[0].offset)
            return match[0] if text is None else text

        return _VALUE.sub(fill, text)

    def _text(self, node: cst.BaseExpression, before: int) -> str | None:
        """Return the text of an expression, from bindings before an offset; None if unknown."""
        if isinstance(node, cst.FormattedString):
            texts = (
                self.tree.content(part) if isinstance(part, cst.FormattedStringText) else self.tree.text(part)
                for part in node.parts
            )
            return self._filled("".join(texts), before)
        value = self.tree.literal(node)
        return str(value) if isinstance(value, (str, int, float)) else None

    # -- one command ----------------------------------------------------------------------------------------

    def _install(self, arguments: list[str], cell: int) -> None:
        """Read the arguments of `pip install` and `uv add`."""
        known, words = _OPTIONS.parse_known_args(list(map(self._without_variables, arguments)))
        options: dict[str, list[str]] = vars(known)
        flags = {word for word in words if word.startswith("-")}
        sources = sorted(flags & {"--prefer-binary", "--no-index"})
        unknown = []
        for name in (names.split()[0] for names in (*_SOURCES, *_LOST_OPTIONS)):
            for value in options[name]:
                if name in _LOST_OPTIONS or not value.isprintable() or " " in value:
                    unheld = _shown(f"{name} {value}")
                    self.notes.append((cell, f"no requirements file has this option: {unheld}"))
                elif _UNKNOWN.search(value):
                    unknown.append(f"{name} {value}")
                else:
                    sources.append(f"{name} {value}")
        takes_pre_releases = "--pre" in flags or "allow" in options["--prerelease"]
        named = [("", word) for word in words if word not in flags]
        named += [(option, word) for option in ("-e", "-r") for word in options[option]]
        for option in unknown:
            told = f"{option} is left out: it is not known before the notebook runs"
            self.notes.append((cell, f"{told}; give it to pip for {_shown(' '.join(word for _, word in named))}"))
        for option, word in named:
            package = self._package(option, word, cell)
            self.asked[_shown(f"{option} {word}".strip())] = package.name if package is not None else ""
            if package is not None:
                if takes_pre_releases and "==" not in package.line.partition(";")[0]:
                    package = package.bounded(_PRE_RELEASES)
                is_newest = bool(flags & {"-U", "--upgrade"}) and package.is_open
                is_built = package.requirement is None and "--no-build-isolation" in flags
                is_apart = is_built or package.name in _BUILT_WITH_TORCH | tables()["unfit"].keys()
                self._add(replace(package, sources=tuple(sources), is_apart=is_apart), is_newest)

    def _without_variables(self, text: str, above: frozenset[str] = frozenset()) -> str:
        """Return a text with variables of the shell replaced, if the notebook gives each one value, made of no command.

        A variable that may hold a token stays.

        Args:
            text: the text.
            above: the variables in whose values it stands.
        """

        def fill(match: re.Match[str]) -> str:
            name = match["name"]
            values = self.variables.get(name, set())
            value = next(iter(values)) if len(values) == 1 and name not in above and not _SECRET.search(name) else ""
            is_told = value and not _UNKNOWN.search(_VARIABLE.sub("", value))
            return self._without_variables(value, above | {name}) if is_told else match[0]

        return _VARIABLE.sub(fill, text)

    def _package(self, option: str, word: str, cell: int) -> Package | None:
        """Return one argument as a package; None, with a note, if it is not one."""
        word = word.strip()  # as pip reads it
        is_url = bool(re.match(r"(git|hg|svn|bzr)\+|\w+://", word))
        line = f"{option} {word}".strip()
        if _VALUE.search(word):
            why = "not known before the notebook runs"
        elif not word.isprintable() or (" " in word and (is_url or option)):  # one line of the file for each
            why = "not a requirement"
        elif is_url:
            return Package(line, _name_of_url(word), cell)
        elif option or _LOCAL.match(word):
            why = "a file or folder of the machine that ran the notebook"
        elif (own := _requirement(word)) is None:
            why = "not a requirement"
        else:
            name = canonicalize_name(own.name)
            if name == "marimo" or (name in _INSTALLERS and self._imported(name) is None):
                return None
            if name in _OF_NOTEBOOKS and not any(self._imported(module) for module in _USES_NOTEBOOKS):
                self._tell(cell, "only for the notebook", [line])
                return None
            if name == "unsloth" and (old := set(filter(_is_of_old_torch, own.extras))):
                own.extras -= old
                told = f"{line} is replaced by {own}: {', '.join(sorted(old))} takes builds for an old torch"
                self.notes.append((cell, told))
                line = str(own)
            return Package(line, name + (f"; {own.marker}" if own.marker else ""), cell)
        self.notes.append((cell, f"{why}: {_shown(line)}"))
        return None

    def _imported(self, name: str) -> cst.CSTNode | None:
        """Return the offset at which code that stays first imports a module, or None."""
        covers = self.program.installs.covers
        imports = [node for node, *_ in self.tree.imports(name) if self.tree.is_live(node) and not covers(node)]
        return min(imports, key=self.tree.start, default=None)

    def _add(self, new: Package, is_newest: bool = False) -> None:
        """Add a package. If two commands name it, the later one decides, unless it takes any version that is there."""
        for names in self.uninstalled.values():
            names.discard(new.name)
        old = self.packages.get(new.name)
        kept = new if old is None or is_newest else _joined(old, new)
        if old is not None and not old.is_open and old.line != kept.line and (is_newest or not new.is_open):
            self.notes.append((old.cell, f"{old.line} is replaced by {kept.line} of cell {new.cell}"))
        self.packages[new.name] = kept

    def _does_without(self, statement: cst.CSTNode) -> bool:
        """True for an import in a `try` after which the code goes on: it asks whether the package is there."""
        tried = self.tree.around(statement, cst.Try)
        return tried is not None and not any(self.tree.within(handler, cst.Raise) for handler in tried.handlers)


def _joined(old: Package, new: Package) -> Package:
    """Return the line of two that decides, with the extras of both, and then the indexes too."""
    chosen, other = (old, new) if new.is_open else (new, old)
    own, more = chosen.requirement, other.requirement
    if own is None or more is None or more.extras <= own.extras:
        return chosen
    own.extras |= more.extras
    return replace(chosen, line=str(own), sources=tuple(dict.fromkeys((*old.sources, *new.sources))))


def _of(packages: list[Package], name: str) -> Package | None:
    """Return the first of the packages with a name."""
    return next((package for package in packages if package.name == name), None)


def _requirement(text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _canonical(word: str) -> str:
    """Return the canonical name of a package that a word asks for in any version; the word itself for all else."""
    own = _requirement(word)
    return word if own is None or own.extras or own.specifier or own.url else canonicalize_name(own.name)


def _name_of_url(url: str) -> str:
    egg = re.search(r"#.*egg=([\w.-]+)", url) or re.search(r"#.*subdirectory=.*/([\w.-]+)", url)
    last = url.split("#")[0].rstrip("/").rsplit("/", 1)[-1].split("@")[0].removesuffix(".git")
    wheel = re.match(r"([A-Za-z0-9_.]+?)-\d", last)
    return canonicalize_name(egg[1] if egg else wheel[1] if wheel else last)


def _is_of_old_torch(extra: str) -> bool:
    """True for an extra of Unsloth that takes builds for a torch before 2.6, which torchao, that it brings, needs."""
    found = _OLD_BUILDS.fullmatch(extra)
    return found is not None and (int(found["major"] or 2), int(found["minor"] or 1)) < (2, 6)


def _pins() -> dict[str, str]:
    """The libraries that most notebooks pin to other versions than the newest, and these versions."""
    newest = tables()["newest"]
    pins = {name: version for name, version in tables()["pinned"].items() if version != newest[name]}
    return {str(canonicalize_name(name)): version for name, version in pins.items()}


def _fits(package: Package, bounds: SpecifierSet) -> bool:
    """True if some version fits that the package may have, or a newer one: a newer Unsloth may take that."""
    own = package.requirement
    if own is None or own.url:
        tag = _TAG.search(package.line)
        lowest = next(_version(part) for part in bounds if part.operator == ">=")
        return _version_of(tag) >= lowest if tag else not _is_refused(package.line, bounds)
    tops = [_version(part) for part in own.specifier if part.operator in _AT_MOST]
    limits = [_version(part) for part in bounds if part.operator in ("<", "<=")]
    both = own.specifier & bounds
    tried = map(_version, [*own.specifier, *bounds])
    return not tops or min(tops) > min(limits, default=min(tops)) or any(both.contains(each, True) for each in tried)


def _is_of_version(package: Package) -> bool:
    """True unless it is of a source that names no release."""
    return bool(package.specifier or _TAG.search(package.line))


def _is_held(package: Package) -> bool:
    """True if a package must not be newer than some version, or is of a source."""
    own = package.requirement
    return own is None or bool(own.url) or any(part.operator in _AT_MOST for part in own.specifier)


def _is_refused(source: str, bounds: SpecifierSet) -> bool:
    """True for a library's own source without a release's tag that pip finds not to fit these bounds, or may.

    A commit may have any version; the newest state has a later one than all releases.
    """
    has_last = any(part.operator == "<=" for part in bounds)
    return bool((_HUGGING_FACE if has_last else _COMMIT).search(source))


def _is_older(package: Package, version: Version) -> bool:
    """True if a package must be older than a version."""
    own = package.requirement
    if own is None or own.url:
        tag = _TAG.search(package.line)
        return tag is not None and _version_of(tag) < version
    tops = [_version(part) for part in own.specifier if part.operator in _AT_MOST]
    return bool(tops) and min(tops) <= version and not own.specifier.contains(version, True)


def _version_of(tag: re.Match[str]) -> Version:
    return Version(tag[1].replace("-", "."))


def _version(part: Specifier) -> Version:
    return Version(part.version.removesuffix(".*"))


def _raised(packages: list[Package], minimums: dict[str, str]) -> list[Package]:
    """Return packages with the script's lowest versions if the notebook accepts any; dependencies likewise."""
    floors = {str(canonicalize_name(name)): (name, f">={version}") for name, version in minimums.items()}
    missing = sorted(floors.keys() - {package.name for package in packages})
    open_ones = [package for package in packages if package.is_open and package.name in floors]
    raised = [package for package in packages if package.specifier == floors.get(package.name, ("", "none"))[1]]
    unsloth = [package for package in (*open_ones, *raised) if package.name == "unsloth"]
    added = [replace(package, line="".join(floors[name]), name=name) for package in unsloth for name in missing]
    return [each.bounded(floors[each.name][1]) if each in open_ones else each for each in packages] + added


def _pip(words: list[str]) -> tuple[str, list[str]]:
    """Split a pip command into its subcommand and the words around it; empty for other commands."""
    pip = _PIP.match(" ".join(words))
    rest = words[pip[0].count(" ") :] if pip else []
    at = next((n for n, word in enumerate(rest) if not word.startswith("-")), None)
    return ("", []) if at is None else (rest[at], [*rest[:at], *rest[at + 1 :]])


def _split(text: str) -> list[list[str]]:
    """Return the commands of a shell text as words, without redirections and comments."""
    commands: list[list[str]] = [[]]
    for token in _TOKEN.finditer(text.replace("\\\n", " ")):
        if token["end"]:
            commands.append([])
        elif (word := _QUOTED.sub(lambda quoted: quoted[quoted.lastindex or 0], token["word"] or "")).strip():
            commands[-1].append(word)
    return [words for words in commands if words]


def _named(arguments: list[str]) -> list[str]:
    """Return what the arguments of `pip install` name, but pip itself and the like."""
    known, words = _OPTIONS.parse_known_args(arguments)
    named = [word for word in words if not word.startswith("-") and word not in _INSTALLERS]
    return [*named, *(f"{option} {word}" for option in ("-e", "-r") for word in vars(known)[option])]


def _shown(text: str) -> str:
    """Return a text on one line, for a comment."""
    line = " ".join(text.split())
    return line if line.isprintable() else line.encode("unicode_escape").decode()
