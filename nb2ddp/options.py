"""The options of a conversion: what to write, and the job that will be started."""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal

from nb2ddp.results import Severity
from nb2ddp.settings import Setting, check, given, setting, settings_of

Launcher = Literal["accelerate", "notebook", "slurm", "torchrun", "uv"]
#: `accelerate launch` takes fp8 too, but only with a section about its backend, which no notebook asks for.
Precision = Literal["no", "fp16", "bf16"]

#: Variables that accelerate, torch.distributed or SLURM set for each process; a fixed value breaks the job.
RESERVED_VARIABLES: Final = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "NODE_RANK",
        "RANK",
        "WORLD_SIZE",
    }
)
#: sbatch options that the script writes itself, each with the field that it follows.
RESERVED_OPTIONS: Final = {
    "--account": "account",
    "--cpus-per-task": "cpus_per_gpu",
    "--error": "job_name",
    "--gpus": "processes",
    "--gpus-per-node": "processes",
    "--gres": "processes",
    "--job-name": "job_name",
    "--mem": "memory",
    "--nodes": "machines",
    "--ntasks": "machines",
    "--ntasks-per-node": "machines",
    "--output": "job_name",
    "--partition": "partition",
    "--time": "time",
}

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
#: A DNS name whose last label starts with a letter, as every one that is not an address does (RFC 1123, 2.1).
_HOST = re.compile(rf"(?:{_LABEL}\.)*(?=[A-Za-z]){_LABEL}")
_WORD = re.compile(r"[\w.+@-]+", re.ASCII)
_PARTITIONS = re.compile(r"[\w.+@-]+(?:,[\w.+@-]+)*", re.ASCII)
_MEMORY = re.compile(r"[0-9]+[KMGT]?")
#: The forms that `man sbatch` lists for --time.
_TIME = re.compile(r"[0-9]+(?::[0-9]{1,2}){0,2}|[0-9]+-[0-9]{1,2}(?::[0-9]{1,2}){0,2}")
_OPTION = re.compile(r"(--[a-z][a-z0-9-]*)(?:=[\w.,:;/+@%&|*()\[\]-]+)?", re.ASCII)
_VARIABLE_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class OptionsError(ValueError):
    """Options that no conversion can follow; the message is one sentence for the person who chose them."""


class LaunchError(ValueError):
    """The wished launch cannot be written; the message is one sentence for the person who asked for it."""


@dataclass(frozen=True)
class Slurm:
    """What a SLURM cluster wants to know besides the numbers of machines and processes.

    In `container` and in the values of `environment`, `$NAME` and `${NAME}` stay references that the job
    resolves (an unset one ends it); everything else in every field is taken literally.

    Raises:
        LaunchError: a field holds what SLURM or the shell would not read as one plain value.
    """

    #: Name in the queue and start of the log names; from the script's name where None.
    job_name: str | None = None
    #: Longest run time, as sbatch reads it: minutes, `H:MM:SS` or `D-HH:MM:SS`; the partition's where None.
    time: str | None = None
    #: Who pays for the job.
    account: str | None = None
    #: Partition, or several with commas between them.
    partition: str | None = None
    #: Kind of GPU to ask for, by the cluster's own name for it; any where None.
    gpu_type: str | None = None
    #: CPU cores for each process; many clusters give one where None.
    cpus_per_gpu: int | None = None
    #: Memory of each machine, as sbatch reads it: MiB, or with K, M, G or T; "0" is all of it.
    memory: str | None = None
    #: More sbatch options, such as `--qos=high`, each as one string.
    options: tuple[str, ...] = ()
    #: Environment modules to load, in this order.
    modules: tuple[str, ...] = ()
    #: What the command runs in: a command (`apptainer exec --nv image.sif`) or options of srun
    #: (`--container-image=image.sqsh`).
    container: str | None = None
    #: Name and value of environment variables of the job.
    environment: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        _match("job_name", self.job_name, _WORD, "letters, digits and . _ + @ -")
        _match("time", self.time, _TIME, "minutes, H:MM:SS or D-HH:MM:SS")
        _match("account", self.account, _WORD, "letters, digits and . _ + @ -")
        _match("partition", self.partition, _PARTITIONS, "names with commas between them")
        _match("gpu_type", self.gpu_type, _WORD, "letters, digits and . _ + @ -")
        _match("memory", self.memory, _MEMORY, "a number, with K, M, G or T behind it if it is not in MiB")
        if self.cpus_per_gpu is not None and self.cpus_per_gpu < 1:
            raise LaunchError(f"cpus_per_gpu must be at least 1, not {self.cpus_per_gpu}.")
        for option in self.options:
            match = _OPTION.fullmatch(option)
            if match is None:
                raise LaunchError(f"{option!r} is not an sbatch option of the form --name or --name=value.")
            if match[1] in RESERVED_OPTIONS:
                raise LaunchError(f"{match[1]} cannot be an option: {RESERVED_OPTIONS[match[1]]} decides it.")
        for module in self.modules:
            check_text("modules", module)
            if module.startswith("-") or not module.strip():
                raise LaunchError(f"{module!r} is not the name of an environment module.")
        if self.container is not None:
            check_text("container", self.container)
            if not words(self.container):
                raise LaunchError("container must be a command or options of srun, not empty.")
        for name, value in self.environment:
            if _VARIABLE_NAME.fullmatch(name) is None:
                raise LaunchError(f"{name!r} is not the name of an environment variable.")
            if name in RESERVED_VARIABLES:
                raise LaunchError(f"{name} is set for each process by the launcher and cannot be fixed.")
            check_text(f"environment variable {name}", value)


