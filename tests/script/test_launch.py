"""The launch files: against accelerate's own, against the shell, and against the golden files.

`python -m tests.script.test_launch` writes the golden files of `fixtures/launch` anew.
"""

from __future__ import annotations

import itertools
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import termios
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from nb2ddp.options import Launch, Launcher, LaunchError, Precision, Slurm
from nb2ddp.script.launch import CONFIG_NAME, launch_command, launch_files

GOLDEN = Path(__file__).parents[2] / "fixtures" / "launch"

CASES = {
    "one-gpu": (Launch(processes=1), "train.py"),
    "one-machine": (Launch(processes=8, mixed_precision="bf16"), "train.py"),
    "one-machine-free-port": (Launch(processes=4, main_process_port=0), "Llama3.1_(8B)-Alpaca.py"),
    "two-machines": (Launch(processes=16, machines=2, main_process_ip="10.0.0.1"), "train.py"),
    "slurm-one-machine": (Launch(processes=4, launcher="slurm"), "Llama3.1_(8B)-Alpaca.py"),
    "slurm-four-machines": (
        Launch(
            processes=32,
            machines=4,
            mixed_precision="bf16",
            launcher="slurm",
            slurm=Slurm(
                job_name="alpaca",
                time="1-12:00:00",
                account="lab@gpu",
                partition="a100,h100",
                gpu_type="a100",
                cpus_per_gpu=8,
                memory="0",
                options=("--qos=high", "--exclusive"),
                modules=("gcc/12.3", "cuda/12.4"),
                environment=(("HF_HOME", "$SCRATCH/hugging face"), ("NCCL_SOCKET_IFNAME", "ib0")),
            ),
        ),
        "train.py",
    ),
    "slurm-apptainer": (
        Launch(launcher="slurm", slurm=Slurm(container="apptainer exec --nv ${IMAGES}/unsloth.sif")),
        "train.py",
    ),
    "slurm-pyxis": (
        Launch(launcher="slurm", slurm=Slurm(container="--container-image=unsloth/unsloth --no-container-remap-root")),
        "train.py",
    ),
    "torchrun-one-machine": (Launch(launcher="torchrun"), "train.py"),
    "torchrun-two-machines": (
        Launch(processes=8, machines=2, mixed_precision="fp16", launcher="torchrun"),
        "it's.py",
    ),
    "torchrun-address": (
        Launch(processes=4, machines=2, main_process_ip="gpu-1.cluster", main_process_port=2950, launcher="torchrun"),
        "train.py",
    ),
}

COMBINATIONS = [
    pytest.param(launcher, machines, each, precision, id=f"{launcher}-{machines}x{each}-{precision}")
    for launcher, machines, each, precision in itertools.product(
        ("accelerate", "slurm", "torchrun"), (1, 2, 4), (1, 2, 8), ("no", "fp16", "bf16")
    )
]


def combination(launcher: Launcher, machines: int, each: int, precision: Precision) -> Launch:
    return Launch(
        processes=machines * each,
        machines=machines,
        main_process_ip="10.0.0.1" if machines > 1 and launcher != "slurm" else None,
        mixed_precision=precision,
        launcher=launcher,
    )


def golden_texts(launch: Launch, script: str) -> dict[str, str]:
    """Everything that is written for a case, and what to type on each machine."""
    ranks = range(1 if launch.launcher == "slurm" else launch.machines)
    commands = "".join(launch_command(launch, script, rank) + "\n" for rank in ranks)
    return {**launch_files(launch, script), "commands.txt": commands}


@pytest.mark.parametrize("case", CASES)
def test_golden_files(case: str) -> None:
    folder = GOLDEN / case
    wanted = {path.name: path.read_text() for path in folder.iterdir()}
    assert golden_texts(*CASES[case]) == wanted, "python -m tests.script.test_launch writes them anew"


def test_no_golden_files_are_left_over() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(CASES)


# The accelerate config


