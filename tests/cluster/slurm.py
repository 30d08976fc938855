"""Run a SLURM cluster of two nodes on this host, for tests: munge, one slurmctld and two slurmd.

    python -m tests.cluster.slurm start FOLDER    # prints the line that points sbatch at the cluster
    python -m tests.cluster.slurm stop FOLDER

Needs root and Debian's or Ubuntu's `slurm-wlm` and `munge`, but neither systemd nor cgroups nor free standard
ports. Everything it writes is in FOLDER; nothing of an installed cluster is read or touched. Several slurmd on one
host are SLURM's own "multiple slurmd" mode (https://slurm.schedmd.com/programmer_guide.html#multiple_slurmd_support).
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo")
#: Debian keeps the daemons where a user's PATH does not look.
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
_START_SECONDS = 60

_SLURM_CONF = """\
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
# Containers have neither a writable cgroup tree nor systemd.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
# A job may start, and its end be noticed, within a second.
SchedulerParameters=sched_interval=1,batch_sched_delay=1
KillWait=5
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
# The names are those that this host already answers to: node names are the addresses that a job's processes use.
NodeName=localhost NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 Gres=gpu:{gpus}
NodeName={host} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 Gres=gpu:{gpus}
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


class ClusterError(RuntimeError):
    """The cluster did not come up; the message says which part, with the end of its log."""


def missing() -> str | None:
    """Say why no cluster can be started here, or None."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    if absent:
        return f"SLURM is not installed ({', '.join(absent)} not found; apt-get install slurm-wlm munge)"
    if os.geteuid() != 0:
        return "starting SLURM's daemons needs root"
    return None


def environment(folder: Path) -> dict[str, str]:
    """Return what has to be in the environment for sbatch and its kin to talk to the cluster."""
    return {"SLURM_CONF": str(folder / "slurm.conf")}
