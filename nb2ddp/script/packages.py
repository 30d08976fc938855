"""The packages that a notebook's install cells name, as requirements files that pip installs as written.

What pip takes for a whole command only cannot stand in a requirements file (pip's manual, "Requirements File Format"):
packages installed with `--no-deps` or `--no-build-isolation` get files of their own, with the command that installs
them. What is no Python package, or known only when the notebook runs, is kept as a comment.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePosixPath

import libcst as cst
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from nb2ddp.facts.installs import is_colab
from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import is_install
from nb2ddp.notebook.magics import Kind
from nb2ddp.script.templates import render

#: Options that pip knows on its command line alone, in the order in which what they hold is installed.
_COMMAND_OPTIONS = ("--no-build-isolation", "--no-deps")
#: Options that keep their meaning in a requirements file, by the names that pip and uv have for them.
_FILE_OPTIONS = {
    "-i": "--index-url",
    "--index-url": "--index-url",
    "--default-index": "--index-url",
    "--extra-index-url": "--extra-index-url",
    "--index": "--extra-index-url",
    "-f": "--find-links",
    "--find-links": "--find-links",
    "--trusted-host": "--trusted-host",
    "--no-binary": "--no-binary",
    "--only-binary": "--only-binary",
    "-c": "-c",
    "--constraint": "-c",
}
_NAMED = {"-r": "-r", "--requirement": "-r", "--requirements": "-r", "-e": "-e", "--editable": "-e"}
#: Options with a value that decide what is installed, and that no requirements file can hold.
_LOST_OPTIONS = frozenset(
    "--torch-backend --exclude-newer --target -t --prefix --root --config-settings --config-setting -C --override"
    " --overrides --resolution --group --python-version --platform --abi --implementation --index-strategy"
    " --global-option --install-option --build-option".split()
)
#: Options with a value that do not.
_IDLE_OPTIONS = frozenset(
    "--cache-dir --timeout --retries --progress-bar --upgrade-strategy --log --proxy --cert --client-cert --report"
    " --use-feature --use-deprecated --exists-action --src --python -p --keyring-provider --link-mode"
    " --refresh-package --reinstall-package --upgrade-package -P --color --directory --project --config-file"
    " --allow-insecure-host --no-build-isolation-package --no-build-package --build-constraint -b".split()
)
#: What starts a script, and what its setup block imports.
_NEEDED = ("accelerate", "unsloth")
#: The versions of Python that Unsloth supports.
_PYTHON = ">=3.10,<3.14"
#: Modules that Colab has and Unsloth does not bring (github.com/googlecolab/backend-info, pip-freeze.txt): notebooks
#: import them without installing them. `gather_across_devices`, which scripts set, is of sentence-transformers 5.1.
_ON_COLAB = {
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "gradio": "gradio",
    "librosa": "librosa",
    "matplotlib": "matplotlib",
    "nltk": "nltk",
    "openai": "openai",
    "plotly": "plotly",
    "scipy": "scipy",
    "seaborn": "seaborn",
    "sentence_transformers": "sentence-transformers>=5.1",
    "sklearn": "scikit-learn",
    "soundfile": "soundfile",
    "spacy": "spacy",
    "torchaudio": "torchaudio",
    "wandb": "wandb",
}
#: Packages that mostly serve to install others.
_INSTALLERS = frozenset({"pip", "uv"})
#: Stands for the number of a cell where a notebook's own header names a package.
HEADER = 0
#: A variable of the shell whose name pip takes too, in braces.
_VARIABLE = re.compile(r"\$(?P<brace>\{)?(?P<name>[A-Z_][A-Z0-9_]*)(?(brace)\})")
_ARCHIVE = re.compile(r"\.(whl|zip|tar\.gz|tgz|tar\.bz2)(\[[^\]]*\])?$")
_REDIRECT = re.compile(r"(?:\d*|&)(>>?|<)(?P<target>.*)", re.DOTALL)
_ENVIRONMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_INTERPOLATION = re.compile(r"\{\{|\}\}|\$\$|\{(?P<braced>[^{}]*)\}|\$(?P<name>[A-Za-z_]\w*)")
#: Stands around an expression whose value is not known.
_MARK = "\0"


@dataclass(frozen=True)
class Package:
    """One requirement of a notebook.

    Attributes:
        line: as a requirements file holds it, without `pre`.
        name: its canonical name; for a bare URL what the last part of the URL says; for a file option the line.
        cell: the notebook's cell that installs it.
        pre: its pre-releases count too.
        upgrade: what is there already does not do.
    """

    line: str
    name: str
    cell: int
    pre: bool = False
    upgrade: bool = False

    @property
    def requirement(self) -> Requirement | None:
        """The line as packaging reads it; None for a bare URL or another file."""
        return _requirement(self.line)

    @property
    def is_open(self) -> bool:
        """True where any version does."""
        return self.requirement is not None and not self.requirement.specifier and not self.requirement.url

    def takes(self, other: Package) -> bool:
        """True where another package's pin does for this one."""
        pin = re.fullmatch(r"={2,3}([^*,]+)", str(other.requirement.specifier) if other.requirement else "")
        return bool(pin and self.requirement and self.requirement.specifier.contains(pin[1], prereleases=True))

    @property
    def text(self) -> str:
        """The line of the file: where pre-releases count, with a bound that lets them in for this package alone."""
        own = self.requirement
        if not self.pre or own is None or own.url or "==" in str(own.specifier):
            return self.line
        own = Requirement(str(own))
        own.specifier &= SpecifierSet(">=0.dev0")
        return str(own)


