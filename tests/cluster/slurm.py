"""Run a SLURM cluster of two nodes on this host, for tests: munge, one slurmctld and two slurmd.

Needs root and the packages slurm-wlm and munge of Debian or Ubuntu, but neither systemd nor cgroups, an installed
configuration or the standard ports. All it writes is in FOLDER.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

NODES = ("node0", "node1")
GPUS = 2  # that each node says it has, so that a job can ask for some as on a real cluster
#: Debian keeps the daemons where a user's PATH does not look.
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])

# Every daemon is told its own files and ports, so that nothing meets an installed cluster. The machine is described
# as larger than it is (config_overrides), so that two nodes fit; GPUs are devices that every machine has.
SLURM_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MailProg=/bin/true
KillWait=5
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName={nodes[0]} NodeHostname={nodes[0]} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=16 RealMemory=65536 Gres=gpu:{gpus}
NodeName={nodes[1]} NodeHostname={nodes[1]} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=16 RealMemory=65536 Gres=gpu:{gpus}
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
# Without the flag a job is told of AMD's GPUs as well, for which Unsloth refuses a torch that has none of them.
GRES_CONF = "".join(f"Name=gpu File={file} Flags=nvidia_gpu_env\n" for file in ("/dev/null", "/dev/zero"))
# A job's processes reach node0 by its name. Nothing else on this host needs to know the names, so the daemons, and
# the jobs below them, see an /etc/hosts of their own.
START = """\
set -e
mount --bind "$1/hosts" /etc/hosts
slurmctld -c
slurmd -N "$2"
slurmd -N "$3"
"""


class ClusterError(RuntimeError):
    """The cluster did not come up or go down; the message says what is known."""


def missing() -> str | None:
    """Say in one sentence why no cluster can be started here; None if one can."""
    programs = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo", "scancel", "unshare")
    absent = [name for name in programs if shutil.which(name, path=SEARCH_PATH) is None]
    if absent:
        return f"no SLURM: {', '.join(absent)} not found (apt-get install slurm-wlm munge)"
    if os.geteuid() != 0:
        return "SLURM's daemons are started as root only"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        return "mount namespaces cannot be made here"
    return None


class Cluster:
    """A cluster whose files are in one folder; it lives as long as nobody stops it.

    Args:
        folder: a short path (a socket in it has at most 107 characters), made if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: What sbatch and its kin need in their environment.
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}

    def start(self, seconds: float = 60) -> None:
        """Start the daemons and wait until both nodes take jobs.

        Raises:
            ClusterError: they do not within `seconds`; the cluster is stopped again.
        """
        self._configure()
        munge = [f"--{name}={self.folder}/munge.{name.split('-')[0]}" for name in ("socket", "key-file", "pid-file")]
        munge += [f"--{name}={self.folder}/munge.{name.split('-')[0]}" for name in ("log-file", "seed-file")]
        try:
            # --force: it may be run as root, and in a folder that other users cannot enter.
            self.call("munged", "--force", *munge)
            self.call("unshare", "--mount", "bash", "-c", START, "start", str(self.folder), *NODES)
            deadline = time.monotonic() + seconds
            while set(self.call("sinfo", "--noheader", "--Node", "--format=%T").split()) != {"idle"}:
                if time.monotonic() > deadline:
                    raise ClusterError(f"the nodes are not idle after {seconds:.0f} s:\n{self.call('sinfo', '-R')}")
                time.sleep(0.2)
        except ClusterError as error:
            logs = "\n".join(f"{path.name}:\n{path.read_text()[-2000:]}" for path in self.folder.glob("*.log"))
            self.stop()
            raise ClusterError(f"{error}\n{logs}") from None

    def stop(self, seconds: float = 30) -> None:
        """Cancel what still runs and stop the daemons; nothing happens if there are none.

        Raises:
            ClusterError: one of them is still there after `seconds`.
        """
        deadline = time.monotonic() + seconds
        if (self.folder / "slurmctld.pid").is_file():
            self.call("scancel", "--user=root", check=False)
            while self.call("squeue", "--noheader", check=False) and time.monotonic() < deadline:
                time.sleep(0.2)
        for path in [*self.folder.glob("slurm*.pid"), self.folder / "munge.pid"]:
            if path.is_file():
                self._end(int(path.read_text()), path.name, deadline)
                path.unlink(missing_ok=True)

    def call(self, *command: str, check: bool = True) -> str:
        """Run a program of the cluster; return what it printed.

        Raises:
            ClusterError: it failed, and `check` is set.
        """
        environment = {**os.environ, **self.environment, "PATH": SEARCH_PATH}
        # The daemons hold on to their standard streams: no pipe, whose end would never come.
        with (self.folder / "printed").open("w+") as printed:
            done = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT
            )
            printed.seek(0)
            text = printed.read().strip()
        if check and done.returncode:
            raise ClusterError(f"{' '.join(command)} ended with code {done.returncode}: {text}")
        return text

    def _configure(self) -> None:
        (self.folder / "state").mkdir(parents=True)
        conf = SLURM_CONF.format(
            host=socket.gethostname(), folder=self.folder, ports=_free_ports(3), nodes=NODES, gpus=GPUS
        )
        (self.folder / "slurm.conf").write_text(conf)
        (self.folder / "gres.conf").write_text(GRES_CONF)
        (self.folder / "cgroup.conf").write_text("IgnoreSystemd=yes\n")
        (self.folder / "hosts").write_text(f"{Path('/etc/hosts').read_text()}\n127.0.0.1 {' '.join(NODES)}\n")
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))

    @staticmethod
    def _end(pid: int, name: str, deadline: float) -> None:
        try:
            os.kill(pid, signal.SIGTERM)
            while time.monotonic() < deadline:
                os.kill(pid, 0)
                time.sleep(0.1)
        except ProcessLookupError:
            return
        raise ClusterError(f"process {pid} ({name}) does not end")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
