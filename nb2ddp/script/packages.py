"""Write the packages that a notebook installs as requirements files for pip.

Some options apply only to a whole pip command, not to a line of a file (pip's manual, "Requirements File Format"):
packages installed with `--no-deps` or `--no-build-isolation` get files of their own, with the command that installs
them. What is no Python package, or not known before the notebook runs, is kept as a comment.
"""

from __future__ import annotations

import json
import re
import shlex
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
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
from nb2ddp.facts.texts import spelled
from nb2ddp.facts.waiting import starts_engine
from nb2ddp.notebook.magics import Kind
from nb2ddp.script.launch import path_word
from nb2ddp.script.modules import METRICS, ON_COLAB, ON_INDEX
from nb2ddp.script.templates import render
from nb2ddp.syntax.tree import argument
from nb2ddp.versions import tables

#: Options that pip knows on its command line alone, in the order in which what they hold is installed.
_COMMAND_OPTIONS = ("--no-build-isolation", "--no-deps")
#: The options that packages of one file share, in the order in which the files are installed.
GROUPS = ((), ("--no-build-isolation",), ("--no-deps",), _COMMAND_OPTIONS)
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
#: Reads the options of `git clone` that have a value.
_CLONE = ArgumentParser(add_help=False, allow_abbrev=False)
for _names in (["-b", "--branch"], ["--depth"], ["-j", "--jobs"], ["-c", "--config"], ["-o", "--origin"]):
    _CLONE.add_argument(*_names, dest=_names[-1].lstrip("-"), nargs="?")
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
#: They need some versions of each other, and of other packages: one that comes without what it needs may not start.
_BOUNDING = frozenset({"datasets", "huggingface-hub", "tokenizers", "transformers"})
#: They fit only versions of each other of about the same age.
_PAIR = ("trl", "transformers")
#: The packages that Unsloth bounds, and how alike one of them and a misspelt one are at least, by `difflib`.
_BOUNDED = frozenset(map(canonicalize_name, tables()["allowed"]))
_MISSPELT = 0.93
#: What Unsloth brings without bounds that count here (Requires-Dist of the wheels of unsloth and unsloth_zoo
#: 2026.10.9), and the packages of its own, whose newest source has the version of the newest release.
_UNBOUNDED = frozenset(
    "cut-cross-entropy diffusers einops hf-transfer msgspec nest-asyncio numpy packaging pillow protobuf psutil"
    " pydantic pyyaml regex requests rich torchvision tqdm typer tyro unsloth-zoo wheel".split()
)
_OWN = frozenset({"unsloth", "unsloth-zoo"})
#: What bounds a version from above.
_AT_MOST = ("==", "<", "<=", "~=")
#: Packages of which each version is made for one version of torch.
_OF_TORCH = ("torchvision", "torchaudio", "xformers")
#: The modules that langchain still has from 1.0 on (the wheel of 1.5.2).
_LANGCHAIN_1 = frozenset("agents chat_models embeddings mcp messages rate_limiters tools".split())
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
#: An index of PyTorch for a version of CUDA that has no torch from 2.6 on.
_OLD_TORCH = re.compile(r"index-url \S*download\.pytorch\.org/whl/cu(?:9\d|10\d|11[0-7]|121)(?!\d)")
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
#: A Python of one version.
_VERSIONED = re.compile(r"(?:\S*/)?(python3\.\d+)")


