"""The options of a conversion: what to write, and the job that will be started."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from nb2ddp.settings import check, given, setting, settings_of

Launcher = Literal["accelerate", "notebook", "slurm", "torchrun", "uv"]

#: An option of sbatch, as on a line after `#SBATCH`.
_SBATCH = re.compile(r"--?[A-Za-z][^\n\r]*")


class OptionsError(ValueError):
    """Options that no conversion can follow; the message is one sentence for the person who chose them."""


class LaunchError(ValueError):
    """The requested launch cannot be written; the message is one sentence for the person who asked for it."""


@dataclass(frozen=True)
class Launch:
    """How many GPUs on how many machines, and what starts the processes: one for each GPU.

    Raises:
        LaunchError: the numbers do not fit together, or a field is out of its range.
    """

    gpus: int = setting(2, "GPUs of each machine (default 2).", metavar="N", least=1)
    machines: int = setting(1, "Number of machines (default 1).", metavar="N", least=1)
    launcher: Launcher = setting("accelerate", "Also write files for this launcher.")
    #: Only with the launcher "slurm": more lines after `#SBATCH`, which override those of nb2ddp.
    slurm: tuple[str, ...] = setting((), "Options of sbatch, such as --partition=gpu.", is_typed=False)

    def __post_init__(self) -> None:
        check(self, LaunchError)
        if self.machines > 1 and self.launcher in ("notebook", "uv"):
            raise LaunchError(f"The launcher {self.launcher!r} is for one machine, not {self.machines}.")
        for option in self.slurm:
            if not (_SBATCH.fullmatch(option) and option.isprintable()):
                raise LaunchError(f"slurm: {option!r} is not an option of sbatch such as --partition=gpu.")

    @property
    def processes(self) -> int:
        """Processes on all machines, one per GPU."""
        return self.gpus * self.machines


@dataclass(frozen=True)
class Options:
    """Everything that shapes the output.

    Raises:
        OptionsError: a field is out of its range.
    """

    launch: Launch = field(default_factory=Launch)
    batch: int | Literal["notebook"] | None = setting(
        None,
        "Per-device batch; the global batch stays.",
        metavar="N|notebook",
        least=1,
    )
    vllm_server: bool = setting(False, "Generate for GRPO on a vLLM server on one more GPU.", is_typed=False)
    skip_checkpointing: bool = setting(False, "Skip it in trainings of fewer than 100 steps too.", is_typed=False)
    #: `launch` then has one process.
    split_model: bool = setting(False, "Train as one process that splits the model over all GPUs.", is_typed=False)
    resume: bool = setting(False, "The script resumes where a job ended.")
    #: Codes, or beginnings of codes; None applies all.
    select: frozenset[str] | None = setting(None, "Apply only these rules.", is_typed=False)
    ignore: frozenset[str] = setting(frozenset(), "Ignore rules: DDP101,DDP3 (all DDP3xx).", metavar="CODES")

    def __post_init__(self) -> None:
        check(self, OptionsError)
        launch = self.launch
        if self.vllm_server and (launch.machines > 1 or launch.launcher not in ("accelerate", "torchrun")):
            raise OptionsError("A vLLM server needs one machine, and the launcher accelerate or torchrun.")
        if self.split_model:
            if self.vllm_server or launch.machines > 1 or launch.launcher not in ("accelerate", "uv"):
                raise OptionsError("split-model needs one machine, the launcher accelerate or uv, and no vLLM server.")
            object.__setattr__(self, "launch", replace(launch, gpus=1))

    def applies(self, code: str) -> bool:
        """Return whether a rule is selected and not ignored."""
        selected = self.select is None or code.startswith(tuple(self.select))
        return selected and not code.startswith(tuple(self.ignore))


@dataclass(frozen=True)
class Settings:
    """All settings of one notebook."""

    options: Options = field(default_factory=Options)
    output_dir: Path | None = setting(None, "The folder of the scripts.", is_typed=False)
    exclude: tuple[str, ...] = setting((), "Notebooks to skip, as in .gitignore.", is_typed=False)
    fail_on_warnings: bool = setting(False, "Exit with 1 on a warning.", is_typed=False)


#: The settings in pyproject.toml.
SETTINGS = settings_of(Settings)
#: The settings that are also options of the command line.
TYPED = tuple(each for each in SETTINGS if each.is_typed)


def arguments(options: Options | Launch, leave_out: tuple[str, ...] = ()) -> list[str]:
    """Return the words of a command line with these options: those that differ from the defaults, in order.

    For example, `Launch(gpus=8)` becomes `--gpus 8`.

    Args:
        options: all of them, or those of the launch.
        leave_out: keys of options to leave out.
    """
    values = {key: value for key, value in given(options).items() if key not in leave_out}
    return [word for each in TYPED if each.key in values for word in _words(each.option, values[each.key])]


def _words(option: str, value: Any) -> list[str]:
    if value is True:
        return [option]
    return [option, ",".join(sorted(value)) if isinstance(value, frozenset) else str(value)]


def typed(words: list[str]) -> Mapping[str, Any]:
    """Return the options in a command of the form that `arguments` writes, by key.

    Raises:
        ValueError: a value that must be a number is not a number.
    """
    values: dict[str, Any] = {}
    by_option = {each.option: each for each in TYPED}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if each := by_option.get(word):  # not the command, the notebook, the script, a value
            several, number = each.kind is frozenset, each.kind is int and following not in each.words
            values[each.key] = each.kind is bool or (
                following.split(",") if several else int(following) if number else following
            )
    return values
