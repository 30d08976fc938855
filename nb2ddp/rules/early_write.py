"""DDP403: write files, fetch and start programs once a machine before training."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

import libcst as cst

from nb2ddp.facts.effects import Effect, effect, gives_an_object, writes
from nb2ddp.facts.once import SHARE, WAIT, ask_once, is_asked_once, is_guarded, once_a_machine, shared, wait_after
from nb2ddp.facts.program import Program
from nb2ddp.facts.writers import run_by_one
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.arguments import passed
from nb2ddp.syntax.edits import Edit, Wrap
from nb2ddp.syntax.tree import Statement, Tree, argument, keyword, small_statements

#: Fields of training arguments that must be the same in every process.
_SAME_EVERYWHERE = ("output_dir", "logging_dir", "seed", "data_seed")
_OF_ITS_OWN = re.compile(
    r"time\.(time|time_ns|strftime|ctime|localtime|gmtime|asctime)|datetime\.(datetime|date)\.(now|utcnow|today)"
    r"|uuid\.uuid\d|secrets\.\w+|os\.(getpid|urandom)"
)
_WRITES_TO_FILE = re.compile(r"(json|pickle|yaml|joblib|cloudpickle|dill)\.(dump|safe_dump)")


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    seen: set[cst.CSTNode] = set()
    for call, found in writes(program):
        function = tree.function(call)
        unit: cst.CSTNode = _unit(program, call)
        message = f"{tree.text(call.func)}(...) {found.value}, in every process"
        callers = run_by_one(program).get(function, []) if function is not None else []
        place: cst.CSTNode = call
        if callers and function is not None:
            unit, place = function, callers[0]
            message = f"{function.name.value}() {found.value} ({tree.text(call.func)}), in every process"
            acting = [each for each in (effect(tree, c) for c in tree.within(function, cst.Call)) if each is not None]
            saves = all(each is Effect.SAVE for each in acting)
            edits = tuple(edit for use in callers for edit in once_a_machine(program, use, in_whole_job=saves))
            if all(is_guarded(program, use) for use in callers):
                continue
        elif is_guarded(program, call) or any(a in seen and isinstance(a, cst.Call) for a in tree.ancestors(call)):
            continue
        elif (scratch := _scratch(program, call)) is not None:
            if function not in seen:
                seen.add(cast("cst.CSTNode", function))
                yield Finding(
                    call,
                    f"{tree.text(call.func)}(...) uses a scratch file of one name in every process: put "
                    f"{program.name('local_rank')} into {scratch}",
                    severity=Severity.WARNING,
                    todo=True,
                )
            continue
        else:
            edits = _edits(program, call, cast("Statement", unit), found)
        if not edits and (isinstance(unit, cst.With) or program.training.is_joint(unit)):
            if elsewhere := _elsewhere(program, call):
                yield Finding(call, message, (*elsewhere, *wait_after(program, cast("Statement", unit))), needs=WAIT)
                continue
            if _WRITES_TO_FILE.fullmatch(tree.qualified(call.func)):
                continue  # into a file that a call of its own has opened
        if not edits and _keeps_open(program, call) and (elsewhere := _elsewhere(program, call)):
            waits = tuple(edit for close in _closings(program, call) for edit in wait_after(program, close))
            yield Finding(call, message, (*elsewhere, *waits), needs=WAIT)
            continue
        if not edits and (may_exist := keyword(call, "exist_ok")) and tree.literal(may_exist.value) is True:
            continue  # a folder, which all may make
        is_shared = any(isinstance(edit, Wrap) for edit in edits)
        unit = call if is_shared else unit
        if unit in seen:
            continue
        seen.add(unit)
        if edits:
            yield Finding(place, message, edits=edits, needs=SHARE if is_shared else WAIT)
        else:
            yield Finding(
                call,
                f"{message}: every process needs the rest of this line, so it cannot run on one alone; put the"
                " writing on a line of its own, or write before the job",
                severity=Severity.WARNING,
                todo=True,
            )
    yield from _tested_twice(program)
    yield from _own_values(program)


def _own_values(program: Program) -> Iterator[Finding]:
    """Folders and seeds of trainings that are made of what differs between processes: the time, a random name."""
    tree = program.tree
    given = [passed(tree, call, name) for call in program.training.arguments for name in _SAME_EVERYWHERE]
    first = [call.args[0] for call in program.training.arguments if call.args and not call.args[0].keyword]
    values = [each.value for each in (*given, *first) if each is not None]
    for node in sorted({node for value in values for node in _sources(tree, value)}, key=tree.start):
        message = f"{tree.text(node)} differs between processes, and a training's folder or seed is made of it"
        if edits := shared(program, node, in_whole_job=True):
            yield Finding(node, message, edits, needs=SHARE)
        elif not is_guarded(program, node):
            yield Finding(node, message, severity=Severity.WARNING, todo=True)


def _sources(tree: Tree, node: cst.BaseExpression, depth: int = 4) -> Iterator[cst.BaseExpression]:
    """What a value is made of that each process gets another of."""
    for call in tree.within(node, cst.Call):
        if _OF_ITS_OWN.fullmatch(tree.qualified(call.func)):
            yield call
    for attribute in tree.within(node, cst.Attribute):
        if attribute.attr.value in ("id", "name"):
            run = tree.value(attribute.value)
            if tree.qualified(run.func if isinstance(run, cst.Call) else run) in ("wandb.init", "wandb.run"):
                yield attribute  # all but the main process log nothing, under a name of their own
    for name in tree.within(node, cst.Name) if depth else ():
        value = tree.value(name)
        if value is not name:
            yield from _sources(tree, value, depth - 1)


def _tested_twice(program: Program) -> Iterator[Finding]:
    """Tests of the file system whose answer changes while some processes are still to ask."""
    for test in program.tree.of(cst.If):
        if not is_asked_once(program, test) or program.tree.text(test.test).startswith(f"{program.name('run_once')}("):
            continue
        edits = ask_once(program, test)
        message = "a process that comes here late finds what another has made, and takes another branch"
        if edits:
            yield Finding(test, message, edits, needs=SHARE)
        else:
            message += ": test once, before the job, or move what does not write out of it"
            yield Finding(test, message, severity=Severity.WARNING, todo=True)


def _unit(program: Program, call: cst.Call) -> Statement:
    """The statement to run once: a `with open(...)` as a whole, else the call's own."""
    tree = program.tree
    statement = tree.statement(call)
    owner = next((s for s in (statement, *tree.ancestors(statement)) if isinstance(s, cst.With)), None)
    if owner is not None and any(_opens(program, item) for item in owner.items):
        return owner
    return statement


