"""What differs: between a notebook and its script, and between the processes of the script."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nb2ddp.script.needs import stated, untested

ROOT = Path(__file__).parent.parent.parent
#: The value of each variable that a script names in its first lines.
SECRET = "imitated"


@dataclass(frozen=True)
class Difference:
    """One thing that differs: its kind, the line of the script (0: none), and what it is."""

    kind: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.kind} line {self.line}: {self.text}"


@cache
def server() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.imitation.server"]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def execute(cells: list[str], world: int) -> dict[str, Any]:
    """Execute cells, or one script, in `world` processes: their joint calls and their ends."""
    asked, answered = server().stdin, server().stdout
    assert asked is not None
    assert answered is not None
    asked.write(json.dumps({"cells": cells, "world": world}) + "\n")
    asked.flush()
    return dict(json.loads(answered.readline()))


def with_variables(script: str) -> str:
    """A script whose first line sets the variables that its first lines name."""
    named = [found[1] for need in stated(script) if (found := re.fullmatch(r"(\w+) \(cells? [\d, ]+\)", need))]
    first = f"import os; os.environ.update({dict.fromkeys(named, SECRET)!r})"
    return script.replace("#!/usr/bin/env python", first, 1) if named else script


def differences(script: str, cells: list[str] | None = None) -> list[Difference]:
    """Execute a script on one process and on two, and its notebook's cells where they are given."""
    try:
        found = signatures(script)
    except SyntaxError as error:  # this Python does not read it: nor the notebook then
        own = [cell for cell in cells or () if not parses(cell)]
        return [] if own else [Difference("syntax", error.lineno or 0, str(error))]
    played = with_variables(untested(script))  # files are imitated as they are read
    alone, both = execute([played], 1), execute([played], 2)
    seed = "".join(re.findall(r"^set_seed\(\d+\)", script, re.MULTILINE)[:1])  # of the script's setup block
    first = f"from transformers import set_seed\n{seed}"
    notebook = execute([first, *cells], 1) if cells is not None else None
    found += ends(script, alone, both, notebook)
    found += parted(both)
    found += [
        Difference("untrained", 0, f"{len(run['ends'])} processes end without training")
        for run in (alone, both)
        if run["ends"][0]["end"][0] in ("end", "exit")
        and not any(calls[0]["joint"] == "train" for calls in run["joint"])
    ]
    found += shared(both)
    found += values(script, both)
    if notebook:
        found += lost(alone, both, notebook)
    told = said(script)
    return [difference for difference in found if difference.line not in told]


def said(script: str) -> set[int]:
    """The lines of statements that a `TODO` above them speaks of."""
    lines = script.split("\n")
    told: set[int] = set()
    for node in ast.walk(ast.parse(script)):
        if isinstance(node, ast.stmt):
            above = node.lineno - 1
            while above and lines[above - 1].lstrip().startswith("#"):
                if "# TODO[nb2ddp]" in lines[above - 1]:
                    told.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
                above -= 1
    return told


