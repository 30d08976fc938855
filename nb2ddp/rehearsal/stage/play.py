"""Run the script as `python SCRIPT` would, watched, and say how it ended."""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
from types import ModuleType
from typing import Any

from . import device, fast, files, older, outside, ranks, sampling, training
from .log import Log

#: The working folder of Colab and of Kaggle, where a text begins with it.
_HOSTED = re.compile(r"""(?<=["'])(/content|/kaggle/working)(?=[/"'])""")
_SOON = 5.0  # seconds in which a thread may still end that has done its work


def prepare(log: Log) -> None:
    """Do what must be done before torch is imported; in a parent, for all its copies."""
    device.lay(log)
    ranks.lay(log)


def main(log: Log | None = None) -> int:
    """Run the script that the command line names.

    Args:
        log: the log of a parent, which has prepared this process; None where there is no such parent.

    Returns:
        Its exit code: 1 where it ended with an exception.
    """
    if log is None:
        log = Log()
        prepare(log)
    script = sys.argv[2]
    plan = json.loads(os.environ.pop("NB2DDP_REHEARSAL"))
    rank = os.environ.get("RANK", "0")
    log.open(os.path.join(plan["logs"], f"{rank}.jsonl"), script)
    _show_stacks(os.path.join(plan["logs"], f"{rank}.stack"))
    training.lay(log, plan["steps"])
    sampling.lay()
    older.lay(log)
    files.lay(log, plan["columns"], plan["missing"])
    if plan["unsloth"]:
        fast.lay(plan["unsloth"], log)
    outside.Outside(log, plan["root"], os.getcwd(), is_trusted=plan["trust"]).lay()
    code = _run(script, log)
    _say_what_is_left(log)
    return code


def _show_stacks(file: str) -> None:
    """Write where every thread is when the rehearsal asks for it, even while the interpreter waits in native code."""
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, file=open(file, "w"), all_threads=True)  # noqa: SIM115


def _run(script: str, log: Log) -> int:
    main = ModuleType("__main__")
    main.__dict__.update(__file__=script, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    sys.argv = [script]
    sys.path.insert(0, os.path.dirname(script))
    code = 0
    error: BaseException | None = None
    try:
        with open(script, encoding="utf-8") as file:
            source = file.read()
        exec(compile(_at_home(source, log), script, "exec"), main.__dict__)
    except SystemExit as left:
        error = left
        code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        if code and not isinstance(left.code, int):
            print(left.code, file=sys.stderr)
    except BaseException as raised:
        error, code = raised, 1
        traceback.print_exc()
    frames = traceback.extract_tb(error.__traceback__)[1:] if error else []
    lines = [frame.lineno for frame in frames if frame.filename == script]
    about: dict[str, Any] = {"line": lines[0] if lines else None, "inner": lines[-1] if lines else None}
    last = next((frame.filename for frame in reversed(frames) if frame.filename != files.__file__), "")  # who opens
    about["ours"] = last.startswith(os.path.dirname(__file__))
    if error is not None and not isinstance(error, SystemExit):
        about |= {"error": type(error).__name__, "message": str(error)[:1500]}
    elif isinstance(error, SystemExit) and isinstance(error.code, str):
        about |= {"error": "SystemExit", "message": error.code}
    log.write("end", code=code, **about)
    return code


def _at_home(source: str, log: Log) -> str:
    """The script with this run's folder for those in which a hosted notebook works, line for line."""
    for folder in dict.fromkeys(_HOSTED.findall(source)):
        first = next(number for number, line in enumerate(source.split("\n"), 1) if folder in _HOSTED.findall(line))
        log.write("stand-in", name=folder, line=first)
    return _HOSTED.sub(lambda _: os.getcwd(), source)


def _say_what_is_left(log: Log) -> None:
    """What would outlive the script: threads that keep the process, programs, and the process group."""
    own = threading.main_thread()
    soon = time.monotonic() + _SOON
    for each in threading.enumerate():
        if not each.daemon and each is not own:
            each.join(max(0.0, soon - time.monotonic()))
    threads = [
        (each.name, vars(each).get("started_at"))
        for each in threading.enumerate()
        if not each.daemon and each is not own
    ]
    programs: list[Any] = []
    if "psutil" in sys.modules:
        programs = [child.name() for child in sys.modules["psutil"].Process().children()]
    group = False
    if "torch.distributed" in sys.modules:
        distributed = sys.modules["torch.distributed"]
        group = distributed.is_available() and distributed.is_initialized()
    log.write("left", threads=threads, programs=programs, group=group)
