"""Run the script as `python SCRIPT` would, watched, and say how it ended."""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

from . import (
    attempts,
    cached,
    device,
    fast,
    files,
    hooks,
    learn,
    outside,
    packages,
    ranks,
    sampling,
    schema,
    training,
    versions,
)
from .attempts import Attempts
from .events import End, Left, StandIn
from .hooks import UnknownError
from .log import Log

#: The working folder of Colab or Kaggle at the beginning of a string.
_HOSTED = re.compile(r"""(?<=["'])(/content|/kaggle/working)(?=[/"'])""")
#: A path in a folder of another machine at the beginning of a string.
_ELSEWHERE = re.compile(
    r"""(?<=["'])(?=/(kaggle|home|root|mnt|media|data|workspace|teamspace|scratch|storage|Users|notebooks)/)[^"'\n{}*]+"""
)
_OWN = (attempts.__file__, hooks.__file__, __file__)  # their frames are not frames of the script
_COMPILED = re.compile(r"Unsloth\w+Trainer\.py$")  #: Unsloth's rewritten versions of TRL's trainers
_SOON = 5.0  # seconds in which a thread that has done its work may still end


def prepare(log: Log) -> None:
    """Do what must be done before torch is imported; in a parent, for all its copies."""
    device.lay(log)
    ranks.lay(log)


def main(log: Log | None = None) -> int:
    """Run the script that the command line names.

    Args:
        log: the log of a parent, which has prepared this process; None if there is no such parent.

    Returns:
        Its exit code: 1 if it ended with an exception.
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
    if plan["unsloth"]:
        fast.lay(plan["unsloth"], log)
    with open(script, encoding="utf-8") as file:
        source = _at_home(file.read(), log)
    known = schema.Schema(plan["schema"], source, plan["rows"], plan["splits"])
    sources = files.Sources(log, known, plan["root"], plan["data"])
    files.lay(sources)
    cached.lay(log)
    packages.lay(log, lambda package: sources.dataset(package, "train"))
    versions.lay()
    watch = outside.Outside(log, plan["root"], os.getcwd(), plan["trust"], plan["beside"], plan["server"])
    watch.lay()
    # What is registered first runs last: programs that the script itself ends at exit are not left over.
    atexit.register(lambda: log.write(Left(programs=[*watch.left()], group=_has_group())))
    code = _run(script, source, sources, plan.get("gate", ""))
    log.write(Left(threads=[*_threads_that_stay()]))
    return code


def _show_stacks(file: str) -> None:
    """Write where every thread is when the rehearsal asks for it, even while the interpreter waits in native code."""
    faulthandler.register(signal.SIGUSR1, file=open(file, "w"), all_threads=True)  # noqa: SIM115


def _run(script: str, source: str, sources: files.Sources, gate: str) -> int:
    log, is_alone = sources.log, "RANK" not in os.environ
    main = ModuleType("__main__")
    main.__dict__.update(__file__=script, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    sys.argv = [script]
    sys.path.insert(0, os.path.dirname(script))
    error: BaseException | None = None
    try:
        Attempts(sources, source, is_alone, main.__dict__, gate).run()
    except BaseException as raised:
        error = raised
    return _say_end(error, script, source, log)


def _say_end(error: BaseException | None, script: str, source: str, log: Log) -> int:
    """Write how the script ended; return its exit code."""
    code = 0 if error is None else 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        if code and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    elif error is not None:
        traceback.print_exception(error)
    log.write(replace(_reason(error, script, source), code=code) if error else End(code))
    return code


def _reason(error: BaseException, script: str, source: str) -> End:
    """Return the end of a script that ended with an exception or an exit call."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename not in _OWN]
    lines = [frame.lineno for frame in frames if frame.filename == script]
    last = frames[-1].filename if frames else ""
    package = re.search(r"(?:site|dist)-packages[/\\](\w+)", last)
    library = "trl" if _COMPILED.search(last) else package[1] if package else ""
    causes = {type(cause): cause for cause in reversed([*learn.chain(error)])}
    unknown = str(causes.get(UnknownError, ""))  # a lazy import wraps it
    host = getattr(causes.get(outside.RefusedHostError), "host", "")
    is_exit = isinstance(error, SystemExit)
    is_reported = not is_exit or isinstance(error.code, str)  # type: ignore[attr-defined]
    text = source.splitlines()[(lines[-1] or 1) - 1] if lines else ""
    return End(
        line=lines[0] if lines else None,
        inner=lines[-1] if lines else None,
        error=type(error).__name__ if is_reported else "",
        message=str(error)[:1500] if is_reported else "",
        ours=last.startswith(os.path.dirname(__file__)) and os.path.basename(last) != "outside.py",
        library=library,
        rests=sorted(attempts.rests_on(source, lines[0] or 0)) if lines else [],
        raised=bool(lines) and (is_exit or re.search(r"\b(raise|assert)\b", text) is not None),
        unknown=unknown,
        host=host,
        refused=bool(host) or outside.RefusedWriteError in causes,
    )


def _at_home(source: str, log: Log) -> str:
    """Return the script with this run's folder in place of hosted notebooks' folders; line numbers stay the same."""
    for folder in dict.fromkeys(_HOSTED.findall(source)):
        first = next(number for number, line in enumerate(source.split("\n"), 1) if folder in _HOSTED.findall(line))
        log.write(StandIn(folder, line=first))
    source = _HOSTED.sub(lambda _: os.getcwd(), source)
    return _ELSEWHERE.sub(lambda found: found[0] if os.path.exists(found[0]) else os.getcwd() + found[0], source)


def _threads_that_stay() -> Iterator[tuple[str, int | None]]:
    """Yield the threads that keep the process alive, and where they were started."""
    soon = time.monotonic() + _SOON
    for each in threading.enumerate():
        if not each.daemon and each is not threading.main_thread():
            each.join(max(0.0, soon - time.monotonic()))
            if each.is_alive():
                yield each.name, vars(each).get("started_at")


def _has_group() -> bool:
    """Return whether the process group is open."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()
