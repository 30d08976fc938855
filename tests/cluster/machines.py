"""Two network namespaces with a cable between them that represent two machines, for tests.

Their processes share the file system, like those of a cluster, but reach each other only over the cable: a machine
does not find a process of the other one that listens on its own loopback, or has a wrong address or rank. This needs
root and the package iproute2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """One namespace: its name, its address on the cable, and the name of its end of the cable."""

    namespace: str
    address: str
    interface: str

    @property
    def prefix(self) -> list[str]:
        """Return the words before a command that run it on this machine."""
        return ["ip", "netns", "exec", self.namespace]


def machines(name: str) -> tuple[Machine, Machine]:
    """Describe the two machines called `name` (at most 9 characters, because an interface name has at most 15)."""
    first, second = (Machine(f"{name}-{i}", f"10.213.77.{i + 1}", f"{name}-eth{i}") for i in range(2))
    return first, second


def missing() -> str | None:
    """Return a sentence that says why no such machines can be created here; None if they can."""
    if shutil.which("ip") is None:
        return "no network namespaces: ip not found (apt-get install iproute2)"
    if os.geteuid() != 0:
        return "network namespaces are made as root only"
    trial = f"t{os.getpid()}"
    try:
        start(trial)
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made here: {error.stderr.strip()}"
    finally:
        stop(trial)
    return None


def start(name: str) -> tuple[Machine, Machine]:
    """Create the two machines; nothing may be left of an earlier start with that name.

    Raises:
        subprocess.CalledProcessError: the system refuses; `stderr` says why.
    """
    pair = machines(name)
    for machine in pair:
        _ip("netns", "add", machine.namespace)
    _ip("link", "add", pair[0].interface, "type", "veth", "peer", "name", pair[1].interface)
    for machine in pair:
        _ip("link", "set", machine.interface, "netns", machine.namespace)
        inside = ["-n", machine.namespace]
        _ip(*inside, "addr", "add", f"{machine.address}/24", "dev", machine.interface)
        _ip(*inside, "link", "set", machine.interface, "up")
        _ip(*inside, "link", "set", "lo", "up")
    return pair


def stop(name: str) -> None:
    """Remove the two machines and their cable; do nothing if there are none."""
    for machine in machines(name):
        for what in (["netns", "del", machine.namespace], ["link", "del", machine.interface]):
            subprocess.run(["ip", *what], capture_output=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
