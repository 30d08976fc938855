"""The packages that a notebook's install cells name, as requirements files that pip installs as written.

What pip takes for a whole command only cannot stand in a requirements file (pip's manual, "Requirements File Format"):
packages installed with `--no-deps` or `--no-build-isolation` get files of their own, with the command that installs
them. What is no Python package, or known only when the notebook runs, is kept as a comment.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
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
from nb2ddp.notebook.python import names
from nb2ddp.script.templates import render

#: Options that pip knows on its command line alone, in the order in which what they hold is installed.
_COMMAND_OPTIONS = ("--no-build-isolation", "--no-deps")
#: The options that packages of one file share, in the order in which the files are installed.
GROUPS = ((), ("--no-build-isolation",), ("--no-deps",), _COMMAND_OPTIONS)
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
    **dict.fromkeys(("-r", "--requirement", "--requirements"), "-r"),
    **dict.fromkeys(("-e", "--editable"), "-e"),
}
#: Options with a value that decide what is installed, and that no requirements file can hold.
_LOST_OPTIONS = frozenset(
    "--torch-backend --exclude-newer --target -t --prefix --root --config-settings --config-setting -C --override"
    " --overrides --resolution --group --python-version --platform --abi --implementation --index-strategy"
    " --global-option --install-option --build-option".split()
)
#: Options with a value that do not.
_IDLE_OPTIONS = frozenset(
    "--cache-dir --timeout --retries --progress-bar --upgrade-strategy --log --proxy --cert --client-cert --report"
    " --use-feature --use-deprecated --exists-action --src --python -p --keyring-provider --link-mode --prerelease"
    " --refresh-package --reinstall-package --upgrade-package -P --color --directory --project --config-file"
    " --allow-insecure-host --no-build-isolation-package --no-build-package --build-constraint -b".split()
)
#: What takes pre-releases.
_PRE = frozenset({"--pre", "--prerelease allow"})
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
_ENVIRONMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_STARTS = re.compile(r"os\.(system|popen)|subprocess\.(run|call|check_call|check_output|Popen|getoutput)")
_INTERPOLATION = re.compile(r"\{\{|\}\}|\$\$|\{(?P<braced>[^{}]*)\}|\$(?P<name>[A-Za-z_]\w*)")
#: Stands around an expression whose value is not known.
_MARK = "\0"
_MARKED = r"\0[^\0]*\0"
#: A word of the shell. Unlike there, `transformers>=4.50` without quotes is one: nobody means the file `=4.50`.
_WORD = rf"""(?:{_MARKED}|'(?:{_MARKED}|[^'\0])*'|"(?:{_MARKED}|[^"\0])*"|\\.|[^\s;|&()])+"""
#: Comments and redirections, which are no words; what ends a command; words.
_TOKEN = re.compile(rf"(?<!\S)(?:#.*|(?:\d*|&)[<>]+[^\S\n]*&?(?:{_WORD})?)|(?P<end>[;|&\n()]+)|(?P<word>{_WORD})")
_QUOTED = re.compile(rf"""({_MARKED})|'((?:{_MARKED}|[^'\0])*)'|"((?:{_MARKED}|[^"\0])*)"|\\(.)""")
#: `pip` before its subcommand, also as `python -m pip` and `uv pip`; `uv` before `add`, which installs as well.
_PIP = re.compile(r"(?:(?:\S*/)?python[\d.]* (?:-[uIq] )*-m )?(?:(?:uv )?(?:\S*/)?pip[\d.]*|uv(?= add)) ")


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

    @property
    def decides(self) -> bool:
        """True where what is there already may not do."""
        return self.upgrade or not self.is_open

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

    groups: dict[tuple[str, ...], tuple[Package, ...]]
    options: dict[tuple[str, ...], tuple[str, ...]]
    notes: tuple[tuple[int, str], ...]

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
                command=command,
                notes=[] if group else self.notes,
                options=self.options[group],
                lines=[package.text for package in self.groups[group]],
            )
            for group, (name, command) in zip(self.groups, commands.items(), strict=False)
        }

    def commands(self, script_name: str) -> dict[str, str]:
        """What installs the packages of each file, by its name and in the order in which they are installed."""
        groups = self.groups if self else ()
        return {file_name(script_name, group): install_command(script_name, group) for group in groups}

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
    return _Reading(program, dict(minimums)).result()