@dataclass(frozen=True)
class Package:
    """One requirement of a notebook.

    Attributes:
        line: its line in a requirements file.
        name: its canonical name; for a bare URL, taken from the URL's last part.
        cell: the notebook's cell that installs it.
        group: the options that pip accepts only for a whole command.
        sources: the lines about indexes from its command.
    """

    line: str
    name: str
    cell: int
    group: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

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
        notes: what the files leave out and why, as pairs of cell and sentence.
    """

    packages: tuple[Package, ...]
    notes: tuple[tuple[int, str], ...]

    def __bool__(self) -> bool:
        return bool(self.packages or self.notes)

    @property
    def groups(self) -> dict[tuple[str, ...], list[Package]]:
        """The packages of each file. The first file also holds the notes."""
        by_group = {group: [package for package in self.packages if package.group == group] for group in GROUPS}
        return {group: own for group, own in by_group.items() if own or (self and not group)}

    def files(self, script_name: str, title: str = "the notebook") -> dict[str, str]:
        """Return the text of each file by its name; none if the notebook installs nothing."""
        return {
            file_name(script_name, group): render(
                "requirements.txt.j2",
                title=title,
                group=group,
                commands=self.commands(script_name),
                command=install_command(file_name(script_name, group), group),
                notes=[] if group else self.notes,
                options=_sources(packages),
                lines=[package.line for package in packages],
            )
            for group, packages in self.groups.items()
        }

    def commands(self, script_name: str) -> list[str]:
        """Return the command that installs each file, in order."""
        return [install_command(file_name(script_name, group), group) for group in self.groups]

    def header(self, requires_python: str = "") -> str:
        """Return the packages as inline script metadata, which uv reads.

        A version that pip installs without dependencies overrides what the others ask for, as it does when pip comes to
        it; mere bounds do not, as pip leaves what is there and meets them. What Unsloth takes overrides what does not
        fit it.

        Args:
            requires_python: the accepted versions of Python; empty means those that Unsloth supports.
        """
        lines: dict[str, str] = {}
        overrides = []
        packages = [package for own in self.groups.values() for package in own]
        for package in packages:
            own = package.requirement
            if own is not None:
                lines.setdefault(canonicalize_name(own.name), package.line)
                is_pinned = any(part.operator in ("==", "===") for part in own.specifier)
                overrides += [package.line] if "--no-deps" in package.group and is_pinned else []
            elif not package.line.startswith("-"):
                lines.setdefault(package.name, f"{package.name} @ {package.line}")
        asked = {Requirement(tables()["unfit"][name]).name for name in lines.keys() & tables()["unfit"].keys()}
        overrides += [f"{name}{tables()['allowed'][name]}" for name in sorted(asked)]
        missing = [name for name in _NEEDED if name not in lines]
        options = [option.split(" ", 1)[1] for each in packages for option in each.sources if "index-url" in option]
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


def file_name(script_name: str, group: tuple[str, ...]) -> str:
    """Return the name of a group's file, beside the script."""
    return f"{PurePosixPath(script_name).stem}.requirements{''.join(option[1:] for option in group)}.txt"