def as_accelerate_writes(launch: Launch, path: Path) -> str:
    """Build what `accelerate config` builds from the answers (accelerate/commands/config/cluster.py)."""
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    utils = pytest.importorskip("accelerate.utils")
    several = launch.processes > 1
    config = config_args.ClusterConfig(
        compute_environment=utils.ComputeEnvironment.LOCAL_MACHINE,
        distributed_type=utils.DistributedType.MULTI_GPU if several else utils.DistributedType.NO,
        num_processes=launch.processes,
        gpu_ids="all",
        mixed_precision=utils.PrecisionType(launch.mixed_precision),
        downcast_bf16="no",
        machine_rank=0,
        num_machines=launch.machines,
        main_process_ip=launch.main_process_ip,
        main_process_port=launch.main_process_port or (29500 if launch.main_process_ip else None),
        main_training_function="main",
        use_cpu=False,
        rdzv_backend="static",
        same_network=True,
        tpu_env=[],
        dynamo_config={},
        debug=False,
        enable_cpu_affinity=False,
    )
    config.to_yaml_file(path)
    return path.read_text()


@pytest.mark.parametrize(("launcher", "machines", "each", "precision"), COMBINATIONS)
def test_config_is_what_accelerate_writes(
    launcher: Launcher, machines: int, each: int, precision: Precision, tmp_path: Path
) -> None:
    launch = combination(launcher, machines, each, precision)
    text = launch_files(launch, "train.py")[CONFIG_NAME]
    assert text == as_accelerate_writes(launch, tmp_path / "own.yaml")

    path = tmp_path / CONFIG_NAME
    path.write_text(text)
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = config_args.load_config_from_file(str(path))
    assert (config.num_machines, config.num_processes) == (machines, machines * each)
    assert config.mixed_precision == precision
    config.to_yaml_file(tmp_path / "again.yaml")
    assert (tmp_path / "again.yaml").read_text() == text


@pytest.mark.parametrize("host", ["no", "Off", "NULL", "node-1", "n0.example.org", "10-0-0-1.ec2", "10.0.0.1", "y"])
def test_host_names_stay_strings(host: str, tmp_path: Path) -> None:
    launch = Launch(machines=2, main_process_ip=host)
    text = launch_files(launch, "train.py")[CONFIG_NAME]
    assert text == as_accelerate_writes(launch, tmp_path / "own.yaml")


def answer_accelerate_config(answers: dict[str, str], path: Path) -> None:
    """Run the questionnaire of `accelerate config` in a terminal, and take its defaults where nothing is answered.

    Args:
        answers: what to type at the question that contains the key; for a menu the number of the row.
        path: where accelerate is to save the config.
    """
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "config", "--config_file", str(path)]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        os.close(theirs)
        try:
            _answer(ours, dict(answers))
            assert process.wait(30) == 0
        finally:
            process.kill()
            os.close(ours)
    assert path.is_file()


def _answer(terminal: int, answers: dict[str, str]) -> None:
    screen = ""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 0.1)[0]:
            is_menu = "selecting with enter" in screen
            # A menu reads single keys, and throws away what was typed before it asked.
            reads_keys = not termios.tcgetattr(terminal)[3] & termios.ICANON
            if not screen or is_menu != reads_keys or not (is_menu or screen.rstrip().endswith((":", "?"))):
                continue
            question = next((known for known in answers if known in screen), None)
            typed = answers.pop(question) if question else ""
            if is_menu and typed:
                os.write(terminal, typed.encode())
                os.read(terminal, 65536)  # the menu draws itself again, and then waits for Enter
                screen = "selecting with enter"
                continue
            os.write(terminal, typed.encode() + b"\r")
            screen = ""
            continue
        try:
            seen = os.read(terminal, 65536).decode(errors="replace")
        except OSError:  # the other side is closed: accelerate has ended
            assert not answers, f"never asked: {answers}; last seen: {screen}"
            return
        screen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    raise AssertionError(f"accelerate config stopped asking at: {screen}")