def parses(source: str) -> bool:
    try:
        compile(source, "cell", "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError:
        return False
    return True


def signatures(script: str) -> list[Difference]:
    """Calls of functions of the setup block that do not meet their signature."""
    tree = ast.parse(script)
    forms: dict[str, inspect.Signature] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.lineno < first_cell(script):
            form = ast.parse(f"lambda {ast.unparse(node.args)}: 0", mode="eval")
            nothing: list[ast.expr] = [ast.Constant(None)]
            arguments = form.body.args  # type: ignore[attr-defined]
            arguments.defaults = nothing * len(arguments.defaults)
            arguments.kw_defaults = [default and nothing[0] for default in arguments.kw_defaults]
            forms[node.name] = inspect.signature(eval(ast.unparse(form)))
    found = []
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in forms:
            named = {keyword.arg: 0 for keyword in call.keywords if keyword.arg}
            if any(isinstance(arg, ast.Starred) for arg in call.args) or len(named) < len(call.keywords):
                continue
            try:
                forms[call.func.id].bind(*call.args, **named)
            except TypeError as error:
                found.append(Difference("signature", call.lineno, f"{ast.unparse(call)}: {error}"))
    return found


def first_cell(script: str) -> int:
    """The line where the setup block of a script ends."""
    lines = script.split("\n")
    starts = [n for n, line in enumerate(lines, start=1) if line.startswith("# %% ")]
    return starts[1] if len(starts) > 1 else len(lines) + 1


def ends(script: str, alone: dict[str, Any], both: dict[str, Any], notebook: dict[str, Any] | None) -> list[Difference]:
    """Runs that stop where the notebook goes on, or go on where it stops.

    Where rank 0 stops as the notebook does, the job is over: what rank 1 comes to alone is of no account.
    """
    own = notebook["ends"][0]["end"] if notebook else ["end", "", 0, 0]
    found = []
    for title, run in (
        ("one process", alone["ends"][0]),
        ("rank 0 of 2", both["ends"][0]),
        ("rank 1 of 2", both["ends"][1]),
    ):
        kind, text, line, _ = run["end"]
        if kind in ("end", "exit") and text in ("", "0"):
            if own[0] not in ("end", "exit") and title == "one process":
                found.append(Difference("goes on", line, f"the notebook stops in cell {own[3]}: {own[0]}: {own[1]}"))
        elif [kind, text] != own[:2] and (run is alone["ends"][0] or both["ends"][0]["end"][:2] != own[:2]):
            found.append(Difference("stops", line, f"{title}: {kind}: {text}"))
    return found


def parted(both: dict[str, Any]) -> list[Difference]:
    """Joint calls that one process makes and the other does not."""
    for calls in both["joint"]:
        if len(calls) < 2:
            call = calls[0]
            if both["ends"][1 - call["rank"]]["end"][0] not in ("end", "exit"):
                return []  # an error: `ends` looks at these
            return [Difference("parted", call["line"], f"only rank {call['rank']} calls {call['joint']}")]
        if len({(call["joint"], call["line"]) for call in calls}) > 1:
            text = " and ".join(f"rank {call['rank']} calls {call['joint']} at line {call['line']}" for call in calls)
            return [Difference("parted", calls[0]["line"], text)]
    return []


def shared(both: dict[str, Any]) -> list[Difference]:
    """What both processes do to others in one place."""
    notes = [Counter((kind, what, line) for kind, what, line in end["notes"]) for end in both["ends"]]
    found = []
    for kind, what, line in sorted(notes[0].keys() & notes[1].keys()):
        if kind in ("writes", "starts", "asks"):
            found.append(Difference(f"both {kind.rstrip('s')}", line, what))
    made = {what for note in notes for kind, what, _ in note if kind == "writes"}
    found += [
        Difference("early", line, f"rank {rank} reads {what} before it is written")
        for rank, note in enumerate(notes)
        for kind, what, line in note
        if kind == "misses" and what in made
    ]
    found += [
        Difference("draws", line, f"{what.rpartition(' ')[0]} draws other numbers in each process")
        for kind, what, line in sorted(notes[0].keys() - notes[1].keys())
        if kind == "draws"
    ]
    return found


def values(script: str, both: dict[str, Any]) -> list[Difference]:
    """Names that have another value in the other process when they train."""
    tree = ast.parse(script)
    own = {
        node.id
        for statement in tree.body
        if statement.lineno < first_cell(script)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name)
    }
    found: dict[str, Difference] = {}
    for calls in both["joint"]:
        if len(calls) == 2:
            first, second = (call["names"] for call in calls)
            for name in sorted(first.keys() & second.keys() - own):
                one, two = first[name], second[name]
                if one != two.replace("cuda:1", "cuda:0"):
                    start = max(len(os.path.commonprefix((one, two))) - 30, 0)  # noqa: RUF071 # of texts
                    text = f"{name} is {one[start:][:80]!r} and {two[start:][:80]!r}"
                    found.setdefault(name, Difference("differs", calls[0]["line"], text))
    return list(found.values())


#: Values of steps that a notebook's cells show and that tell nothing; 0 is the exit code of a program.
UNSEEN = re.compile(r"|0|trained|.*\b(for_inference|quantize_)\(\.\.\.\)")
#: What is split between processes (and looked at together).
SPLIT = ("args.per_device_train_batch_size", "args.gradient_accumulation_steps")


def lost(alone: dict[str, Any], both: dict[str, Any], notebook: dict[str, Any]) -> list[Difference]:
    """What a script, on one process, trains with or shows and its notebook does not, and a batch of another size."""
    runs = [[calls[0] for calls in run["joint"] if calls[0]["joint"] == "train"] for run in (notebook, alone, both)]
    found: dict[str, Difference] = {}
    for own, one, two in zip(*runs, strict=False):
        names, here, there = own["names"], one["names"], two["names"]
        for name in sorted(name for name in names.keys() & here.keys() if "(random" not in name):
            own_value = names[name]
            if (
                name not in SPLIT
                and here[name] != SECRET
                and own_value != here[name]
                and not own_value.startswith("IPython")
            ):
                text = f"{name} is {here[name][:80]!r}, in the notebook {own_value[:80]!r}"
                found.setdefault(name, Difference("changed", one["line"], text))
        wanted = -(-samples(names, 1) // 2) * 2
        if samples(there, 2) != wanted:
            text = f"{samples(there, 2)} samples a step on two processes, in the notebook {samples(names, 1)}"
            found.setdefault("batch", Difference("batch", one["line"], text))
    if notebook["ends"][0]["end"][0] == "end":
        shown = Counter(notebook["ends"][0]["shown"].split("\n")) - Counter(alone["ends"][0]["shown"].split("\n"))
        found |= {line: Difference("unshown", 0, line[:120]) for line in shown if not UNSEEN.fullmatch(line)}
    return list(found.values())


def samples(arguments: dict[str, str], world: int) -> int:
    """Samples, or completions, of a step of all processes."""
    size = int(arguments.get("args.per_device_train_batch_size", "8"))
    steps = int(arguments.get("args.gradient_accumulation_steps", "1"))
    completions = int(arguments.get("args.num_generations", "1"))
    world = 1 if "split_batches" in arguments.get("args.accelerator_config", "") else world
    return (completions if size * steps * world % completions else size) * steps * world