def install_command(file: str, group: tuple[str, ...]) -> str:
    """Return the command that installs a group's file, given its path from the current folder."""
    return f"pip install {' '.join([*group, '-r', shlex.quote(path_word(file))])}"


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
        #: By their names, and by whether pip leaves their dependencies out.
        self.packages: dict[tuple[str, bool], Package] = {}
        #: The values that shell commands and Python give variables of the environment; "$" for one that is not known.
        self.variables: dict[str, set[str]] = {}
        for _, name, value in program.settings:
            self.variables.setdefault(str(name), set()).add(value if isinstance(value, str) else "$")
        #: The sources that commands clone, by their folders, and the folder that the last `cd` entered.
        self.clones: dict[str, str] = {}
        self.folder = ""
        #: What the function around a command is called with, by the names of its parameters.
        self.given: dict[str, list[str]] = {}

    def result(self, minimums: dict[str, str]) -> Requirements:
        self._install(list(self.program.notebook.metadata.dependencies), HEADER)
        for call in self.tree.live(cst.Call):
            for place in self._places(call):
                for words in _split(_SPLIT.sub("--", self._shell_text(call))):
                    self._command(place, words)
        self._add_imported()
        kept = self._together(self._with_sources(self._with_dependencies(self._kept())))
        mended = self._mended(kept, minimums) if minimums else kept
        packages = _raised(_without_brought(mended), minimums)
        packages = self._without_old_indexes(list(map(self._apart, packages)))
        self._bound_what_has_gone(packages)
        self._bound_beside_trl(packages)
        self._bound_what_moved(packages)
        self._decode_sounds(packages)
        self._add_for_metrics(packages)
        self._bound_what_needs_newer(packages)
        return Requirements(tuple(packages), tuple(self._noted(packages)))

    def _noted(self, packages: list[Package]) -> Iterator[tuple[int, str]]:
        """Return the notes in full: of what a branch lists, with what the files have; of values, if that is all.

        What a branch leaves out is told unless the files have it, Unsloth brings it, or another branch asks for it. No
        note tells that a package is not uninstalled which a later command installs.
        """
        names = {package.name for package in packages}
        had = {*(package.line for package in packages), *self.asked}
        had_in_any = names | _brought(packages)
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
        named = {name for name, _ in self.packages}
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

    def _with_dependencies(self, packages: list[Package]) -> list[Package]:
        """Install Unsloth, and what it does not bound, with what they need, if the notebook leaves that to Colab."""
        full = {package.name for package in packages if "--no-deps" not in package.group}
        unsloth = _of(packages, "unsloth")
        if unsloth is None or full & {"unsloth", "transformers"}:
            return packages
        self.notes.append((unsloth.cell, "unsloth is installed with what it needs, which the notebook's machine had"))
        fixed = [package for package in packages if package.name in _OF_TORCH and "==" in package.line]
        self.notes += [(package.cell, f"{package.line} is left out: it is made for one torch") for package in fixed]
        bounded = (*_BOUNDED, *_OF_TORCH, "unsloth-zoo")
        open_ones = [each for each in packages if each.is_open and each.name not in bounded]
        kept = [each for each in packages if each not in fixed]
        return [replace(each, group=()) if each in (unsloth, *open_ones) else each for each in kept]

    def _with_sources(self, packages: list[Package]) -> list[Package]:
        """Install sources of Unsloth's with what they need, in place of its releases.

        pip, which comes to them later, would leave a release that has the same version.
        """
        full = {each.name: each for each in packages if each.name in _OWN and "--no-deps" not in each.group}
        alone = [each for each in packages if each.name in _OWN and each.group == ("--no-deps",)]
        sources = [each for each in alone if "unsloth" in full and not each.specifier and not each.is_open]
        replaced = {each.name: full[each.name] for each in sources if each.name in full}
        told = [(old, new) for new in sources if (old := replaced.get(new.name)) and old.specifier]
        self.notes += [(old.cell, f"{old.line} is replaced by {new.line} of cell {new.cell}") for old, new in told]
        kept = [each for each in packages if each not in replaced.values()]
        return [_with_extras(replace(e, group=()), replaced.get(e.name)) if e in sources else e for e in kept]

    def _together(self, packages: list[Package]) -> list[Package]:
        """Install fixed versions of what bounds the versions of each other, and of other packages, with the others.

        A tokenizers that comes with `--no-deps` goes where a fixed transformers is installed later: it brings its own.
        """
        brings = next((n for n, own in enumerate(packages) if _brings_tokenizers(own)), 0)
        bare = [own for own in packages[:brings] if own.name == "tokenizers" and own.group == ("--no-deps",)]
        packages = [own for own in packages if own not in bare]
        fixed = [each for each in packages if each.group == ("--no-deps",) and each.specifier]
        return _with_others(packages, _BOUNDING & {each.name for each in fixed})

    def _cell(self, node: cst.CSTNode) -> int:
        return self.program.cell_at(self.tree.start(node)).number

    def _apart(self, package: Package) -> Package:
        """Return a package in the group that installs it, with the options that it alone needs."""
        if package.name in _BUILT_WITH_TORCH and "--no-build-isolation" not in package.group:
            option, why = "--no-build-isolation", "its build imports torch"
        elif (unfit := tables()["unfit"].get(package.name)) and "--no-deps" not in package.group:
            option, why = "--no-deps", f"it asks for {unfit}, which conflicts with the others"
        else:
            return package
        self.notes.append((package.cell, f"{package.line} is installed with {option}: {why}"))
        return replace(package, group=tuple(name for name in _COMMAND_OPTIONS if name in (*package.group, option)))

    def _without_old_indexes(self, packages: list[Package]) -> list[Package]:
        """Return packages without indexes of an old torch where the notebook takes any: uv takes what is there."""
        if any(own.name == "torch" and _is_held(own) for own in packages):
            return packages
        told = {line: own.cell for own in reversed(packages) for line in own.sources if _OLD_TORCH.search(line)}
        self.notes += [(cell, f"{line} is left out: it has no torch from 2.6 on") for line, cell in told.items()]
        return [replace(own, sources=tuple(line for line in own.sources if line not in told)) for own in packages]

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

    def _bound_what_moved(self, packages: list[Package]) -> None:
        """Require langchain before 1, which has left most of its modules to other packages, if the code takes these."""
        own = _of(packages, "langchain")
        for statement, name, _ in self.tree.imports("langchain") if own is not None and own.is_open else ():
            _, _, module = name.partition(".")
            has_moved = module.partition(".")[0] not in _LANGCHAIN_1 and (
                module or isinstance(statement, cst.ImportFrom)
            )
            if has_moved and self.tree.is_live(statement):
                new = Package("langchain", "langchain", self._cell(statement))
                self._bound(packages, own, new, "<1", f"no later version has {name}")
                return

    def _bound_what_needs_newer(self, packages: list[Package]) -> None:
        """Bound what would come too new for numpy or torch: its metadata does not name the version that it needs."""
        first = tables()["numpy"]
        with_numpy_1 = [own for own in packages if (to := first.get(own.name)) and _is_older(own, Version(to))]
        with_numpy_1 += [own for own in packages if first.get(own.name) == ""]
        with_old_torch = [own for own in packages if own.name == "torch" and _is_older(own, Version("2.6"))]
        for name, bound, causes, why in (
            ("pyarrow", "26", with_numpy_1, "needs numpy 2, and {} an older one"),
            ("torchao", "0.15", with_old_torch, "needs torch 2.6, and {} an older one"),
        ):
            own = _of(packages, name)
            if causes and (own is None or not _is_older(own, Version(bound))):
                package = (own or Package(name, name, causes[0].cell)).with_versions(f"<{bound}")
                packages[:] = [package if each is own else each for each in packages] + [package] * (own is None)
                told = why.format(f"{causes[0].line} takes")
                self.notes.append((causes[0].cell, f"{package.line}: {name} {bound} {told}"))

    def _bound(self, packages: list[Package], own: Package | None, new: Package, bound: str, why: str) -> None:
        """Bound the version of the notebook's package; of a new one if it has none, or installs the newest source."""
        at = len(packages) if own is None else packages.index(own)
        is_newest = own is not None and own.requirement is None and not _TAG.search(own.line)
        package = (replace(new, group=own.group) if own is not None and is_newest else own or new).bounded(bound)
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

    def _add_for_metrics(self, packages: list[Package]) -> None:
        """Add what the metrics that the code loads import."""
        for call in self.tree.live(cst.Call):
            named = argument(call, "path", 0) if self.tree.qualified(call.func) == "evaluate.load" else None
            metric = str(self.tree.literal(named.value)) if named is not None else ""
            name = METRICS.get(metric)
            if name is not None and name not in {package.name for package in packages}:
                self._add_for(packages, name, call, f"the metric {metric} imports it")

    def _is_of_sound(self, pair: cst.DictElement) -> bool:
        """True for `"type": "audio"`, which a part of a message has."""
        return (self.tree.literal(pair.key), self.tree.literal(pair.value)) == ("type", "audio")

    def _taken(self, library: str, packages: list[Package]) -> tuple[Package | None, tuple[str, ...]]:
        """Return a package of a notebook, and the releases of it that a job may have."""
        own, transformers = _of(packages, library), _of(packages, "transformers")
        asked, with_unsloth = own.specifier if own else "", uses_unsloth(self.tree)
        if library == "trl" and transformers and (own is None or (not own.group and (asked or own.is_open))):
            asked = trl_beside(asked, transformers.specifier, with_unsloth)
        return own, taken(library, asked, with_unsloth)

    def _mended(self, packages: list[Package], minimums: dict[str, str]) -> list[Package]:
        """Return the packages in versions that the script and Unsloth accept."""
        floors = {str(canonicalize_name(name)): version for name, version in minimums.items()}
        allowed = {str(canonicalize_name(name)): bounds for name, bounds in tables()["allowed"].items()}
        reasons = dict.fromkeys(floors, "on several GPUs the script stops below that")
        pinned = self._pinned(packages, allowed)
        engine = self._engine(pinned)
        allowed["vllm"] = f">={engine}"
        reasons["vllm"] = (
            f"the script's {'TRL' if engine == tables()['vllm']['trl'] else 'Unsloth'} takes none that old"
        )
        mended = [_fitting(own, floors.get(own.name, ""), allowed.get(own.name, "")) for own in pinned]
        mended = _beside_torch(pinned, mended)
        reasons |= dict.fromkeys(_OF_TORCH, "each version is made for one torch")
        for old, new in zip(pinned, mended, strict=True):
            if old != new:
                is_known = old.specifier or _TAG.search(old.line)
                why = f"the script's Unsloth {'does' if is_known else 'may'} not accept that version"
                self._replaced(old, new, reasons.get(old.name, why), mended)
        is_replaced = any(old != new and old.name == "unsloth" for old, new in zip(pinned, mended, strict=True))
        return [self._opened(own, mended) if is_replaced and own.name not in allowed else own for own in mended]

    def _opened(self, package: Package, others: list[Package]) -> Package:
        """Return a package in any version, if the notebook fixes one and its code does not import it."""
        if "==" not in package.specifier or self._imported(package.name.replace("-", "_")) is not None:
            return package
        opened = package.with_versions("")
        why = "it was made for a version of Unsloth that is replaced"
        self._replaced(package, opened, why, others)
        return opened

    def _replaced(self, old: Package, new: Package, why: str, others: list[Package]) -> None:
        """Note what stands for a package; no other package where it comes with Unsloth, which is among the others."""
        is_brought = new not in _without_brought([*others, new])
        told = "left out: Unsloth brings the version that fits" if is_brought else f"replaced by {new.line}: {why}"
        self.notes.append((old.cell, f"{old.line} is {told}"))

    def _engine(self, packages: list[Package]) -> str:
        """The first vLLM that the TRL of the script takes, if that is the newest; else that its Unsloth takes."""
        _, releases = self._taken("trl", packages)
        is_newest = bool(releases) and Version(releases[-1]) >= Version(tables()["newest"]["trl"])
        return tables()["vllm"]["trl" if is_newest else "unsloth"]

    def _pinned(self, packages: list[Package], allowed: dict[str, str]) -> list[Package]:
        """Return the packages in the set that most notebooks pin, if TRL or transformers must be too old for Unsloth.

        What else the notebook bounds to other versions stays. If that is transformers 5, or if the code takes what the
        set's transformers does not have, all stays as it is.
        """
        old = [own for own in packages if own.name in _PAIR and _is_older(own, _lowest(allowed[own.name]))]
        pins = _pins()
        older = (use for use in uses(self.tree) if use.name not in SUCCESSORS and not use.is_in(pins[use.library]))
        lacking = {use.library for use in older}
        asked = next((own.specifier for own in packages if own.name == "transformers"), "")
        releases = taken("transformers", asked, with_unsloth=False)
        if not old or "transformers" in lacking or (releases and Version(releases[0]) >= Version("5")):
            return packages
        bound = {own.name for own in packages if own.name in pins and own not in old and not own.takes(pins[own.name])}
        bounds = {name: f"=={version}" for name, version in pins.items() if name not in lacking | bound}
        pinned = [own.released(bounds[own.name]) if own.name in bounds else own for own in packages]
        pinned = _with_others(pinned, bounds.keys())  # as what is added
        named = {own.name for own in packages}
        added = [Package(f"{name}{bounds[name]}", name, old[0].cell) for name in bounds if name not in named]
        beside = []
        for own, new in zip(packages, pinned, strict=True):
            if own in old and own != new:
                why = "the script's Unsloth accepts no version that old; most notebooks pin this one"
                self.notes.append((own.cell, f"{own.line} is replaced by {new.line}: {why}"))
            elif own != new:
                beside.append(new.line)
        if lines := sorted([*beside, *(each.line for each in added)]):
            self.notes.append((old[0].cell, f"{', '.join(lines)}: most notebooks pin them together"))
        return pinned + added

    # -- commands -------------------------------------------------------------------------------------------

    def _places(self, call: cst.Call) -> Iterator[cst.Call]:
        """Where a command runs: at the calls of the function around it that hand it something, or where it stands."""
        function = self.tree.function(call)
        calls = [] if function is None else self.tree.calls_of(function)
        handed = [each for inner in calls if function is not None for each in self._handed(function, inner)]
        for place, given in [each for each in handed if each[1]] or [(call, each) for each in self._rounds(call)]:
            self.given = given
            yield place
        self.given = {}

    def _rounds(self, call: cst.Call) -> Iterator[dict[str, list[str]]]:
        """What the name of the loop around a call stands for, in each round; nothing where that is not known."""
        loop = self.tree.around(call, cst.For)
        name = loop.target.value if loop is not None and isinstance(loop.target, cst.Name) else ""
        listed = self.tree.value(loop.iter) if loop is not None else None
        uses = self.tree.loads(self.tree.text(loop.iter)) if loop is not None else []
        grows = any(isinstance(self.tree.parents[use], cst.Attribute) for use in uses)  # `packages.append("peft")`
        if not (name and isinstance(listed, (cst.List, cst.Tuple)) and listed.elements) or grows:
            yield {}
            return
        for each in listed.elements:
            yield {name: [self._word(each.value, call)]}

    def _handed(self, function: cst.FunctionDef, call: cst.Call) -> Iterator[tuple[cst.Call, dict[str, list[str]]]]:
        """The words that a call hands to a function, by the names of its parameters, in each round of a loop."""
        params = function.params.params
        for given in self._rounds(call):
            self.given, words = given, dict[str, list[str]]()
            for at, param in enumerate(params):
                passed = argument(call, param.name.value, at)
                if (value := param.default if passed is None else passed.value) is not None:
                    words[param.name.value] = [self._word(value, call)]
            if isinstance(star := function.params.star_arg, cst.Param):
                words[star.name.value] = [self._word(each.value, call) for each in call.args[len(params) :]]
            yield call, words

    def _shell_text(self, call: cst.Call) -> str:
        """Return the shell command of a call; empty for any other call."""
        form = self.program.form(call)
        if form is None:
            return self._python_command(call)
        if form.kind is Kind.CELL_MAGIC and form.name in ("bash", "sh", "script"):
            return form.body or ""
        return self._filled(str(form), self.tree.start(call)) if form.kind in (Kind.SHELL, Kind.LINE_MAGIC) else ""

    def _python_command(self, call: cst.Call) -> str:
        """Return the command line of `subprocess.run` and similar calls, `os.chdir` too; empty for any other call."""
        if call.args and self.tree.qualified(call.func) == "os.chdir":
            return shlex.join(["cd", spelled(self.tree, call.args[0].value)[0]])
        if not call.args or not _STARTS.fullmatch(self.tree.qualified(call.func)):
            return ""
        value = call.args[0].value
        if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value == "split":
            value = value.func.value
        value = self.tree.value(value)
        if isinstance(value, (cst.List, cst.Tuple)):
            words = (
                self.given.get(self.tree.text(each.value)) or [self._word(each.value, call)] for each in value.elements
            )
            return shlex.join(word for some in words for word in some)
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
        elif rest[0].lstrip("%") == "cd":
            self.folder = _folder(rest[-1])
        elif rest[:2] == ["git", "clone"]:
            self._clone(rest[2:])
        elif subcommand and (python := _python(rest)) and python in self._other_pythons:
            if subcommand == "install":
                self._tell(cell, f"left out, installed for {python} beside the notebook's own", _named(arguments))
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

    @cached_property
    def _other_pythons(self) -> frozenset[str]:
        """The Pythons of another version than the kernel's or, where that is not known, that the notebook runs.

        What installs Unsloth is the job's.
        """
        commands = [words for call in self.tree.live(cst.Call) for words in _split(self._shell_text(call))]
        plain = [list(dropwhile(_ENVIRONMENT.fullmatch, words)) for words in commands]
        pythons = [(_python(words), words, _pip(words)[0]) for words in plain]
        kernel = self.program.notebook.python
        if kernel:
            others = {python for python, *_ in pythons if python != f"python{kernel}"}
        else:
            others = {python for python, words, pip in pythons if not (pip or {"--version", "-V"} & {*words})}
        of_job = {python for python, words, pip in pythons if pip and "unsloth" in " ".join(words)}
        return frozenset(others - of_job - {""})

    def _clone(self, arguments: list[str]) -> None:
        """Note the source that `git clone` brings, and its folder; none that may hold a token."""
        known, words = _CLONE.parse_known_args(arguments)
        named = [word for word in words if not word.startswith("-")]
        if named and re.fullmatch(r"https?://[^@\s]+", named[0]) and not _UNKNOWN.search("".join(named)):
            source = f"git+{named[0].rstrip('/')}" + (f"@{known.branch}" if known.branch else "")
            self.clones[_folder(named[-1].removesuffix(".git"))] = source

    def _cloned(self, folder: str, cell: int) -> Package | None:
        """Return the package in a folder that the notebook clones; what Unsloth bounds comes from the index."""
        path, _, extras = folder.partition("[")
        source = self.clones.get(_folder(path) or self.folder)
        if source is None:
            return None
        name = _name_of_url(source)
        in_index = name in _BOUNDED or name in ("unsloth", "unsloth-zoo")
        line = f"{name}[{extras}" if extras else name
        return Package(line if in_index else f"{line} @ {source}" if extras else source, name, cell)

    def _source_of_file(self, path: str) -> str:
        """Return the source that the notebook clones with a file; empty where it clones none."""
        above = PurePosixPath(path).parts[:-1]
        folders = above if path.startswith("/") else (*above, self.folder)
        return next((self.clones[folder] for folder in folders if folder in self.clones), "")

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
            if given := self.given.get(match[1] or match[2]):
                return " ".join(given)
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
        if given := self.given.get(self.tree.text(node)):
            return " ".join(given)
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
        group = tuple(option for option in _COMMAND_OPTIONS if option in flags)
        takes_pre_releases = "--pre" in flags or "allow" in options["--prerelease"]
        named = [("", word) for word in words if word not in flags]
        named += [(option, word) for option in ("-e", "-r") for word in options[option]]
        for option in unknown:
            told = f"{option} is left out: it is not known before the notebook runs"
            self.notes.append((cell, f"{told}; give it to pip for {_shown(' '.join(word for _, word in named))}"))
        lacking = set(self.program.notebook.cell(cell).lacking if cell != HEADER else ()) & {word for _, word in named}
        if lacking:
            told = f"it failed when the notebook was saved, as pip found no {', '.join(sorted(lacking))}"
            self.notes.append((cell, f"left out: {_shown(' '.join(word for _, word in named))}: {told}"))
            return
        for option, word in named:
            package = self._package(option, word, cell)
            self.asked[_shown(f"{option} {word}".strip())] = package.name if package is not None else ""
            if package is not None:
                if takes_pre_releases and "==" not in package.line.partition(";")[0]:
                    package = package.bounded(_PRE_RELEASES)
                is_newest = bool(flags & {"-U", "--upgrade"}) and package.is_open
                self._add(replace(package, group=group, sources=tuple(sources)), is_newest)

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
        elif option != "-r" and _LOCAL.match(word) and (cloned := self._cloned(word, cell)):
            return cloned
        elif option == "-r" and (source := self._source_of_file(word)):
            why = f"a file of {source.removeprefix('git+')}, which the notebook clones"
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
            near = get_close_matches(name, _BOUNDED - {name}, 1, _MISSPELT)
            if name in _BOUNDED or not near or self._imported(own.name) is not None:
                if name == "unsloth" and (old := set(filter(_is_of_old_torch, own.extras))):
                    own.extras -= old
                    told = f"{line} is replaced by {own}: {', '.join(sorted(old))} takes builds for an old torch"
                    self.notes.append((cell, told))
                    line = str(own)
                return Package(line, name + (f"; {own.marker}" if own.marker else ""), cell)
            why = f"left out, {near[0]} is meant"
        self.notes.append((cell, f"{why}: {_shown(line)}"))
        return None

    def _imported(self, name: str) -> cst.CSTNode | None:
        """Return the offset at which code that stays first imports a module, or None."""
        covers = self.program.installs.covers
        imports = [node for node, *_ in self.tree.imports(name) if self.tree.is_live(node) and not covers(node)]
        return min(imports, key=self.tree.start, default=None)

    def _does_without(self, statement: cst.CSTNode) -> bool:
        """True for an import in a `try` after which the code goes on: it asks whether the package is there."""
        tried = self.tree.around(statement, cst.Try)
        return tried is not None and not any(self.tree.within(handler, cst.Raise) for handler in tried.handlers)

    def _add(self, new: Package, is_newest: bool = False) -> None:
        """Add a package. If two commands name it, the later one decides, unless it takes any version that is there."""
        for names in self.uninstalled.values():
            names.discard(new.name)
        is_alone = "--no-deps" in new.group
        old = self.packages.get((new.name, is_alone))
        kept = new if old is None or is_newest else _joined(old, new)
        if is_newest or not new.is_open:
            other = None if is_alone else self.packages.pop((new.name, True), None)  # it would be installed later
            for package in (old, other):
                if package is not None and not package.is_open and package.line != kept.line:
                    self.notes.append((package.cell, f"{package.line} is replaced by {kept.line} of cell {new.cell}"))
        self.packages[new.name, is_alone] = kept

    def _kept(self) -> list[Package]:
        """Return the packages without those that an earlier file already installs."""
        full = {name: package.line for (name, is_alone), package in self.packages.items() if not is_alone}
        return [
            package
            for (name, is_alone), package in self.packages.items()
            if not (is_alone and name in full and (package.is_open or package.line == full[name]))
        ]