class _Reading:
    """Read a notebook's installs one after the other, as they would run."""

    def __init__(self, program: Program, minimums: dict[str, str]) -> None:
        self.program = program
        self.minimums = minimums
        self.tree = program.tree
        self.notes: list[tuple[int, str]] = []
        self.groups: dict[tuple[str, ...], dict[str, Package]] = {group: {} for group in GROUPS}
        #: Each group's options, and the index of each of its commands.
        self.options: dict[tuple[str, ...], list[str]] = {group: [] for group in GROUPS}
        self.indexes: dict[tuple[str, ...], list[str | None]] = {group: [] for group in GROUPS}
        #: What shell commands set.
        self.variables: dict[str, str] = {}

    def result(self) -> Requirements:
        self._install(list(self.program.notebook.metadata.dependencies), HEADER)
        for call in self.tree.of(cst.Call):
            if (text := self._shell_text(call)) and self.tree.is_live(call):
                self._take(call, text)
        self._add_what_colab_has()
        self.groups = {group: self._kept(group) for group in GROUPS}
        self._raise_floors()
        groups = {group: tuple(each.values()) for group, each in self.groups.items() if each or not group}
        return Requirements(groups, {group: self._index_lines(group) for group in groups}, tuple(self.notes))

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

    def _take(self, call: cst.Call, text: str) -> None:
        """Take in what a call has a shell do, where that is about packages."""
        commands = _split(self._filled(text, call))
        if not any(_pip(words) or is_install(" ".join(words)) for words in map(_without_environment, commands)):
            return
        cell = self.program.cell_at(self.tree.start(call)).number
        is_taken, why = self._branch(call)
        for words in commands if is_taken else ():
            self._command(words, cell)
        if why and (cell, why) not in self.notes:
            self.notes.append((cell, why))

    def _shell_text(self, call: cst.Call) -> str:
        """What a call has a shell do; empty for any other call."""
        form = self.program.form(call)
        if form is None:
            return self._python_command(call)
        if form.kind is Kind.LINE_MAGIC and form.name in ("pip", "uv", "conda", "mamba", "micromamba"):
            return f"{form.name} {form.text}"
        if form.kind is Kind.CELL_MAGIC and form.name in ("bash", "sh", "script"):
            return form.body or ""
        return form.text if form.kind is Kind.SHELL else ""

    def _python_command(self, call: cst.Call) -> str:
        """The command line of `subprocess.run` and the like; empty for any other call."""
        name = self.tree.qualified(call.func)
        if not call.args or not _STARTS.fullmatch(name):
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
            if any(is_colab(self.tree.text(side)) is False for side in (test.left, test.right)):
                return False  # `torch is missing or this is Colab`: what follows is made for Colab
            return True if True in sides else None
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
            inside = (match["braced"] or match["name"] or "").strip()
            if inside == "sys.executable":
                return "python"
            if not names(f"({inside})").reads & self.tree.bound_names:
                return match[0]
            value = self._value(cst.parse_expression(f"({inside})"), call)
            return _marked(match[0]) if value is None else value

        return _INTERPOLATION.sub(fill, command)

    def _value(self, node: cst.CSTNode, call: cst.Call) -> str | None:
        """The text of an expression where the notebook writes it out, also by a name that it binds once."""
        if isinstance(node, cst.FormattedStringText):
            return node.value
        if isinstance(node, cst.FormattedStringExpression):
            return None if node.format_spec else self._value(node.expression, call)
        if isinstance(node, cst.FormattedString):
            parts = [self._value(part, call) for part in node.parts]
            return None if None in parts else "".join(part for part in parts if part)
        if isinstance(node, cst.Name):
            above = [b for b in self.tree.bindings(node.value) if b.offset < self.tree.start(call)]
            made = above[0].value if len(above) == 1 else None
            return None if made is None or isinstance(made, cst.Name) else self._value(made, call)
        value = self.tree.literal(node) if isinstance(node, cst.BaseExpression) else ...
        return str(value) if isinstance(value, (str, int, float)) else None

    # -- one command ----------------------------------------------------------------------------------------

    def _command(self, words: list[str], cell: int) -> None:
        """Take in one command, in which no other one is joined."""
        said = _shown(" ".join(words))
        rest = _without_environment(words)
        if not rest:
            self.variables.update(word.partition("=")[::2] for word in words)
        elif (found := _pip(rest)) is None:
            if is_install(" ".join(rest)):
                self.notes.append((cell, f"not a Python package: {said}"))
        elif found[0] in ("install", "add"):
            self._install(found[1], cell)
        elif found[0] in ("uninstall", "download", "wheel", "sync"):
            self.notes.append((cell, f"not done here: {said}"))

    def _install(self, arguments: list[str], cell: int) -> None:
        packages: list[tuple[str, str]] = []
        options: list[str] = []
        index: str | None = None
        flags: set[str] = set()
        rest = iter(arguments)
        for word in rest:
            if not word.startswith("-"):
                packages.append(("", word))
                continue
            name, is_given, value = word.partition("=")
            if not is_given and (name in _FILE_OPTIONS or name in _LOST_OPTIONS or name in _IDLE_OPTIONS):
                value = next(rest, "")
            kept = _FILE_OPTIONS.get(name, "")
            if kept in ("-r", "-e"):
                packages.append((kept, value))
            elif kept and value.isprintable() and " " not in value:
                value = self._without_variables(value, cell)
                if kept == "--index-url":
                    index = value
                else:
                    options.append(f"{kept} {value}")
            elif kept or name in _LOST_OPTIONS:
                self.notes.append((cell, f"an option that no requirements file has: {_shown(f'{name} {value}')}"))
            else:
                flags.add(f"{name} {value}".strip())
        group = tuple(option for option in _COMMAND_OPTIONS if option in flags)
        found = [p for option, word in packages if (p := self._package(option, word, cell, flags)) is not None]
        for package in found:
            self._add(group, package)
        if found:
            options += [option for option in ("--prefer-binary", "--no-index") if option in flags]
            self.options[group] += options
            self.indexes[group].append(index)

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
        upgrade = any(re.fullmatch(r"--upgrade|-[a-zA-Z]*U[a-zA-Z]*", flag) for flag in flags)
        is_url = bool(re.match(r"(git|hg|svn|bzr)\+|\w+://", word))
        if _MARK in word:
            why = "known only when the notebook runs"
        elif not word.isprintable() or (" " in word and (is_url or option)):  # one line of the file for each
            why = "not a requirement"
        elif option == "-r" and "://" not in word and ("/" in word or self._changes_folder):
            why = "a file that is there only later"  # pip refuses the whole file where it is missing
        elif option == "-r":
            return Package(f"-r {word}", f"-r {word}", cell)
        elif is_url:
            return Package(f"{option} {word}".strip(), _name_of_url(word), cell, upgrade=upgrade)
        elif option or word.startswith((".", "/", "~")) or _ARCHIVE.search(word) or ("/" in word and "@" not in word):
            why = "a file or folder of the notebook's machine"
        elif (own := _requirement(word)) is None:
            why = "not a requirement"
        else:
            name = canonicalize_name(own.name)
            if name == "marimo" or (name in _INSTALLERS and self._imported(name) is None):
                return None
            marker = f"; {own.marker}" if own.marker else ""
            return Package(word, name + marker, cell, bool(flags & _PRE), upgrade)
        self.notes.append((cell, f"{why}: {_shown(f'{option} {word}'.strip())}"))
        return None

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
        """Take in a package: of two commands that name it the last one decides, unless it takes what is there."""
        packages = self.groups[group]
        old = packages.get(new.name)
        replaced = [old]
        if "--no-deps" not in group and not new.is_open:  # their files are installed later than this one's
            replaced += [each.pop(new.name, None) for options, each in self.groups.items() if "--no-deps" in options]
        for each in replaced if new.decides else ():
            if each is not None and not each.is_open and each.line != new.line:
                self.notes.append((each.cell, f"{each.line} gives way to {new.line} of cell {new.cell}"))
        packages[new.name] = new if old is None else _joined(old, new)

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
        given = dict.fromkeys(self.indexes[group])
        option = "--index-url" if len(given) == 1 else "--extra-index-url"
        lines = [f"{option} {index}" for index in given if index is not None]
        return tuple(dict.fromkeys([*lines, *self.options[group]]))


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