@pytest.mark.parametrize(
    ("launch", "answers"),
    [
        (Launch(processes=1), {}),
        (Launch(processes=4, mixed_precision="bf16"), {"type of machine": "4", "How many GPU": "4", "mixed": "2"}),
        (
            Launch(processes=16, machines=2, main_process_ip="gpu-1", main_process_port=29501),
            {
                "type of machine": "4",
                "How many different machines": "2",
                "IP address": "gpu-1",
                "What is the port": "29501",
                "How many GPU": "16",
            },
        ),
    ],
    ids=["one-gpu", "one-machine", "two-machines"],
)
def test_config_is_what_its_questionnaire_saves(launch: Launch, answers: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    path = tmp_path / "saved.yaml"
    answer_accelerate_config(answers, path)
    assert launch_files(launch, "train.py")[CONFIG_NAME] == path.read_text()


# The shell scripts


def shell_scripts(launch: Launch, script: str = "train.py") -> dict[str, str]:
    return {name: text for name, text in launch_files(launch, script).items() if name != CONFIG_NAME}


@pytest.mark.parametrize(("launcher", "machines", "each", "precision"), COMBINATIONS)
def test_scripts_parse(launcher: Launcher, machines: int, each: int, precision: Precision) -> None:
    scripts = shell_scripts(combination(launcher, machines, each, precision))
    assert bool(scripts) == (launcher != "accelerate")
    for text in scripts.values():
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)


SCRIPTS = {
    text: name
    for name, (launch, script) in {
        **{str(param.id): (combination(*param.values), "train.py") for param in COMBINATIONS},  # type: ignore[arg-type]
        **CASES,
    }.items()
    for text in shell_scripts(launch, script).values()
}


@pytest.mark.parametrize("text", SCRIPTS, ids=SCRIPTS.values())
def test_scripts_pass_shellcheck(text: str) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed (apt-get install shellcheck)")
    done = subprocess.run(["shellcheck", "--norc", "-"], input=text, text=True, capture_output=True)
    assert (done.stdout, done.returncode) == ("", 0)


#: Stands for every program that a script calls: writes down how it was called, and then runs what it was given.
RECORDER = """\
#!/bin/bash
name=$(basename "$0")
{ printf '%s\\0' "$name" "$@"; printf '\\n\\0'; } >> "$RECORD"
[ "$name" = scontrol ] && printf 'head\\nother\\n'
[ "$name" = srun ] && while [ "$1" != bash ]; do shift; done
[ "$name" = apptainer ] && shift 3
case $name in srun | apptainer) exec "$@" ;; esac
"""


def run_script(text: str, folder: Path, **variables: str) -> list[list[str]]:
    """Run a script with stand-ins for the cluster's programs; return how each was called, in order."""
    programs = folder / "programs"
    programs.mkdir()
    for name in ("accelerate", "apptainer", "module", "scontrol", "srun", "torchrun"):
        (programs / name).write_text(RECORDER)
        (programs / name).chmod(0o755)
    record = folder / "record"
    record.touch()
    environment = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "RECORD": str(record),
        "HOME": "/home/someone else",
        "SLURM_JOB_ID": "41000",
        "SLURM_JOB_NODELIST": "head,other",
        "SLURM_NODEID": "1",
        **variables,
    }
    subprocess.run(["bash", "-c", text], env=environment, cwd=folder, check=True)
    calls = record.read_text().split("\n\0")[:-1]
    return [call.split("\0")[:-1] for call in calls]


def test_sbatch_script_calls(tmp_path: Path) -> None:
    slurm = Slurm(modules=("cuda/12.4",), container="apptainer exec --nv x.sif", cpus_per_gpu=3)
    launch = Launch(processes=4, machines=2, launcher="slurm", slurm=slurm)
    (text,) = shell_scripts(launch, "my train.py").values()
    module, scontrol, srun, apptainer, accelerate = run_script(text, tmp_path)
    assert module == ["module", "load", "cuda/12.4"]
    assert scontrol == ["scontrol", "show", "hostnames", "head,other"]
    assert {"--kill-on-bad-exit=1", "--wait=0", "--cpus-per-task=6"} < set(srun)
    assert apptainer[1:5] == ["exec", "--nv", "x.sif", "accelerate"]
    assert accelerate[1:] == [
        *("launch", "--config_file", "accelerate_config.yaml", "--machine_rank", "1"),
        *("--main_process_ip", "head", "--main_process_port", str(10000 + 41000 % 20000)),
        *("--log_dir", "my_train-41000-machine1", "--tee", "3", "my train.py"),
    ]