def slurm_table(texts: Iterable[str]) -> dict[str, Any]:
    """The settings of a SLURM job, as a table, from texts such as `time=2:00:00` and `environment=HF_HOME=$SCRATCH`.

    Raises:
        LaunchError: a text is not of the form KEY=VALUE.
    """
    table: dict[str, Any] = {}
    for assignment in texts:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise LaunchError(f"{assignment!r} is not KEY=VALUE.")
        if key in ("options", "modules"):
            table.setdefault(key, []).append(text)
        elif key == "environment":
            name, _, content = text.partition("=")
            table.setdefault(key, {})[name] = content
        else:
            table[key] = int(text) if key == "cpus-per-gpu" and text.isdecimal() else text
    return table


@dataclass(frozen=True)
class Launch:
    """How many processes on how many machines, and what starts them.

    Raises:
        LaunchError: the numbers do not fit together, or a field is out of its range.
    """

    processes: int = setting(
        2,
        "Processes on all machines, one per GPU (default 2).",
        key="num-processes",
        metavar="N",
        least=1,
    )
    machines: int = setting(1, "Machines (default 1).", key="num-machines", metavar="N", least=1)
    #: Host name or IPv4 address; for SLURM the job finds it.
    main_process_ip: str | None = setting(None, "The machine of rank 0.", metavar="HOST")
    #: 0 for a free one (one machine only). Where None: 29500 on several machines, with SLURM one that follows from
    #: the job's number.
    main_process_port: int | None = setting(None, "Its port (default 29500).", metavar="PORT", least=0, most=65535)
    mixed_precision: Precision = setting("no", "Used if the notebook sets none (default no).")
    launcher: Launcher = setting("accelerate", "Write files for this launcher too.")
    #: Only with the launcher "slurm", where None means all defaults.
    slurm: Slurm | None = setting(
        None, "For --launcher slurm: time=2:00:00, partition=gpu, ... Repeatable.", metavar="KEY=VALUE"
    )

    def __post_init__(self) -> None:
        check(self, LaunchError)
        for is_wrong, why in self._faults():
            if is_wrong:
                raise LaunchError(why)

    def _faults(self) -> Iterator[tuple[bool, str]]:
        """What may not fit together: whether that is so, and how it is said."""
        launcher, port, address = self.launcher, self.main_process_port, self.main_process_ip
        is_slurm, is_alone = launcher == "slurm", self.machines == 1
        yield (
            self.processes % self.machines != 0,
            f"{self.processes} processes cannot be spread evenly over {self.machines} machines: "
            "the number of processes counts those of all machines together.",
        )
        yield (
            not is_alone and launcher in ("notebook", "uv"),
            f"The launcher {launcher!r} is for one machine, not {self.machines}.",
        )
        yield port is not None and self.processes == 1, "main_process_port has no effect on one process."
        yield port == 0 and not is_alone, "Port 0 (any free one) is for one machine: several must agree on a port."
        yield port == 0 and is_slurm, "Port 0 is not needed with SLURM: the port follows from the job's number."
        yield address is not None and is_slurm, "SLURM decides which machine has rank 0: leave out main_process_ip."
        yield address is not None and is_alone, "main_process_ip has no effect on one machine."
        yield (
            address is None and not is_alone and launcher == "accelerate",
            f"{self.machines} machines need the address of the one with rank 0 (main_process_ip).",
        )
        yield address is not None and not _is_host(address), f"{address!r} is neither a host name nor an IPv4 address."
        yield self.slurm is not None and not is_slurm, f"SLURM settings have no effect with the launcher {launcher!r}."

    @property
    def processes_per_machine(self) -> int:
        """Processes, and so GPUs, of each machine."""
        return self.processes // self.machines


