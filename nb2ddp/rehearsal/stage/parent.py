"""Import the slow libraries, then fork to become each process of a rehearsal.

Requests are lines of JSON on standard input; the answer is the number of a process. When that
process has ended, its exit code is in a file. Each process itself imports what Unsloth changes (transformers, PEFT,
TRL), and what reads the folders of a run when it is imported (huggingface_hub, datasets).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from . import agent, build, play
from .log import Log
from .start import end_with_parent

_SLOW = (
    "torch torch._dynamo torch._inductor.decomposition torch.utils.data torch.distributed.tensor numpy pandas "
    "pyarrow.parquet pyarrow.dataset scipy.stats sklearn.metrics sympy aiohttp httpx requests fsspec dill multiprocess "
    "xxhash PIL.Image psutil regex rich.console pydantic jinja2 yaml safetensors tokenizers"
).split()


def main() -> int:
    """Answer requests until there are no more.

    Returns:
        In a copy, the exit code of what it has run; 0 in the parent.
    """
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print is not an answer
    log = Log()
    play.prepare(log)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a script may set it too, but too late
    for name in _SLOW:
        with contextlib.suppress(Exception):  # it fails again where the script imports it
            importlib.import_module(name)
    gc.freeze()

    files: dict[int, str] = {}  # for the exit codes of copies

    def write_codes(*_: object) -> None:
        with contextlib.suppress(ChildProcessError):
            for pid in [*files]:
                if (ended := os.waitpid(pid, os.WNOHANG))[0]:
                    Path(files.pop(pid)).write_text(str(os.waitstatus_to_exitcode(ended[1])))

    signal.signal(signal.SIGCHLD, write_codes)
    while line := sys.stdin.readline():
        request = json.loads(line)
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(answers)
            _become(request)
            return {"play": lambda: play.main(log), "build": build.main, "agent": agent.main}[request["program"]]()
        files[pid] = f"{request['output']}.code"
        write_codes()  # it may already have ended
        os.write(answers, f"{pid}\n".encode())
    return 0


def _become(request: dict[str, Any]) -> None:
    """Become a separate process, with another session, environment, folder, files and random numbers."""
    end_with_parent()
    os.setsid()
    for number, name in enumerate((os.devnull, f"{request['output']}.out", f"{request['output']}.err")):
        opened = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):  # independent of the shell's encoding
        stream.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv[1:] = [request["program"], *request["arguments"]]
    tempfile.tempdir = None
    if "numpy" in sys.modules:  # Python's generator seeds itself again after a fork
        sys.modules["numpy"].random.seed()