def test_sbatch_script_takes_a_fixed_port(tmp_path: Path) -> None:
    (text,) = shell_scripts(Launch(launcher="slurm", main_process_port=4000)).values()
    call = run_script(text, tmp_path)[-1]
    assert call[call.index("--main_process_port") + 1] == "4000"


def test_torchrun_script_calls(tmp_path: Path) -> None:
    (text,) = shell_scripts(Launch(processes=8, machines=2, launcher="torchrun"), "-x.py").values()
    (call,) = run_script(text, tmp_path, NODE_RANK="1", MASTER_ADDR="head", MASTER_PORT="4000", NNODES="3")
    assert call == [
        *("torchrun", "--nnodes", "3", "--node-rank", "1", "--master-addr", "head", "--master-port", "4000"),
        *("--nproc-per-node", "4", "./-x.py"),
    ]


def test_torchrun_script_takes_the_address_of_the_command_line(tmp_path: Path) -> None:
    launch = Launch(machines=2, main_process_ip="gpu-1", main_process_port=4000, launcher="torchrun")
    (text,) = shell_scripts(launch).values()
    (call,) = run_script(text, tmp_path, NODE_RANK="0")
    assert call[call.index("--master-addr") + 1 :][:3] == ["gpu-1", "--master-port", "4000"]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "NODE_RANK: set it to the rank of this machine, from 0 to 1"),
        ({"NODE_RANK": "1"}, "MASTER_ADDR: set it to the host name or address of the machine with NODE_RANK=0"),
    ],
)
def test_torchrun_script_says_what_is_missing(variables: dict[str, str], message: str) -> None:
    (text,) = shell_scripts(Launch(machines=2, launcher="torchrun")).values()
    done = subprocess.run(["bash", "-c", text], env=variables, capture_output=True, text=True)
    assert done.returncode != 0
    assert message in done.stderr


def test_sbatch_script_ends_at_an_unset_variable(tmp_path: Path) -> None:
    slurm = Slurm(environment=(("HF_HOME", "$NO_SUCH_FOLDER/hf"),))
    (text,) = shell_scripts(Launch(launcher="slurm", slurm=slurm)).values()
    with pytest.raises(subprocess.CalledProcessError):
        run_script(text, tmp_path)


