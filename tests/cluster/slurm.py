"""Run a SLURM cluster of two nodes on this host, for tests: munge, one slurmctld and two slurmd.

It needs root and the packages slurm-wlm and munge of Debian or Ubuntu, but no systemd, no cgroups, no installed
configuration and none of the standard ports. It writes only to the folder of the cluster.
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
GPUS = 2  # the number that each node reports, so that a job can ask for GPUs as on a real cluster
#: Debian installs the daemons in folders that are not in a user's PATH.
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])

# Every daemon has its own files and ports, so that nothing conflicts with an installed cluster. The configuration
# describes a larger machine (config_overrides), so that two nodes fit; its GPUs are devices that every machine has.
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
# Without the flag SLURM also announces AMD GPUs to a job, and Unsloth then refuses a torch without support for them.
GRES_CONF = "".join(f"Name=gpu File={file} Flags=nvidia_gpu_env\n" for file in ("/dev/null", "/dev/zero"))
# A job's processes reach node0 by its name. Nothing else on this host needs the names, so the daemons and their jobs
# have their own /etc/hosts.
START = """\
set -e
mount --bind "$1/hosts" /etc/hosts
slurmctld -c
slurmd -N "$2"
slurmd -N "$3"
"""


class ClusterError(RuntimeError):
    """The cluster did not start or stop; the message contains what is known."""


def missing() -> str | None:
    """Return a sentence that says why no cluster can be started here; None if one can."""
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
    """A cluster whose files are in one folder; it runs until it is stopped.

    Args:
        folder: a short path (the path of a socket in it has at most 107 characters), created if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: The environment variables that sbatch and related programs need.
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}

    def start(self, seconds: float = 60) -> None:
        """Start the daemons and wait until both nodes take jobs.

        Raises:
            ClusterError: they do not take jobs within `seconds`; the cluster is stopped again.
        """
        self._configure()
        munge = [f"--{name}={self.folder}/munge.{name.split('-')[0]}" for name in ("socket", "key-file", "pid-file")]
        munge += [f"--{name}={self.folder}/munge.{name.split('-')[0]}" for name in ("log-file", "seed-file")]
        try:
            # --force: allow root, and a folder that other users cannot enter.
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
        """Cancel jobs that still run and stop the daemons; do nothing if there are none.

        Raises:
            ClusterError: one of them still runs after `seconds`.
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
        """Run a program of the cluster, and return its output.

        Raises:
            ClusterError: the program failed, and `check` is set.
        """
        environment = {**os.environ, **self.environment, "PATH": SEARCH_PATH}
        # A file, because the daemons keep their standard streams open: a pipe would never reach its end.
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