def _of(packages: list[Package], name: str) -> Package | None:
    """Return the first of the packages with a name."""
    return next((package for package in packages if package.name == name), None)


def _without_brought(packages: list[Package]) -> list[Package]:
    """Return packages without those, in any version and from any source, that Unsloth brings in an earlier file."""
    brought = _brought(packages)
    return [
        each
        for each in packages
        if not ("--no-deps" in each.group and each.is_open and each.name in brought and not each.sources)
    ]


def _brought(packages: list[Package]) -> frozenset[str]:
    """Return the names of what Unsloth brings, if it is among the packages with what it needs."""
    has_unsloth = any(each.name == "unsloth" and "--no-deps" not in each.group for each in packages)
    return _BOUNDED | _UNBOUNDED if has_unsloth else frozenset()


def _with_extras(source: Package, release: Package | None) -> Package:
    """Return a source's package with the extras that its release is asked for with."""
    asked = release.requirement if release is not None else None
    own = source.requirement
    if asked is None or not asked.extras or (own is None and source.line.startswith("-")):
        return source
    named = own or Requirement(f"{source.name} @ {source.line}")
    named.extras |= asked.extras
    return replace(source, line=str(named))


def _brings_tokenizers(package: Package) -> bool:
    """True for a fixed transformers that is installed with what it needs."""
    return package.name == "transformers" and "--no-deps" not in package.group and "==" in package.specifier