HOSTILE = [
    "$(touch injected)",
    "`touch injected`",
    "x; touch injected",
    "x' ; touch injected; '",
    'x" ; touch injected; "',
    "x' && touch injected #",
    "${HOME:-$(touch injected)}",
    "$HOME$(touch injected)\\",
    "x\ntouch injected",
    "x\n#SBATCH --uid=0",
    "x\r\ntouch injected",
    "a: b",
    "&x *y {z} [w] | > < ~ !t %d @e",
    "\\",
    "é ü 漢",
    "\x00",
    "",
    " ",
    "-rf",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_breaks_out_of_the_environment(text: str, tmp_path: Path) -> None:
    try:
        launch = Launch(launcher="slurm", slurm=Slurm(environment=(("VALUE", text),)))
    except LaunchError:
        assert not text.isprintable()
        return
    (script,) = shell_scripts(launch).values()
    run_script(f'{script}\nprintf %s "$VALUE" > value', tmp_path)
    home = "/home/someone else"
    assert (tmp_path / "value").read_text() == re.sub(r"\$HOME\b", home, text)
    assert not (tmp_path / "injected").exists()


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_breaks_out_of_the_container_line(text: str, tmp_path: Path) -> None:
    for number, line in enumerate(
        (f"apptainer exec --nv {shlex.quote(text)}", f"--container-image={shlex.quote(text)} --export={text}")
    ):
        try:
            launch = Launch(launcher="slurm", slurm=Slurm(container=line))
        except LaunchError:
            assert not text.isprintable() or number
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        (script,) = shell_scripts(launch).values()
        calls = {call[0]: call for call in run_script(script, folder)}
        value = re.sub(r"\$HOME\b", "/home/someone else", text)
        assert value in calls["apptainer"] if number == 0 else f"--container-image={value}" in calls["srun"]
        assert not (folder / "injected").exists()


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_breaks_out_of_a_script_name(text: str, tmp_path: Path) -> None:
    name = f"{text}.py"
    for launcher in ("slurm", "torchrun"):
        launch = Launch(launcher=launcher)
        try:
            (script,) = shell_scripts(launch, name).values()
        except LaunchError:
            assert not name.isprintable() or "\\" in name
            return
        folder = tmp_path / launcher
        folder.mkdir()
        assert run_script(script, folder)[-1][-1].removeprefix("./") == name
        assert not (folder / "injected").exists()
        (written,) = shell_scripts(launch, name)
        assert shlex.split(launch_command(launch, name))[-1].removeprefix("./") == written
    assert shlex.split(launch_command(Launch(), name))[-1].removeprefix("./") == name


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("field", ["job_name", "time", "account", "partition", "gpu_type", "memory"])
def test_fields_of_sbatch_take_plain_words_only(field: str, text: str) -> None:
    values: dict[str, Any] = {field: text}
    if text == "-rf" and field in ("job_name", "account", "partition", "gpu_type"):
        Slurm(**values)  # stands behind `=` or `:`
    else:
        with pytest.raises(LaunchError, match=f"^{field} must be "):
            Slurm(**values)


@pytest.mark.parametrize("text", HOSTILE)
def test_modules_are_words_of_one_line(text: str, tmp_path: Path) -> None:
    try:
        slurm = Slurm(modules=(text,))
    except LaunchError:
        return
    (script,) = shell_scripts(Launch(launcher="slurm", slurm=slurm)).values()
    assert run_script(script, tmp_path)[0] == ["module", "load", text]
    assert not (tmp_path / "injected").exists()


# The real launchers


@pytest.mark.e2e
@pytest.mark.parametrize(
    "launch",
    [
        Launch(processes=1),
        Launch(processes=2),
        Launch(processes=2, main_process_port=0),
        Launch(processes=1, launcher="torchrun"),
        Launch(processes=2, launcher="torchrun"),
        Launch(processes=2, launcher="torchrun", mixed_precision="bf16"),
    ],
    ids=["one", "two", "two-free-port", "torchrun-one", "torchrun-two", "torchrun-bf16"],
)
def test_command_starts_the_processes(launch: Launch, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    script = "show (it).py"
    (tmp_path / script).write_text(
        "import os\n"
        "from pathlib import Path\n"
        "rank = os.environ.get('RANK', '0')\n"
        "names = ('LOCAL_RANK', 'WORLD_SIZE', 'ACCELERATE_MIXED_PRECISION')\n"
        "Path(f'rank{rank}').write_text(' '.join(str(os.environ.get(name)) for name in names))\n"
    )
    for name, text in launch_files(launch, script).items():
        (tmp_path / name).write_text(text)
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        launch_command(launch, script),
        shell=True,
        cwd=tmp_path,
        env={**os.environ, "PATH": programs},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = {path.name: path.read_text().split() for path in tmp_path.glob("rank*")}
    assert set(found) == {f"rank{rank}" for rank in range(launch.processes)}
    for rank in range(launch.processes):
        local_rank, world_size, precision = found[f"rank{rank}"]
        if launch.processes > 1:
            assert (local_rank, world_size) == (str(rank), str(launch.processes))
        assert precision == launch.mixed_precision or (precision, launch.launcher) == ("None", "torchrun")


# Wrong wishes


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"processes": 0}, "processes must be at least 1, not 0."),
        ({"machines": 0}, "machines must be at least 1, not 0."),
        (
            {"processes": 7, "machines": 2},
            "7 processes cannot be spread evenly over 2 machines: "
            "the number of processes counts those of all machines together.",
        ),
        ({"machines": 2}, "2 machines need the address of the one with rank 0 (main_process_ip)."),
        ({"main_process_ip": "gpu-1"}, "main_process_ip has no effect on one machine."),
        (
            {"machines": 2, "launcher": "slurm", "main_process_ip": "gpu-1"},
            "SLURM decides which machine has rank 0: leave out main_process_ip.",
        ),
        (
            {"machines": 2, "main_process_ip": "gpu_1: x"},
            "'gpu_1: x' is neither a host name nor an IPv4 address.",
        ),
        (
            {"machines": 2, "main_process_ip": "10.0.0.256"},
            "'10.0.0.256' is neither a host name nor an IPv4 address.",
        ),
        ({"machines": 2, "main_process_ip": "::1"}, "'::1' is neither a host name nor an IPv4 address."),
        ({"machines": 2, "main_process_ip": ""}, "'' is neither a host name nor an IPv4 address."),
        ({"machines": 2, "main_process_ip": "a\n"}, "'a\\n' is neither a host name nor an IPv4 address."),
        ({"main_process_port": -1}, "main_process_port must be between 0 and 65535, not -1."),
        ({"main_process_port": 65536}, "main_process_port must be between 0 and 65535, not 65536."),
        ({"processes": 1, "main_process_port": 29500}, "main_process_port has no effect on one process."),
        (
            {"machines": 2, "main_process_ip": "gpu-1", "main_process_port": 0},
            "Port 0 (any free one) is for one machine: several must agree on a port.",
        ),
        (
            {"launcher": "slurm", "main_process_port": 0},
            "Port 0 is not needed with SLURM: the port follows from the job's number.",
        ),
        (
            {"launcher": "mpi"},
            "launcher must be one of accelerate, notebook, slurm, torchrun, uv, not 'mpi'.",
        ),
        ({"mixed_precision": "fp8"}, "mixed_precision must be one of no, fp16, bf16, not 'fp8'."),
        ({"slurm": Slurm()}, "SLURM settings have no effect with the launcher 'accelerate'."),
    ],
)
def test_wrong_numbers(wish: dict[str, Any], message: str) -> None:
    with pytest.raises(LaunchError) as caught:
        Launch(**wish)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"time": "2 days"}, "time must be minutes, H:MM:SS or D-HH:MM:SS, not '2 days'."),
        ({"cpus_per_gpu": 0}, "cpus_per_gpu must be at least 1, not 0."),
        ({"options": ("-q high",)}, "'-q high' is not an sbatch option of the form --name or --name=value."),
        ({"options": ("--x=a b",)}, "'--x=a b' is not an sbatch option of the form --name or --name=value."),
        ({"options": ("--nodes=3",)}, "--nodes cannot be an option: machines decides it."),
        ({"modules": ("--purge",)}, "'--purge' is not the name of an environment module."),
        ({"environment": (("A B", "c"),)}, "'A B' is not the name of an environment variable."),
        (
            {"environment": (("MASTER_PORT", "1"),)},
            "MASTER_PORT is set for each process by the launcher and cannot be fixed.",
        ),
        ({"container": ""}, "container must be a command or options of srun, not empty."),
        ({"container": "a 'b"}, 'The container line "a \'b" cannot be split into words: No closing quotation.'),
    ],
)
def test_wrong_slurm_settings(wish: dict[str, Any], message: str) -> None:
    with pytest.raises(LaunchError) as caught:
        Slurm(**wish)
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["a/train.py", "/train.py", "..", ".", "", "a\\b.py"])
def test_script_is_named_without_its_folder(name: str) -> None:
    message = f"{name!r} is not the name of a file: the launch files stand beside the script."
    for call in (launch_files, launch_command):
        with pytest.raises(LaunchError) as caught:
            call(Launch(), name)
        assert str(caught.value) == message


@pytest.mark.parametrize(
    ("launcher", "name"),
    [("accelerate", CONFIG_NAME), ("slurm", "train.sbatch"), ("torchrun", CONFIG_NAME)],
)
def test_script_is_not_overwritten(launcher: Launcher, name: str) -> None:
    with pytest.raises(LaunchError) as caught:
        launch_files(Launch(launcher=launcher), name)
    assert str(caught.value) == f"The script cannot be called {name!r}: that is the name of a launch file."


def test_time_forms_of_sbatch() -> None:
    for form in ("90", "90:30", "12:00:00", "2-0", "2-12", "2-12:30", "2-12:30:00"):
        assert Slurm(time=form).time == form


if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    for case, (launch, script) in CASES.items():
        (GOLDEN / case).mkdir(parents=True)
        for name, text in golden_texts(launch, script).items():
            (GOLDEN / case / name).write_text(text)