def _joined(old: Package, new: Package) -> Package:
    """The one of two lines of a package that decides, with the extras of both."""
    chosen = new if new.decides else old
    own = chosen.requirement
    extras = {extra for each in (old, new) if each.requirement for extra in each.requirement.extras}
    if own is None or extras == own.extras:
        return chosen
    own.extras = extras
    return replace(chosen, line=str(own))


def _pip(words: list[str]) -> tuple[str, list[str]] | None:
    """The subcommand of pip and all that stands around it; None for another command."""
    found = _PIP.match(" ".join(words))
    rest = words[found[0].count(" ") :] if found else []
    at = next((n for n, word in enumerate(rest) if not word.startswith("-")), None)
    return (rest[at], [*rest[:at], *rest[at + 1 :]]) if at is not None else None


def _split(text: str) -> list[list[str]]:
    """The commands of a shell text, each as its words, without redirections and comments."""
    commands: list[list[str]] = [[]]
    for token in _TOKEN.finditer(text.replace("\\\n", " ")):
        if token["end"]:
            commands.append([])
        elif token["word"]:
            commands[-1].append(_QUOTED.sub(lambda quoted: quoted[quoted.lastindex or 0], token["word"]))
    return [words for words in commands if words]


def _marked(text: str) -> str:
    return f"{_MARK}{text}{_MARK}"


def _shown(text: str) -> str:
    """A text as a comment holds it: on one line, as the notebook wrote it."""
    line = " ".join(text.replace(_MARK, "").split())
    return line if line.isprintable() else line.encode("unicode_escape").decode()


def _without_environment(words: list[str]) -> list[str]:
    while words and (words[0] in ("sudo", "time", "exec") or _ENVIRONMENT.fullmatch(words[0])):
        words = words[1:]
    return words