def _opens(program: Program, item: cst.WithItem) -> bool:
    return isinstance(item.item, cst.Call) and program.tree.qualified(item.item.func).endswith("open")


def _edits(program: Program, call: cst.Call, statement: Statement, found: Effect) -> tuple[Edit, ...]:
    if isinstance(statement, cst.With) or _is_all_there_is(program, call, statement):
        if isinstance(statement, cst.With) and program.bound_for_later(statement):
            return ()
        return once_a_machine(program, statement, in_whole_job=found is Effect.SAVE)
    return () if gives_an_object(program.tree, call) else shared(program, call, in_whole_job=found is Effect.SAVE)


def _elsewhere(program: Program, call: cst.Call) -> tuple[Edit, ...]:
    """Let all processes but one write into nothing, where all must run the line."""
    tree = program.tree
    mode = argument(call, "mode", 1)
    only_writes = mode is not None and re.fullmatch("[wa][bt]?", str(tree.literal(mode.value)))
    if tree.qualified(call.func) != "open" or not only_writes or not call.args or call.args[0].star:
        return ()
    path = call.args[0].value
    bracket = ("(", ")") if isinstance(path, (cst.IfExp, cst.Lambda, cst.NamedExpr)) and not path.lpar else ("", "")
    return (Wrap(path, bracket[0], f"{bracket[1]} if {program.name('local_rank')} == 0 else os.devnull"),)


def _keeps_open(program: Program, call: cst.Call) -> bool:
    """True for a file that a statement opens and gives a name."""
    parent = program.tree.parents[call]
    return isinstance(parent, cst.Assign) and len(parent.targets) == 1


def _closings(program: Program, call: cst.Call) -> list[Statement]:
    """The statements of the same scope that close a file by the name that it is given."""
    tree = program.tree
    name = tree.text(cst.ensure_type(tree.parents[call], cst.Assign).targets[0].target)
    closed = [c for c in tree.of(cst.Call) if tree.text(c.func) == f"{name}.close" and tree.start(c) > tree.start(call)]
    return [tree.statement(c) for c in closed if tree.scope(c) is tree.scope(call)]


def _is_all_there_is(program: Program, call: cst.Call, statement: Statement) -> bool:
    """True for a line that does nothing but a call, or prints it, or asks something of it: `open(...).write(...)`."""
    small = small_statements(statement)
    whole = small[0].value if len(small) == 1 and isinstance(small[0], cst.Expr) else None
    if not isinstance(whole, cst.Call):
        return False
    owner = whole.func.value if isinstance(whole.func, cst.Attribute) else None
    return call in (whole, owner) or program.tree.qualified(whole.func) == "print"


