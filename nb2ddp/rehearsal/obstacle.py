"""Find out why a script could not be rehearsed if that is not its own fault, and what the rehearsal lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nb2ddp.rehearsal.evidence import Both, Code, Place, end_of, trainings, waiting
from nb2ddp.rehearsal.stage import events
from nb2ddp.script.modules import on_index

if TYPE_CHECKING:
    from nb2ddp.rehearsal.plan import Plan
    from nb2ddp.rehearsal.run import Rank

_VERSIONS = "--versions notebook rehearses it with the notebook's versions"
_ALREADY = "the versions that the notebook asks for do not have it: change the notebook or its pins"
#: Libraries of which another version may accept what this one refuses.
_VERSIONED = frozenset({"transformers", "trl", "peft", "datasets", "accelerate"})
_REFUSALS = ("AttributeError", "NotImplementedError", "TypeError", "ValueError")
#: Packages that every training has, so that no script lists them, by the names of their modules.
_BROUGHT = {"google": "protobuf", "PIL": "pillow"}
_NETWORK = ("ConnectionRefused", "ConnectionError", "URLError", "ConnectError", "MaxRetryError", "OfflineMode")
_INSTALLED = r" \([^()]*site-packages[^()]*\)"  #: the path of a module in the message of an ImportError
_PROGRESS = re.compile(r"\d+%(\||$)|\d+it/s")  #: a progress bar
_BRIEF, _LONG = 160, 300  #: characters of a message, with and without advice after it
_NOT_OURS = ("NotImplementedError", "ModuleNotFoundError")
_OWN_ERRORS = ("NameError", "UnboundLocalError")


def obstacle(both: Both, lacking: Mapping[str, str]) -> Place | None:
    """Return why the script could not be rehearsed if that is not its own fault, else None.

    An error in the run of one process may come from a stand-in as well as from the script. Only an unbound
    name is always an error of the script.

    Args:
        both: the runs.
        lacking: models that have no stand-in, and why.
    """
    for run in (both.alone, both.job):
        if run.stopped == "limit":
            many = "one process" if run is both.alone else f"{len(run.ranks)} processes"
            reason = f"it took longer than {run.seconds:.0f} s as {many}"
            return Place(next(waiting(both.plan, run)).line, reason)
    asked = [event.to for event in both.one.seen(events.Connect)]
    if both.alone.stopped and asked:
        return Place(next(waiting(both.plan, both.alone)).line, f"it waits for {asked[-1]}; --trust allows this")
    for _, rank in both.everyone():
        if place := _of_rank(both, rank, lacking):
            return place
    if both.ended and not any(trainings(rank) for _, rank in both.everyone()):
        return Place(None, "no training began: a condition skipped it; is a file missing?")
    return None


def _of_rank(both: Both, rank: Rank, lacking: Mapping[str, str]) -> Place | None:
    """Return why one process could not be rehearsed, or None."""
    end = end_of(rank)
    if end.unknown:
        return Place(end.inner, end.unknown)
    if end.error and lacking:
        return Place(end.inner, "; ".join(f"no stand-in for {name}: {why}" for name, why in lacking.items()))
    is_first = rank is both.one and end.error not in _OWN_ERRORS
    if end.error and is_first and both.plan.beyond:
        return Place(end.inner, f"not rehearsed: {', '.join(both.plan.beyond)} ({end.error}: {end.message[:_BRIEF]})")
    if end.error and (is_first or end.ours or end.error in _NOT_OURS or _is_cut_off(end)):
        host = end.host or _host(end)
        advice = f"--trust lets it reach {host}" if host else _advice(both.plan, rank, end)
        message = "" if host else _with_command(both.plan, end)[: _BRIEF if advice else _LONG]
        reason = f"{end.error}: {message}" if message else end.error
        is_of_versions = _VERSIONS in (advice, _brought(both.plan, end))
        return Place(end.inner, "; ".join(filter(None, (reason, advice))), Code.VERSIONS if is_of_versions else None)
    if rank.code and end.code is None and rank.code > 0:
        lines = [line for line in re.split(r"[\r\n]+", rank.stderr.strip()) if not _PROGRESS.search(line)]
        reason = ([*filter(str.strip, lines)] or ["?"])[-1]
        return Place(None, f"an error of nb2ddp rehearse, not of the script: {reason[:200]}; please report it")
    if rank.code and not end.error and rank is both.one:
        return Place(end.line, f"as one process it ended with code {rank.code}. {rank.stderr[-300:]}".strip())
    return None


def in_a_line(plan: Plan, failure: events.End | events.Passed) -> str:
    """Return an exception in one line."""
    return f"{failure.error}: {_with_command(plan, failure)[:300]}".rstrip(": ")


def _with_command(plan: Plan, failure: events.End | events.Passed) -> str:
    """Return a message in one line; if a package or a part of one is missing, with what provides it."""
    message = " ".join(re.sub(_INSTALLED, "", failure.message).split())
    if brought := _brought(plan, failure):
        return f"{message}: {brought}"
    return message or "it takes the first of some rows, and there are none" * (failure.error == "StopIteration")


def _brought(plan: Plan, failure: events.End | events.Passed) -> str:
    """Return what provides a missing module: a command to type, or other versions; "" for other failures."""
    missing = re.search(r"No module named '([\w.]+)'", failure.message)
    if missing is None or failure.error != "ModuleNotFoundError":
        return ""
    package, _, part = missing[1].partition(".")
    return _other_versions(plan) if part and plan.environment.has(package) else f"pip install {_package(package)}"


def _package(module: str) -> str:
    return _BROUGHT.get(module) or on_index(module)


def _advice(plan: Plan, rank: Rank, end: events.End) -> str:
    """Return what would let the script continue, in one line; "" if that is unknown."""
    error, message = end.error, end.message
    missing = _missing(rank, end)
    for clone in rank.seen(events.Clone):
        if not clone.there and _comes_of(clone.folder, plan.text, message, missing):
            return f"git clone {clone.address} {clone.folder} beside the script, or --trust"
    if error == "ModuleNotFoundError":
        return ""
    if library := re.search(r"(lib[\w+-]+)\.so\S*: cannot open shared object", message):
        return f"install the system library {library[1]}"
    is_refused = end.library in _VERSIONED and error in _REFUSALS  # by a library, independent of the rows
    unknown = re.search(r"unexpected keyword argument '(\w+)'", message) if error == "TypeError" else None
    is_of_versions = error == "ImportError" or (unknown is not None and unknown[1] in plan.text)
    if missing and not is_of_versions:
        packages = " ".join(_package(name) for name in missing if f"{name}.py" not in plan.text)
        files = ", ".join(f"{name}.py" for name in missing)
        install = f"pip install {packages}, or " if packages else ""
        return f"{install}put {files} beside the script: this rehearsal replaced them by stand-ins that do nothing"
    # Values that libraries give to the script have other types in other versions.
    is_of_type = error in ("AttributeError", "TypeError") and not plan.environment.is_notebooks
    if is_of_versions or (plan.other_versions and (is_refused or is_of_type)):
        return _other_versions(plan)
    if error == "FileNotFoundError" and (file := re.search(r"No such file or directory: '([^'/]+)'", message)):
        return f"put {file[1]} beside the script"
    asked = [event.name for event in rank.seen(events.Asked)]
    if asked and end.raised:  # the script looked for it, and raised this itself
        return f"put {Path(asked[-1]).name} beside the script"
    is_made = any(rank.seen(events.Made)) or any(need.made for need in rank.seen(events.Need))
    if is_made and not (is_refused or unknown):
        return "--data FILE gives it real rows"
    if end.ours:
        return "an error of nb2ddp rehearse, not of the script: please report it"
    if plan.other_versions and not plan.environment.is_notebooks and end.library:
        return _VERSIONS
    version = plan.environment.versions.get(end.library)
    if is_refused and version:
        return f"{end.library} {version} refuses it: change this line, or use another version"
    return "a library does not accept these arguments: change this line" if unknown else ""


def _host(end: events.End) -> str:
    """Return the machine that a library could not reach; "" for any other error."""
    if any(name in end.error for name in _NETWORK) or "ConnectionPool(host=" in end.message:
        host = re.search(r"host='([^']+)'", end.message)
        return host[1] if host else "the network"
    return ""


def _other_versions(plan: Plan) -> str:
    """Return what to do if a library lacks something that the script uses."""
    return _VERSIONS if plan.other_versions and not plan.environment.is_notebooks else _ALREADY


def _missing(rank: Rank, end: events.End) -> tuple[str, ...]:
    """Return the modules that a stand-in replaced and on which the failed statement depends."""
    absent = dict.fromkeys(event.name.split(".")[0] for event in rank.seen(events.StandIn) if event.package)
    named = re.search(r"No module named '(\w+)", end.message)
    return tuple(name for name in absent if name in end.rests or (named and name == named[1]))


def _comes_of(folder: str, text: str, message: str, missing: Iterable[str]) -> bool:
    """Return whether a missing clone caused a failure: the message names its folder, or a missing module is in it."""
    name = Path(folder).name
    plain = re.sub(r"\W|_", "", name).lower()
    is_searched = re.search(rf"sys\.path\.\w+\(.*{re.escape(name)}", text) is not None
    return name in message or any(is_searched or re.sub("_", "", each).lower() in plain for each in missing)


def _is_cut_off(end: events.End) -> bool:
    return end.refused or any(name in end.error for name in _NETWORK)