@dataclass(frozen=True)
class Requirements:
    """The packages of a notebook.

    Attributes:
        groups: packages by the options that pip takes for a whole command only; the first group has none.
        options: lines about indexes, by the same groups.
        notes: what is not in the files, as pairs of cell and sentence.
    """

    groups: dict[tuple[str, ...], tuple[Package, ...]] = field(default_factory=dict)
    options: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[tuple[int, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(any(self.groups.values()) or self.notes)

    def files(self, script_name: str, title: str = "the notebook") -> dict[str, str]:
        """The text of each file, by its name beside the script; none where the notebook installs nothing."""
        commands = self.commands(script_name)
        return {
            name: render(
                "requirements.txt.j2",
                title=title,
                group=group,
                commands=list(commands.values()),
                command=commands[name],
                notes=[] if group else self.notes,
                options=self.options.get(group, ()),
                lines=[package.text for package in self.groups.get(group, ())],
            )
            for name, group in self._names(script_name).items()
        }

    def commands(self, script_name: str) -> dict[str, str]:
        """What installs the packages of each file, by its name and in the order in which they are installed."""
        return {name: install_command(script_name, group) for name, group in self._names(script_name).items()}

    def _names(self, script_name: str) -> dict[str, tuple[str, ...]]:
        groups = [(), *(group for group in self.groups if group)] if self else []
        return {file_name(script_name, group): group for group in groups}

    def header(self, requires_python: str = "") -> str:
        """The packages as inline script metadata, which uv reads.

        What pip installs without dependencies overrides what the others ask for, as it does when pip comes to it.

        Args:
            requires_python: the versions of Python that do; empty takes those that Unsloth supports.
        """
        lines: dict[str, str] = {}
        overrides = []
        for group, packages in self.groups.items():
            for package in packages:
                own = package.requirement
                if own is None and "://" in package.line and not package.line.startswith("-"):
                    lines.setdefault(package.name, f"{package.name} @ {package.line}")
                elif own is not None:
                    lines.setdefault(canonicalize_name(own.name), package.text)
                    overrides += [package.text] if "--no-deps" in group and not package.is_open else []
        missing = [name for name in _NEEDED if name not in lines]
        options = [
            option.split(" ", 1)[1] for each in self.options.values() for option in each if "index-url" in option
        ]
        return render(
            "metadata.py.j2",
            requires_python=requires_python or _PYTHON,
            dependencies=sorted([*lines.values(), *missing], key=str.lower),
            overrides=overrides,
            indexes=list(dict.fromkeys(options)),
            quoted=json.dumps,
        ).strip("\n")


#: The options that packages of one file share, in the order in which the files are installed.
GROUPS = ((), ("--no-build-isolation",), ("--no-deps",), _COMMAND_OPTIONS)


def file_name(script_name: str, group: tuple[str, ...]) -> str:
    """The name of a group's file, beside the script."""
    return f"{PurePosixPath(script_name).stem}.requirements{''.join(option[1:] for option in group)}.txt"


def install_command(script_name: str, group: tuple[str, ...]) -> str:
    """What installs a group's file, in its folder."""
    return f"pip install {' '.join([*group, '-r', shlex.quote(file_name(script_name, group))])}"


def requirements(program: Program, minimums: Iterable[tuple[str, str]] = ()) -> Requirements:
    """What a notebook installs: in its own order, on a machine that is not Colab's.

    Args:
        program: the notebook.
        minimums: packages, with the first version that the script takes; asked for where the notebook takes any.
    """
    return _Reading(program, dict(minimums)).result


class _Reading:
    """Read a notebook's installs one after the other, as they would run."""

    def __init__(self, program: Program, minimums: dict[str, str]) -> None:
        self.program = program
        self.minimums = minimums
        self.tree = program.tree
        self.notes: list[tuple[int, str]] = []
        self.groups: dict[tuple[str, ...], dict[str, Package]] = {(): {}}
        #: Each group's options, and for each index whether all packages of the group come from it.
        self.options: dict[tuple[str, ...], list[str]] = {}
        self.indexes: dict[tuple[str, ...], list[str | None]] = {}
        #: What shell commands set.
        self.variables: dict[str, str] = {}

    @cached_property
    def result(self) -> Requirements:
        self._install(list(self.program.notebook.metadata.dependencies), HEADER)
        for call, command in self._commands():
            if not _is_about_packages(command := self._filled(command, call)):
                continue
            cell = self.program.cell_at(self.tree.start(call)).number
            is_taken, why = self._branch(call)
            for words in _split(command) if is_taken else ():
                self._command(words, cell)
            if why and (cell, why) not in self.notes:
                self.notes.append((cell, why))
        self._add_what_colab_has()
        self.groups = {group: self._kept(group) for group in sorted(self.groups, key=_order)}
        self._raise_floors()
        order = [group for group in self.groups if not group or self.groups[group]]
        groups = {group: tuple(self.groups[group].values()) for group in order}
        return Requirements(groups, {group: self._index_lines(group) for group in order}, tuple(self.notes))

    def _add_what_colab_has(self) -> None:
        """List what the code imports and Colab has, where the notebook does not install it."""
        installed = {package.name for packages in self.groups.values() for package in packages.values()}
        for module, line in _ON_COLAB.items():
            name = canonicalize_name(Requirement(line).name)
            if name not in installed and (where := self._imported(module)) is not None:
                cell = self.program.cell_at(self.tree.start(where)).number
                self.groups[()][name] = Package(line, name, cell)
                self.notes.append((cell, f"{name} is added: the code imports it, and Colab has it"))

    def _raise_floors(self) -> None:
        """Ask for the versions below which the script stops, where the notebook takes any; so of what comes along."""
        named = {name for packages in self.groups.values() for name in packages}
        minimums = {str(canonicalize_name(name)): (name, version) for name, version in self.minimums.items()}
        for packages in self.groups.values():
            for name, package in list(packages.items()):
                if package.is_open and name in minimums:
                    own = Requirement(package.line)
                    own.specifier = SpecifierSet(f">={minimums[name][1]}")
                    packages[name] = replace(package, line=str(own))
                    for other in sorted(minimums.keys() - named) if name == "unsloth" else ():
                        packages[other] = Package(">=".join(minimums[other]), other, package.cell)

    # -- commands -------------------------------------------------------------------------------------------

    def _commands(self) -> Iterator[tuple[cst.Call, str]]:
        """Every live shell command of the notebook with the call that stands for it, in order."""
        for call in self.tree.of(cst.Call):
            if not self.tree.is_live(call):
                continue
            form = self.program.form(call)
            if form is None:
                if command := self._python_command(call):
                    yield call, command
            elif form.kind is Kind.SHELL:
                yield call, form.text
            elif form.kind is Kind.LINE_MAGIC:
                if form.name in ("pip", "uv", "conda", "mamba", "micromamba"):
                    yield call, f"{form.name} {form.text}"
            elif form.kind is Kind.CELL_MAGIC and form.name in ("bash", "sh", "script") and form.body:
                yield call, form.body

    def _python_command(self, call: cst.Call) -> str:
        """The command line of `subprocess.run` and the like; empty for any other call."""
        name = self.tree.qualified(call.func)
        if not re.fullmatch(r"os\.(system|popen)|subprocess\.(run|call|check_call|check_output|Popen|getoutput)", name):
            return ""
        if not call.args:
            return ""
        value = call.args[0].value
        if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value == "split":
            value = value.func.value
        value = self.tree.value(value)
        if isinstance(value, (cst.List, cst.Tuple)):
            words = [self._word(element.value, call) for element in value.elements]
            return " ".join(word if _MARK in word else shlex.quote(word) for word in words)
        return self._word(value, call)

    def _word(self, node: cst.BaseExpression, call: cst.Call) -> str:
        text = "python" if self.tree.text(node) == "sys.executable" else self._value(node, call)
        return _marked(self.tree.text(node)) if text is None else text

    # -- branches -------------------------------------------------------------------------------------------

    def _branch(self, call: cst.Call) -> tuple[bool, str]:
        """Whether a command runs on a machine of one's own, and what to say about it."""
        why = ""
        below: cst.CSTNode = call
        for above in self.tree.ancestors(call):
            if isinstance(above, cst.If):
                state = self._holds(above.test)
                in_body = above.body is below
                test = " ".join(self.tree.text(above.test).split())
                if state is not None and state is not in_body:
                    if is_colab(test) is not None:
                        return False, "left out: what is for Colab alone"
                    return False, f"left out: what is installed where {test}" + ("" if in_body else " fails")
                if state is None and not in_body and self._installs_below(above.body):
                    return False, f"left out: the other branch, taken where {test} fails"
                if state is None:
                    why = f"the notebook asks first: {test}"
            elif isinstance(above, cst.ExceptHandler):
                whole = cst.ensure_type(self.tree.parents[above], cst.Try)
                if self._installs_below(whole.body):
                    return False, "left out: what is installed where another install fails"
            below = above
        return True, why

    def _installs_below(self, body: cst.CSTNode) -> bool:
        return any(self.program.installs.is_install(call) for call in self.tree.within(body, cst.Call))

    def _holds(self, test: cst.BaseExpression) -> bool | None:
        """Whether a test holds in a new environment on a machine of one's own; None where that cannot be told."""
        if isinstance(test, cst.BooleanOperation):
            sides = [self._holds(test.left), self._holds(test.right)]
            if isinstance(test.operator, cst.And):
                return False if False in sides else None if None in sides else True
            if True in sides and not any(is_colab(self.tree.text(side)) is False for side in (test.left, test.right)):
                return True
            # `torch is missing or this is Colab`: what follows is made for Colab
            return False if any(is_colab(self.tree.text(s)) is False for s in (test.left, test.right)) else None
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            inner = self._holds(test.expression)
            return None if inner is None else not inner
        text = self.tree.text(self.tree.value(test))
        colab = is_colab(text) if is_colab(text) is not None else is_colab(self.tree.text(test))
        if colab is not None:
            return colab
        if re.fullmatch(r"importlib\.util\.find_spec\(.*\) is None|(shutil\.)?which\(.*\) is None", text):
            return True
        constant = self.tree.literal(test)
        return bool(constant) if constant is not ... else None

    # -- values ---------------------------------------------------------------------------------------------

    def _filled(self, command: str, call: cst.Call) -> str:
        """A command with the notebook's own `{values}` filled in; the others between marks."""

        def fill(match: re.Match[str]) -> str:
            if match[0] in ("{{", "}}", "$$"):
                return match[0][0]
            inside = match["braced"] if match["braced"] is not None else match["name"]
            if inside.strip() == "sys.executable":
                return "python"
            try:
                expression = cst.parse_expression(inside.strip())
            except Exception:
                return match[0]
            names = {n.value for n in _names(expression)}
            if not names & self.tree.bound_names:
                return match[0]
            value = self._value(expression, call)
            return _marked(match[0]) if value is None else value

        return _INTERPOLATION.sub(fill, command)

    def _value(self, node: cst.BaseExpression, call: cst.Call) -> str | None:
        """The text of an expression where the notebook writes it out, also by a name that it binds once."""
        if isinstance(node, cst.FormattedString):
            parts = [self._part(part, call) for part in node.parts]
            return None if None in parts else "".join(part for part in parts if part)
        if isinstance(node, cst.Name):
            above = [b for b in self.tree.bindings(node.value) if b.offset < self.tree.start(call)]
            made = above[0].value if len(above) == 1 else None
            return None if made is None or isinstance(made, cst.Name) else self._value(made, call)
        value = self.tree.literal(node)
        return str(value) if isinstance(value, (str, int, float)) else None

    def _part(self, part: cst.BaseFormattedStringContent, call: cst.Call) -> str | None:
        if isinstance(part, cst.FormattedStringText):
            return part.value
        is_plain = isinstance(part, cst.FormattedStringExpression) and not part.format_spec
        return self._value(part.expression, call) if is_plain else None  # type: ignore[attr-defined]

    # -- one command ----------------------------------------------------------------------------------------

    def _command(self, words: list[str], cell: int) -> None:
        """Take in one command, in which no other one is joined."""
        said = _shown(" ".join(words))
        rest = _without_environment(words)
        if not rest:
            self.variables.update((name, value) for name, _, value in (word.partition("=") for word in words))
        words = rest
        found = _pip(words)
        if found is None:
            if is_install(" ".join(words)):
                self.notes.append((cell, f"not a Python package: {said}"))
            return
        subcommand, arguments = found
        if subcommand != "install":
            if subcommand in ("uninstall", "download", "wheel", "sync"):
                self.notes.append((cell, f"not done here: {said}"))
            return
        self._install(arguments, cell)

    def _install(self, arguments: list[str], cell: int) -> None:
        packages: list[tuple[str, str]] = []
        options: list[str] = []
        index: str | None = None
        flags: set[str] = set()
        rest = iter(arguments)
        for word in rest:
            name, is_long, value = word.partition("=") if word.startswith("--") else (word, "", "")
            if not word.startswith("-"):
                packages.append(("", word))
                continue
            takes = name in _FILE_OPTIONS or name in _NAMED or name in _LOST_OPTIONS or name in _IDLE_OPTIONS
            if takes and not is_long:
                value = next(rest, "")
            if name == "--prerelease" or name == "--config-settings":
                value = value or next(rest, "")
                flags |= {"--pre"} if value == "allow" else set()
            if name in _NAMED:
                packages.append((_NAMED[name], value))
            elif name in _FILE_OPTIONS and value.isprintable() and " " not in value:
                value = self._without_variables(value, cell)
                if _FILE_OPTIONS[name] == "--index-url":
                    index = value
                else:
                    options.append(f"{_FILE_OPTIONS[name]} {value}")
            elif name in _LOST_OPTIONS or name in _FILE_OPTIONS:
                self.notes.append((cell, f"an option that no requirements file has: {_shown(f'{name} {value}')}"))
            elif re.fullmatch(r"-[a-zA-Z]*U[a-zA-Z]*", name):
                flags.add("--upgrade")
            else:
                flags.add(name)
        group = tuple(option for option in _COMMAND_OPTIONS if option in flags)
        kept = [p for option, word in packages if (p := self._package(option, word, cell, flags)) is not None]
        for package in kept:
            self._add(group, package)
        if kept:
            own = self.options.setdefault(group, [])
            own += [o for o in options if o not in own]
            own += [o for o in ("--prefer-binary", "--no-index") if o in flags and o not in own]
            self.indexes.setdefault(group, []).append(index)

    def _without_variables(self, value: str, cell: int) -> str:
        """An option's value with the shell's variables filled in, or written as pip reads them from the environment."""

        def fill(match: re.Match[str]) -> str:
            name = match["name"]
            text = self.variables.get(name, "")
            if text and "$" not in text:
                return text
            self.notes.append(
                (cell, f"set {name} first" + (f", which is {_shown(text)} in the notebook" if text else ""))
            )
            return f"${{{name}}}"

        return _VARIABLE.sub(fill, value)

    def _package(self, option: str, word: str, cell: int, flags: set[str]) -> Package | None:
        """One argument as a line of the file; None where it is none, which a note then says."""
        if _MARK in word:
            self.notes.append((cell, f"known only when the notebook runs: {_shown(word)}"))
            return None
        is_url = bool(re.match(r"(git|hg|svn|bzr)\+|\w+://", word))
        if not word.isprintable() or (" " in word and (is_url or option)):  # one line of the file for each
            self.notes.append((cell, f"not a requirement: {_shown(word)}"))
            return None
        pre, upgrade = "--pre" in flags, "--upgrade" in flags
        if (
            option == "-r" and "://" not in word and ("/" in word or self._changes_folder)
        ):  # pip refuses the whole file where it is missing
            self.notes.append((cell, f"a file that is there only later: -r {_shown(word)}"))
            return None
        if option == "-r":
            return Package(f"-r {word}", f"-r {word}", cell)
        if is_url:
            return Package(f"{option} {word}".strip(), _name_of_url(word), cell, upgrade=upgrade)
        if option or word.startswith((".", "/", "~")) or _ARCHIVE.search(word) or ("/" in word and "@" not in word):
            self.notes.append(
                (cell, f"a file or folder of the notebook's machine: {_shown(f'{option} {word}'.strip())}")
            )
            return None
        own = _requirement(word)
        if own is None:
            self.notes.append((cell, f"not a requirement: {_shown(word)}"))
            return None
        name = canonicalize_name(own.name)
        if name == "marimo" or (name in _INSTALLERS and self._imported(name) is None):
            return None
        marker = f"; {own.marker}" if own.marker else ""
        return Package(word, name + marker, cell, pre, upgrade)

    def _imported(self, name: str) -> cst.CSTNode | None:
        """Where code that stays first imports a module; None where it does not."""
        modules: list[tuple[cst.CSTNode, str]] = [
            (node, alias.evaluated_name) for node in self.tree.of(cst.Import) for alias in node.names
        ]
        modules += [(node, self.tree.text(node.module)) for node in self.tree.of(cst.ImportFrom) if node.module]
        for node, module in modules:
            if module.split(".")[0] == name and self.tree.is_live(node) and not self.program.installs.covers(node):
                return node
        return None

    @cached_property
    def _changes_folder(self) -> bool:
        """True where the notebook goes into another folder, such as one that it clones."""
        magics = any(form.name in ("cd", "pushd") for _, form in self.program.forms_of(Kind.LINE_MAGIC))
        return magics or any(self.tree.qualified(call.func) == "os.chdir" for call in self.tree.of(cst.Call))

    # -- several commands -----------------------------------------------------------------------------------

    def _add(self, group: tuple[str, ...], new: Package) -> None:
        """Take in a package: of two commands that name it the last one decides, unless the first one's pin does."""
        packages = self.groups.setdefault(group, {})
        old = packages.get(new.name)
        if old is not None and not new.upgrade and (new.is_open or new.takes(old)):
            packages[new.name] = _with_extras(old, new)
            return
        if "--no-deps" not in group and not new.is_open:  # their files are installed later than this one's
            for other in [each for each in self.groups if "--no-deps" in each]:
                self._say_replaced(self.groups[other].pop(new.name, None), new)
        self._say_replaced(old, new)
        packages[new.name] = _with_extras(new, old)

    def _say_replaced(self, old: Package | None, new: Package) -> None:
        if old is not None and not old.is_open and old.line != new.line:
            self.notes.append((old.cell, f"{old.line} gives way to {new.line} of cell {new.cell}"))

    def _kept(self, group: tuple[str, ...]) -> dict[str, Package]:
        """The packages of a group, without those of which the first file installs what does here too."""
        full = self.groups[()] if group else {}
        return {
            name: each
            for name, each in self.groups[group].items()
            if name not in full or not (each.is_open or each.line == full[name].line)
        }

    def _index_lines(self, group: tuple[str, ...]) -> tuple[str, ...]:
        """Lines about indexes: one that not every package came from is there beside PyPI, not instead of it."""
        given = self.indexes.get(group, [])
        named = list(dict.fromkeys(index for index in given if index is not None))
        only = len(named) == 1 and all(index is not None for index in given)
        lines = [f"{'--index-url' if only else '--extra-index-url'} {index}" for index in named]
        return tuple(dict.fromkeys([*lines, *self.options.get(group, [])]))


def _order(group: tuple[str, ...]) -> tuple[bool, int]:
    return "--no-deps" in group, len(group)


def _requirement(text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _name_of_url(url: str) -> str:
    egg = re.search(r"#.*egg=([\w.-]+)", url)
    last = url.split("#")[0].rstrip("/").rsplit("/", 1)[-1].split("@")[0].removesuffix(".git")
    wheel = re.match(r"([A-Za-z0-9_.]+?)-\d", last)
    return canonicalize_name(egg[1] if egg else wheel[1] if wheel else last)


def _with_extras(package: Package, other: Package | None) -> Package:
    """A package with another one's extras too."""
    own, extras = package.requirement, other.requirement.extras if other and other.requirement else set()
    if own is None or extras <= own.extras:
        return package
    own.extras = own.extras | extras
    return replace(package, line=str(own))


def _pip(words: list[str]) -> tuple[str, list[str]] | None:
    """The subcommand and the arguments of pip, also as `python -m pip`, `uv pip` and `uv add`."""
    if len(words) >= 2 and re.fullmatch(r"(.*/)?python[\d.]*", words[0]):
        rest = [word for word in words[1:] if word not in ("-u", "-I", "-q")]
        words = rest[1:] if rest[:1] == ["-m"] else []
    if words[:1] == ["uv"]:
        words = words[1:]
        if words[:1] == ["add"]:
            return "install", words[1:]
        if words[:1] != ["pip"]:
            return None
    if not words or not re.fullmatch(r"(.*/)?pip[\d.]*", words[0]):
        return None
    at = next((n for n, word in enumerate(words) if n and not word.startswith("-")), None)
    return (words[at], [*words[1:at], *words[at + 1 :]]) if at is not None else None


def _split(text: str) -> list[list[str]]:
    """The commands of a shell text, each as its words, without redirections and comments.

    Unlike a shell, `transformers>=4.50` without quotes is one word: nobody means the file `=4.50`.
    """
    commands: list[list[str]] = [[]]
    word: str | None = None
    quote = ""
    text = text.replace("\\\n", " ")
    at = 0
    while at < len(text):
        letter = text[at]
        at += 1
        if letter == _MARK:  # what stands for a value is part of a word, whatever is in it
            end = text.index(_MARK, at) + 1
            word, at = (word or "") + text[at - 1 : end], end
        elif quote:
            if letter == quote:
                quote = ""
            else:
                word = (word or "") + letter
        elif letter in "'\"":
            quote, word = letter, word or ""
        elif letter == "\\" and at < len(text):
            word, at = (word or "") + text[at], at + 1
        elif letter == "&" and ((word is not None and word.endswith(">")) or text[at : at + 1] == ">"):
            word = (word or "") + letter
        elif letter in ";|&\n()":
            commands[-1] += [] if word is None else [word]
            commands.append([])
            word = None
        elif letter.isspace():
            commands[-1] += [] if word is None else [word]
            word = None
        elif letter == "#" and word is None:
            at = len(text) if (end := text.find("\n", at)) < 0 else end
        else:
            word = (word or "") + letter
    commands[-1] += [] if word is None else [word]
    return [kept for command in commands if (kept := list(_without_redirections(command)))]


def _without_redirections(words: Iterable[str]) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        match = _REDIRECT.fullmatch(word)
        if match is None:
            yield word
        elif not match["target"]:
            next(rest, None)


def _names(expression: cst.BaseExpression) -> list[cst.Name]:
    collected: list[cst.Name] = []

    class Names(cst.CSTVisitor):
        def visit_Name(self, node: cst.Name) -> None:  # noqa: N802
            collected.append(node)

    expression.visit(Names())
    return collected


def _marked(text: str) -> str:
    return f"{_MARK}{text}{_MARK}"


def _shown(text: str) -> str:
    """A text as a comment holds it: on one line, as the notebook wrote it."""
    line = " ".join(text.replace(_MARK, "").split())
    return line if line.isprintable() else line.encode("unicode_escape").decode()


def _is_about_packages(command: str) -> bool:
    """True for a command that installs, removes or fetches packages, of Python or not."""
    commands = [_without_environment(words) for words in _split(command)]
    return any(_pip(words) is not None or is_install(" ".join(words)) for words in commands)


def _without_environment(words: list[str]) -> list[str]:
    while words and (words[0] in ("sudo", "time", "exec") or _ENVIRONMENT.fullmatch(words[0])):
        words = words[1:]
    return words