def _with_others(packages: list[Package], names: Set[str]) -> list[Package]:
    """Return packages with some of them in the first file, with what they need, if it does not name them already."""
    moved = names - {package.name for package in packages if not package.group}
    return [replace(each, group=()) if each.name in moved else each for each in packages]


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


def _folder(path: str) -> str:
    """Return the last part of a path; empty for the folder where a command runs, and for those above it."""
    last = PurePosixPath(path).name
    return "" if last == ".." else last


def _joined(old: Package, new: Package) -> Package:
    """Return the line of two that decides, with the extras of both, and then the indexes too."""
    chosen, other = (old, new) if new.is_open else (new, old)
    own, more = chosen.requirement, other.requirement
    if own is None or more is None or more.extras <= own.extras:
        return chosen
    own.extras |= more.extras
    return replace(chosen, line=str(own), sources=tuple(dict.fromkeys((*old.sources, *new.sources))))


def _fitting(package: Package, floor: str, allowed: str) -> Package:
    """Return a package in a version that the script and Unsloth accept: the same, or the next.

    Args:
        package: as the notebook requires it.
        floor: the version below which the script stops; "" if there is none.
        allowed: the bounds of Unsloth's metadata; "" where it has none. Newer versions than these stay: a newer Unsloth
            may take them.
    """
    own = package.requirement
    bounds = SpecifierSet(f">={floor}" if floor else allowed)
    if not bounds:
        return package
    lowest = next(_version(part) for part in bounds if part.operator == ">=")
    if own is None or own.url:
        tag = _TAG.search(package.line)
        if tag is None and "--no-deps" not in package.group and _is_refused(package.line, bounds):
            return package.released("")
        return package if tag is None or _version_of(tag) >= lowest else package.released(_from(lowest, floor))
    tops = [_version(part) for part in own.specifier if part.operator in _AT_MOST]
    limits = [_version(part) for part in bounds if part.operator in ("<", "<=")]
    tried = [lowest, *map(_version, own.specifier)]
    both = own.specifier & bounds
    if not tops or min(tops) > min(limits, default=min(tops)) or any(both.contains(version, True) for version in tried):
        return package
    return package.with_versions(_from(max(lowest, min(tops)), floor))