@dataclass(frozen=True)
class Options:
    """Everything that shapes the output.

    Raises:
        OptionsError: a field is out of its range.
    """

    launch: Launch = field(default_factory=Launch)
    per_device_batch_size: int | Literal["notebook"] | None = setting(
        None,
        "Set the per-device batch, or keep the notebook's. Default: what GPU memory allows. The global batch stays.",
        metavar="N|notebook",
        least=1,
    )
    vllm_server: bool = setting(False, "GRPO with a vLLM server on one more GPU.")
    #: `launch` is then of one process.
    split_model: bool = setting(False, "One process; the model is split over all GPUs.")
    resume: bool = setting(False, "Resume a training that ended early.", section="What to do")
    requirements: bool = setting(
        False, "Also write the packages of the install cells to SCRIPT.requirements.txt.", section="Where to"
    )
    #: Codes, or beginnings of codes; None applies all.
    select: frozenset[str] | None = setting(
        None, "Apply only these rules; DDP3 means all codes that begin with it.", section="What to do", metavar="CODES"
    )
    ignore: frozenset[str] = setting(
        frozenset(),
        "Do not apply these rules, in addition to --select and pyproject.toml.",
        section="What to do",
        metavar="CODES",
    )

    def __post_init__(self) -> None:
        check(self, OptionsError)
        if self.vllm_server and (self.launch.machines > 1 or self.launch.launcher not in ("accelerate", "torchrun")):
            raise OptionsError("A vLLM server is for one machine, and for the launchers accelerate and torchrun.")
        if self.split_model:
            launch = self.launch
            if self.vllm_server or launch.machines > 1 or launch.launcher not in ("accelerate", "uv"):
                raise OptionsError(
                    "A model that one process splits is for one machine, for the launchers accelerate and uv, and"
                    " without a vLLM server."
                )
            object.__setattr__(self, "launch", replace(launch, processes=1))

    @property
    def lists_packages(self) -> bool:
        """True where requirements are written, or a launch file installs the packages itself."""
        return self.requirements or self.launch.launcher in ("notebook", "uv")

    def applies(self, code: str) -> bool:
        """True for a rule that is selected and not ignored."""
        selected = self.select is None or code.startswith(tuple(self.select))
        return selected and not code.startswith(tuple(self.ignore))


@dataclass(frozen=True)
class Settings:
    """All that is set for one notebook."""

    options: Options = field(default_factory=Options)
    output_dir: Path | None = setting(
        None,
        "Write the scripts of several notebooks or folders here, in the tree of the notebooks.",
        section="Where to",
        metavar="FOLDER",
        short="-o",
    )
    root: Path | None = setting(
        None, "The folder whose tree --output-dir mirrors.", section="Where to", metavar="FOLDER"
    )
    exclude: tuple[str, ...] = setting(
        (),
        "Skip notebooks by .gitignore patterns. Repeatable.",
        section="Where to",
        metavar="PATTERN",
    )
    fail_on: Severity = setting(
        Severity.ERROR, "Exit with 1 on findings of at least this severity (default error).", section="Findings"
    )
    rehearse: bool = setting(
        False, "Then train each script on the CPU; see `nb2ddp rehearse --help`.", section="What to do"
    )


#: What the command line and pyproject.toml both set.
SETTINGS: Final = settings_of(Settings)


def arguments(options: Options | Launch, leave_out: Collection[str] = ()) -> list[str]:
    """The words that ask the command line for these options: those that differ from the defaults, in order.

    For example, `Launch(processes=8)` becomes `--num-processes 8`.

    Args:
        options: all of them, or those of the launch.
        leave_out: keys of options that are not asked for.
    """
    values = {key: value for key, value in given(options).items() if key not in leave_out}
    return [word for setting in SETTINGS if setting.key in values for word in _words_of(setting, values[setting.key])]


def as_typed(message: str) -> str:
    """A message about fields of `Launch` and `Slurm` for a person who typed options.

    For example, `main_process_ip has no effect` becomes `--main-process-ip has no effect`.
    """
    for declared in SETTINGS:
        if "_" in declared.field:
            message = re.sub(rf"\b{declared.field}\b", declared.option, message)
    names = "|".join(member.name for member in fields(Slurm))
    begin = re.match(rf"({names}|environment variable \w+) (must|holds)", message)
    return f"--slurm {begin[1].replace('_', '-')}{message[begin.end(1) :]}" if begin else message


def _words_of(setting: Setting, value: Any) -> list[str]:
    if setting.kind is bool:
        return [setting.option]
    if isinstance(value, Slurm):
        return [word for text in _slurm_texts(value) for word in (setting.option, text)]
    return [setting.option, ",".join(sorted(value)) if setting.kind is frozenset else str(value)]


def _slurm_texts(slurm: Slurm) -> Iterator[str]:
    """As `slurm_table` reads them."""
    for member in fields(slurm):
        key, value = member.name.replace("_", "-"), getattr(slurm, member.name)
        if value is None:
            continue
        texts = value if isinstance(value, tuple) else (value,)
        yield from (f"{key}={'='.join(text) if isinstance(text, tuple) else text}" for text in texts)


def _match(field: str, value: str | None, pattern: re.Pattern[str], form: str) -> None:
    if value is not None and pattern.fullmatch(value) is None:
        raise LaunchError(f"{field} must be {form}, not {value!r}.")


def _is_host(address: str) -> bool:
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        return len(address) <= 253 and _HOST.fullmatch(address) is not None
    return True


def check_text(what: str, text: str) -> None:
    """Refuse what no quoting makes one line of text."""
    if not text.isprintable():
        raise LaunchError(f"{what} holds a control character: {text!r}.")


def words(line: str) -> list[str]:
    """Split a container line as a shell does."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise LaunchError(f"The container line {line!r} cannot be split into words: {error}.") from error