def _scratch(program: Program, call: cst.Call) -> str | None:
    """A path that the same function writes and removes again, where this call uses it: its name, or its text.

    Or writes and uses again, in a function that is handed on: a reward, which each process calls with its own rows.
    """
    tree = program.tree
    function = tree.function(call)
    if function is None:
        return None
    if not program.calls_of(function) and not isinstance(tree.scope(function), cst.ClassDef):
        opened = [
            c.args[0].value for c in tree.within(function, cst.Call) if c.args and effect(tree, c) is Effect.WRITE
        ]
        written = {tree.literal(path) for path in opened if isinstance(path, cst.SimpleString)}
        named = [str(text.evaluated_value) for text in tree.within(function, cst.SimpleString)]
        for text in tree.within(call, cst.SimpleString):
            for path in written:
                if str(path) in str(text.evaluated_value) and sum(str(path) in other for other in named) > 1:
                    return tree.text(text)
    removed = {
        name.value
        for other in tree.within(function, cst.Call)
        if tree.qualified(other.func) in ("os.remove", "os.unlink", "shutil.rmtree")
        for name in tree.within(other, cst.Name)
        if tree.bindings(name.value, other)
    }
    return next((n.value for n in tree.within(call, cst.Name) if n.value in removed), None)


RULE = Rule(
    code="DDP403",
    name="written-by-every-process",
    summary="What writes a file, downloads or starts a program before training runs on each machine's first"
    " process; the others wait for it.",
    why="Two processes that write one file at once leave it torn, and a process that reads it too early reads half"
    " of it. After the wait every process reads the finished file.",
    find=find,
    examples=(
        Example(
            """\
import json, os
from trl import SFTTrainer
os.makedirs("data", exist_ok = True)
with open("data/rows.json", "w") as f:
    json.dump(rows, f)
rows = json.load(open("data/rows.json"))
trainer = SFTTrainer(model)
trainer.train()
with open("done.txt", "w") as f:
    f.write("done")
""",
            """\
import json, os
from trl import SFTTrainer
if local_rank == 0:
    os.makedirs("data", exist_ok = True)
    with open("data/rows.json", "w") as f:
        json.dump(rows, f)
PartialState().wait_for_everyone()
rows = json.load(open("data/rows.json"))
trainer = SFTTrainer(model)
trainer.train()
with open("done.txt", "w") as f:
    f.write("done")
""",
        ),
        Example(
            """\
from huggingface_hub import snapshot_download
folder = snapshot_download("unsloth/DeepSeek-OCR", local_dir = "ocr")
trainer.train()
""",
            """\
from huggingface_hub import snapshot_download
folder = run_once(lambda: snapshot_download("unsloth/DeepSeek-OCR", local_dir = "ocr"))
trainer.train()
""",
        ),
        Example(
            """\
import numpy as np
def preprocess(path):
    rows = np.memmap(path, mode = "w+", shape = (4, 4))
    rows[:] = 1
preprocess("rows.bin")
trainer.train()
""",
            """\
import numpy as np
def preprocess(path):
    rows = np.memmap(path, mode = "w+", shape = (4, 4))
    rows[:] = 1
if local_rank == 0:
    preprocess("rows.bin")
PartialState().wait_for_everyone()
trainer.train()
""",
        ),
        Example(
            """\
import json, os
def prepare():
    if not os.path.exists("data/rows.json"):
        os.makedirs("data")
        with open("data/rows.json", "w") as f:
            json.dump({"text": "..."}, f)
prepare()
trainer.train()
""",
            """\
import json, os
def prepare():
    if not os.path.exists("data/rows.json"):
        os.makedirs("data")
        with open("data/rows.json", "w") as f:
            json.dump({"text": "..."}, f)
if local_rank == 0:
    prepare()
PartialState().wait_for_everyone()
trainer.train()
""",
        ),
        Example(
            """\
import json, os
def build():
    rows = [make() for _ in range(10)]
    json.dump(rows, open("rows.json", "w"))
    return rows
rows = json.load(open("rows.json")) if os.path.exists("rows.json") else build()
trainer.train()
""",
            """\
import json, os
def build():
    rows = [make() for _ in range(10)]
    if local_rank == 0:
        json.dump(rows, open("rows.json", "w"))
    return rows
rows = json.load(open("rows.json")) if os.path.exists("rows.json") else build()
PartialState().wait_for_everyone()
trainer.train()
""",
        ),
        Example(
            """\
import json, os
def fetch(path):
    rows = [make(path)]
    json.dump(rows, open(path, "w"))
    return rows
rows = [fetch(path) for folder in folders for path in folder if not os.path.exists(path)]
trainer.train()
""",
            """\
import json, os
def fetch(path):
    rows = [make(path)]
    if local_rank == 0:
        json.dump(rows, open(path, "w"))
    return rows
rows = [fetch(path) for folder in folders for path in folder if not os.path.exists(path)]
PartialState().wait_for_everyone()
trainer.train()
""",
        ),
        Example(
            """\
import contextlib, os
with contextlib.suppress(FileExistsError):
    os.mkdir("cache")
trainer.train()
""",
            """\
import contextlib, os
with contextlib.suppress(FileExistsError):
    if local_rank == 0:
        os.mkdir("cache")
PartialState().wait_for_everyone()
trainer.train()
""",
        ),
        Example(
            """\
import os
if new:
    os.makedirs("tokens")
    tokenizer.save_pretrained("tokens")
trainer.train()
""",
            """\
import os
if new:
    if local_rank == 0:
        os.makedirs("tokens")
    if is_main_process:
        tokenizer.save_pretrained("tokens")
PartialState().wait_for_everyone()
trainer.train()
""",
        ),
        Example(
            """\
import json
def prepare(rows):
    for row in rows:
        row["text"] += "</s>"
    tokenizer.add_tokens(["</s>"])
    with open("rows.json", "w") as f:
        json.dump(rows, f)
prepare(rows)
trainer.train()
""",
            """\
import json
def prepare(rows):
    for row in rows:
        row["text"] += "</s>"
    tokenizer.add_tokens(["</s>"])
    if local_rank == 0:
        with open("rows.json", "w") as f:
            json.dump(rows, f)
    PartialState().wait_for_everyone()
prepare(rows)
trainer.train()
""",
        ),
        Example(
            """\
import json, os
def rows():
    if os.path.exists("rows.json"):
        return json.load(open("rows.json"))
    made = [make() for _ in range(10)]
    json.dump(made, open("rows.json", "w"))
    return made
dataset = Dataset.from_list(rows())
trainer.train()
""",
            """\
import json, os
def rows():
    if run_once(lambda: os.path.exists("rows.json"), in_whole_job=True):
        return json.load(open("rows.json"))
    made = [make() for _ in range(10)]
    if local_rank == 0:
        json.dump(made, open("rows.json", "w"))
    PartialState().wait_for_everyone()
    return made
dataset = Dataset.from_list(rows())
trainer.train()
""",
        ),
        Example(
            """\
import os
if os.path.isdir("rows"):
    rows = load_from_disk("rows")
else:
    rows = prepare()
    rows.save_to_disk("rows")
if os.path.isdir("out"):
    print("resuming", get_last_checkpoint("out"))
trainer.train()
""",
            """\
import os
if run_once(lambda: os.path.isdir("rows"), in_whole_job=True):
    rows = load_from_disk("rows")
else:
    rows = prepare()
    if local_rank == 0:
        rows.save_to_disk("rows")
    PartialState().wait_for_everyone()
if os.path.isdir("out"):
    print("resuming", get_last_checkpoint("out"))
trainer.train()
""",
        ),
        Example(
            """\
import os
class Log(TrainerCallback):
    def __init__(self):
        self.folder = "logs"; os.makedirs(self.folder, exist_ok=True)
        self.file = open("log.csv", "w")
trainer = SFTTrainer(model, callbacks=[Log()])
trainer.train()
""",
            """\
import os
class Log(TrainerCallback):
    def __init__(self):
        self.folder = "logs"; os.makedirs(self.folder, exist_ok=True)
        self.file = open("log.csv" if local_rank == 0 else os.devnull, "w")
trainer = SFTTrainer(model, callbacks=[Log()])
trainer.train()
""",
        ),
        Example(
            """\
from datetime import datetime
from trl import SFTConfig
run = f"run-{datetime.now():%Y%m%d-%H%M%S}"
args = SFTConfig(output_dir = f"out/{run}")
trainer.train()
""",
            """\
from datetime import datetime
from trl import SFTConfig
run = f"run-{run_once(lambda: datetime.now(), in_whole_job=True):%Y%m%d-%H%M%S}"
args = SFTConfig(output_dir = f"out/{run}")
trainer.train()
""",
        ),
        Example(
            """\
def reward(completions, **kwargs):
    with open("answer.py", "w") as f:
        f.write(completions[0])
    return [subprocess.run(["python", "answer.py"]).returncode]
trainer = GRPOTrainer(reward_funcs=[reward])
trainer.train()
""",
            """\
def reward(completions, **kwargs):
    # TODO[nb2ddp] DDP403: open(...) uses a scratch file of one name in every process: put local_rank into "answer.py"
    with open("answer.py", "w") as f:
        f.write(completions[0])
    return [subprocess.run(["python", "answer.py"]).returncode]
trainer = GRPOTrainer(reward_funcs=[reward])
trainer.train()
""",
        ),
        Example(
            """\
import json
trainer.train()
json.dump(trainer.evaluate(), open("metrics.json", "w"))
trainer.predict(rows)
""",
            """\
import json
trainer.train()
json.dump(trainer.evaluate(), open("metrics.json" if local_rank == 0 else os.devnull, "w"))
PartialState().wait_for_everyone()
trainer.predict(rows)
""",
        ),
        Example('text = open("prompt.txt").read()\ntrainer.train()\n'),
    ),
)