def _beside_torch(old: list[Package], new: list[Package]) -> list[Package]:
    """Return packages with those left open that do not fit the torch that the script gets.

    Args:
        old: as the notebook requires them.
        new: the same, in versions that the script and Unsloth accept. Of torch, vLLM brings its own.
    """
    changed = {before.name for before, after in zip(old, new, strict=True) if before != after}
    torch = next((own for own in new if own.name == "torch"), None)
    of_torch = [own for own in new if own.name in _OF_TORCH]
    if "vllm" in changed:
        loose = [*of_torch, *filter(None, [torch])]
    elif "torch" in changed:
        loose = of_torch
    elif torch is None or not _is_held(torch):
        loose = list(filter(_is_held, of_torch))
    else:
        loose = [own for own in of_torch if "==" in torch.line and "==" not in own.line]
    return [own.with_versions("") if own in loose else own for own in new]


def _is_of_old_torch(extra: str) -> bool:
    """True for an extra of Unsloth that takes builds for a torch before 2.6, which torchao, that it brings, needs."""
    found = _OLD_BUILDS.fullmatch(extra)
    return found is not None and (int(found["major"] or 2), int(found["minor"] or 1)) < (2, 6)


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


def _lowest(bounds: str) -> Version:
    """The first version within the bounds of a package's metadata."""
    return next(_version(part) for part in SpecifierSet(bounds) if part.operator == ">=")


def _is_older(package: Package, version: Version) -> bool:
    """True if a package must be older than a version."""
    own = package.requirement
    if own is None or own.url:
        tag = _TAG.search(package.line)
        return tag is not None and _version_of(tag) < version
    tops = [_version(part) for part in own.specifier if part.operator in _AT_MOST]
    return bool(tops) and min(tops) <= version and not own.specifier.contains(version, True)


def _pins() -> dict[str, str]:
    """The libraries that most notebooks pin to other versions than the newest, and these versions."""
    newest = tables()["newest"]
    pins = {name: version for name, version in tables()["pinned"].items() if version != newest[name]}
    return {str(canonicalize_name(name)): version for name, version in pins.items()}


def _version_of(tag: re.Match[str]) -> Version:
    return Version(tag[1].replace("-", "."))


def _from(first: Version, floor: str) -> str:
    """The bounds from a version on; without a floor of the script's, up to the next major version."""
    return f">={first}" if floor else f"<{first.major + 1},>={first}"


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


def _python(words: list[str]) -> str:
    """Return the Python that a command runs, as `python3.10`; empty for none, and where it names no minor version."""
    found = _VERSIONED.fullmatch(words[0] if words else "")
    return found[1] if found else ""


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
