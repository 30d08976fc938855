"""DDP403: File writes, downloads and programs before training run in one process of each machine; the others wait.

Two processes that write one file at once corrupt it, and a process that reads it too early reads half of it. After the
wait every process reads the complete file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import SAID, Does
from nb2ddp.facts.execution import Phase
from nb2ddp.facts.flow import owner_of
from nb2ddp.facts.makers import Maker
from nb2ddp.facts.program import Program
from nb2ddp.facts.texts import spelled
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule, made_alone
from nb2ddp.syntax.arguments import passed
from nb2ddp.syntax.edits import InsertAfter, Replace, written
from nb2ddp.syntax.tree import argument

#: Fields of training arguments that must be the same in every process.
_SAME_EVERYWHERE = ("output_dir", "logging_dir", "seed", "data_seed")
#: What is free, at the moment, on the machine or a GPU of it.
_FREE = re.compile(r"torch\.cuda\.(memory\.)?mem_get_info|psutil\.virtual_memory|shutil\.disk_usage")
_CHOICE = "differs between processes, and what the notebook chooses by it"
_NEEDED = (
    "in all processes at once, because the rest of this line must run in each: put it on a line of its own, or "
    "do it before the job"
)
_STARTED = (
    "starts a program in every process, but each machine needs only one: start and use it under `if local_rank "
    "== 0:`, or start it before the job"
)
_ALONE = ", which all processes would do at once; in the script one does it"
_ONCE = f"{_ALONE}, and the others wait"
_LOGS = "(...) opens a log file, which all processes would write at once"
_LOGS_ALONE = "; in the script one does, and each process keeps its other handlers"
_LOG_ONCE = ", and rename or remove: call it under `if local_rank == 0:`"
_OF_ITS_OWN = (
    ", but each rank has its own completions; in the script only the first rank of each machine writes: to keep "
    "all, put local_rank into the file's name and let every rank write"
)
_IN_TURN = " into a cache that has no lock; in the script one process of each machine does, then the others read it"
_SCRATCH = "{}(...): all processes use one scratch file, and overwrite each other's"
_LATE = "a process that arrives later finds the file of another, and takes another branch"
_SAME = "processes wait for each other in a branch of this test, so all have to take the same one"
_READ = "a branch of this test reads what it writes, before the ranks wait for that"
_ANSWERED = "; in the script one process decides for all"
_EARLY = (
    "all but one rank look before the file above is written, and may go on differently: move the write out of the"
    " branch, so that the ranks wait for it directly"
)
_ASK_BEFORE = ": test once before the job, or move all but the write out of the branch"
#: What has the others wait, in an edit.
_WAITS = re.compile(r"wait_for_everyone|run_once|main_process_first")
#: A text in quotes: what is before its file's ending, and that.
_PATH = re.compile(r"""(?P<f>f?)(?P<quote>["'])(?P<stem>[^"']*?[^"'.])(?P<ending>\.\w+)?(?P=quote)""")


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    scratch_files = set[tuple[cst.FunctionDef | None, str]]()
    for decision in program.placement.decisions:
        call, function = decision.call, tree.function(decision.call)
        action = SAID[program.execution.does(call) & Does.ACT]
        message = f"{tree.text(call.func)}(...) {action}"
        if decision.stays:
            continue
        if function is not None and decision.unit is function and function in program.placement.writers:
            message = f"{function.name.value}() {action} ({tree.text(call.func)}){_ONCE}"
            yield Finding(program.placement.writers[function][0], message, decision.edits)
        elif (scratch := _scratch(program, call)) is not None:
            if (function, scratch) not in scratch_files:
                scratch_files.add((function, scratch))
                yield from _apart(program, call, scratch)
        elif decision.edits:
            is_reward = function in program.rewards.functions
            severity = Severity.WARNING if is_reward else None
            waits = any(_WAITS.search(text) for edit in decision.edits for text in written(edit))
            said = _OF_ITS_OWN if is_reward else _ONCE if waits else _ALONE
            yield Finding(call, f"{message}{said}", decision.edits, severity)
        elif tree.qualified(call.func) == "subprocess.Popen":
            once = f"{message}{_ONCE}"
            yield from made_alone(program, call, once, once, f"{tree.text(call.func)}(...) {_STARTED}")
        else:
            yield Finding(call, f"{message} {_NEEDED}", todo=True)
    yield from _tested_twice(program)
    yield from _tested_early(program)
    yield from _own_values(program)
    yield from _cached(program)
    yield from _logged(program)


def _apart(program: Program, call: cst.Call, scratch: str) -> Iterator[Finding]:
    """A scratch file of its own for each process, where the notebook writes its path out; else a `TODO`."""
    tree = program.tree
    bound = tree.bindings(scratch, call)
    path = bound[0].value if len(bound) == 1 else None
    if isinstance(path, cst.Call) and tree.qualified(path.func) in ("os.path.join", "pathlib.Path") and path.args:
        path = path.args[-1].value
    parts = _PATH.fullmatch(tree.text(path)) if isinstance(path, (cst.SimpleString, cst.FormattedString)) else None
    message = _SCRATCH.format(tree.text(call.func))
    if path is not None and "local_rank" in tree.text(path):
        return
    if path is None or parts is None or (not parts["f"] and "{" in parts["stem"]):
        yield Finding(call, f"{message}: put local_rank into {scratch}", todo=True)
        return
    own = "f{quote}{stem}_{{local_rank}}{ending}{quote}".format(**parts.groupdict(""))
    yield Finding(call, f"{message}; the script gives each its own", (Replace(path, own),))


def _cached(program: Program) -> Iterator[Finding]:
    """Downloads into caches that processes disturb each other in."""
    calls = program.execution.calls(does=Does.CACHE, phase=Phase.BEFORE | Phase.BETWEEN)
    guards = [(guard, call) for call in calls for guard in program.placement.in_turn(call)]
    for guard, call in dict(reversed(guards)).items():
        is_own = guard.first is program.tree.statement(call)
        message = f"{program.tree.text(call.func)}(...) downloads{_IN_TURN}"
        yield Finding(call if is_own else guard.first, message, (guard,))


def _logged(program: Program) -> Iterator[Finding]:
    """Log files, which every process would open, and some empty, while one logs into them."""
    for call in program.execution.calls(does=Does.LOG, phase=Phase.TOGETHER):
        if not program.placement.runs_alone_as_placed(call):
            edits = program.placement.logs_elsewhere(call)
            said = f"{program.tree.text(call.func)}{_LOGS}{_LOGS_ALONE if edits else _LOG_ONCE}"
            yield Finding(call, said, edits, todo=not edits)


def _own_values(program: Program) -> Iterator[Finding]:
    """What the time, a random name or free memory makes another in each process: folders, seeds, batch sizes."""
    tree = program.tree
    configs = program.training.arguments
    fields = [passed(tree, config, name) for config in configs for name in _SAME_EVERYWHERE]
    folders = [argument(config, "output_dir", 0) for config in configs]
    values = [field.value for field in (*fields, *folders) if field is not None]
    free = [
        call for call in program.execution.calls(_FREE, phase=Phase.BEFORE | Phase.BETWEEN) if _decides(program, call)
    ]
    for node in dict.fromkeys([*(node for value in values for node in program.execution.unlike(value)), *free]):
        choice = (
            _CHOICE if node in free else "differs between processes, and with it the folder or seed of the training"
        )
        message = f"{tree.text(node)} {choice}"
        if edits := program.placement.shared(node, in_whole_job=True):
            yield Finding(node, f"{message}; in the script one process works it out for all", edits)
        elif not program.placement.runs_alone(node):
            yield Finding(node, f"{message}: write a fixed value", todo=True)


def _decides(program: Program, call: cst.Call) -> bool:
    """True for a call whose value goes to more than what is printed."""
    tree, bound = program.tree, program.tree.parents[call]
    uses = tree.bound_uses(bound) if isinstance(bound, cst.Assign) else [call]
    ends = [end for use in uses for end in tree.goes_to(use)]
    told = ({each for each in tree.ancestors(end) if isinstance(each, cst.Call)} for end in ends)
    return not all(any(program.execution.does(each) is Does.TELL for each in around) for around in told)


def _tested_twice(program: Program) -> Iterator[Finding]:
    """Tests of the file system whose answer changes while some processes are still to ask."""
    for test in program.tree.of(cst.If):
        if program.placement.is_asked_once(test) and not program.tree.text(test.test).startswith("run_once("):
            edits, is_late = program.placement.ask_once(test), _may_find_other(program, test)
            if edits or is_late or _reads_written(program, test):
                said = f"{_LATE if is_late else _SAME if edits else _READ}{_ANSWERED if edits else _ASK_BEFORE}"
                yield Finding(test, said, edits, todo=not edits)


def _may_find_other(program: Program, test: cst.If) -> bool:
    """True for a test whose files another process may make; False where all that is written has other names."""
    tree, execution = program.tree, program.execution
    asked = [call for call in tree.within(test.test, cst.Call) if execution.does(call) & (Does.TEST | Does.LIST)]
    given = [call.args[0].value if call.args else owner_of(call) for call in asked]
    paths = [path for each in given for path in (spelled(tree, each) if each is not None else ["*"])] or ["*"]
    acting = [each for each in _writing(program) if execution.runs(each.call)]
    return any(maker.may_make(path) for maker in acting for path in paths)


def _reads_written(program: Program, test: cst.If) -> bool:
    """True where something in a test is given what is written above it there."""
    tree, calls, told = program.tree, program.tree.within(test, cst.Call), Does.ACT | Does.TELL
    for maker in _writing(program):
        if maker.call in calls:
            end = tree.span(tree.statement(maker.call))[1]
            later = [each for each in calls if tree.start(each) > end and not program.execution.does(each) & told]
            texts = [text for each in later for given in each.args for text in spelled(tree, given.value)]
            if any(maker.may_make(text) for text in texts if re.search(r"\w", text)):
                return True
    return False


def _writing(program: Program) -> list[Maker]:
    """What makes files, and is for one process to do."""
    return [each for each in program.makers if program.placement.acts(each.call)]


def _tested_early(program: Program) -> Iterator[Finding]:
    """Tests of the file system between a write and the wait for it, which stands below the branch of both."""
    tree, early = program.tree, dict[cst.Call, None]()
    tests = program.execution.calls(does=Does.TEST | Does.LIST, phase=Phase.BEFORE | Phase.BETWEEN)
    for decision in program.placement.decisions:
        written, block = tree.span(decision.unit)[1], tree.parents[decision.unit]
        waits = [edit.statement for edit in decision.edits if isinstance(edit, InsertAfter)]
        waited = max((tree.span(wait)[1] for wait in waits if wait in tree.ancestors(decision.unit)), default=written)
        between = [test for test in tests if written <= tree.start(test) < waited and block in tree.ancestors(test)]
        early |= dict.fromkeys(test for test in between if not program.placement.runs_alone_as_placed(test))
    for test in early:
        yield Finding(test, _EARLY, todo=True)


def _scratch(program: Program, call: cst.Call) -> str | None:
    """A path that the same function writes and removes again, where this call uses it: its name, or its text.

    Or writes and uses again, in a function that is handed on: a reward, which each process calls with its own rows.
    """
    tree = program.tree
    function = tree.function(call)
    if function is None:
        return None
    calls = tree.within(function, cst.Call)
    if not tree.calls_of(function) and not isinstance(tree.scope(function), cst.ClassDef):
        writing = [each for each in calls if each.args and program.execution.does(each) is Does.WRITE]
        files = [each.args[0].value for each in writing if not tree.text(each.func).endswith(("mkdir", "makedirs"))]
        written = {tree.content(file) for file in files if isinstance(file, cst.SimpleString)}
        used = [path for path in written if sum(path in text for text in tree.texts(function)) > 1]
        for text in tree.within(call, cst.SimpleString):
            if any(path in tree.content(text) for path in used):
                return tree.text(text)
    removing = [each for each in calls if tree.qualified(each.func) in ("os.remove", "os.unlink", "shutil.rmtree")]
    named = {name.value: name for each in removing for name in tree.within(each, cst.Name)}
    removed = {text for text, name in named.items() if tree.bindings(text, name)}
    return next((name.value for name in tree.within(call, cst.Name) if name.value in removed), None)


RULE = Rule(
    name="written-by-every-process",
    find=find,
    examples=(
        Example(
            """\
import torch
print(torch.cuda.mem_get_info())
free, total = torch.cuda.mem_get_info()
batch = 8 if free / 1e9 > 30 else 2
model.load(batch)
trainer.train()
""",
            """\
import torch
print(torch.cuda.mem_get_info())
free, total = run_once(lambda: torch.cuda.mem_get_info(), in_whole_job=True)
batch = 8 if free / 1e9 > 30 else 2
model.load(batch)
trainer.train()
""",
        ),
        Example("import torch\nfree, total = torch.cuda.mem_get_info()\nprint(f'{free / 1e9} GB')\ntrainer.train()\n"),
        Example(
            """\
import os
from huggingface_hub import snapshot_download
resume = None
if any(name.startswith("last") for name in names):
    snapshot_download("a/b", local_dir = "out")
    if os.path.exists("out/last"):
        resume = "out/last"
trainer.train(resume_from_checkpoint = resume)
""",
            f"""\
import os
from huggingface_hub import snapshot_download
resume = None
if any(name.startswith("last") for name in names):
    if local_rank == 0:
        snapshot_download("a/b", local_dir = "out")
    # TODO[nb2ddp] DDP403: {_EARLY}
    if os.path.exists("out/last"):
        resume = "out/last"
PartialState().wait_for_everyone()
trainer.train(resume_from_checkpoint = resume)
""",
        ),
        Example(
            """\
import subprocess, time
def start():
    process = subprocess.Popen(["serve", "--quiet"])
    time.sleep(5)
    return process
server = start()
other = start()
print(other.pid)
trainer.train()
server.terminate()
""",
            f"""\
import subprocess, time
def start():
    # TODO[nb2ddp] DDP403: subprocess.Popen(...) {_STARTED}
    process = subprocess.Popen(["serve", "--quiet"])
    time.sleep(5)
    return process
server = start()
other = start()
print(other.pid)
trainer.train()
server.terminate()
""",
        ),
        Example(
            """\
import subprocess, time
def start():
    process = subprocess.Popen(["serve", "--quiet"])
    time.sleep(5)
    return process
server = start()
trainer.train()
server.terminate()
""",
            """\
import subprocess, time
def start():
    process = subprocess.Popen(["serve", "--quiet"])
    time.sleep(5)
    return process
if local_rank == 0:
    server = start()
PartialState().wait_for_everyone()
trainer.train()
server.terminate()
""",
        ),
        Example(
            """\
import zipfile
with zipfile.ZipFile("rows.zip") as archive:
    for name in archive.namelist():
        archive.extract(name, "rows")
with zipfile.ZipFile("more.zip") as archive:
    names = archive.namelist()
    archive.extractall("more")
print(names)
trainer.train()
""",
            """\
import zipfile
if local_rank == 0:
    with zipfile.ZipFile("rows.zip") as archive:
        for name in archive.namelist():
            archive.extract(name, "rows")
PartialState().wait_for_everyone()
with zipfile.ZipFile("more.zip") as archive:
    names = archive.namelist()
    if local_rank == 0:
        archive.extractall("more")
    PartialState().wait_for_everyone()
print(names)
trainer.train()
""",
        ),
        Example(
            """\
import os
from huggingface_hub import snapshot_download
RESUME = "a/b"
resumes = bool(RESUME) and len(str(RESUME)) > 1
if resumes:
    snapshot_download(RESUME, local_dir = "last")
    assert os.path.exists("last/config.json")
trainer.train()
""",
            """\
import os
from huggingface_hub import snapshot_download
RESUME = "a/b"
resumes = bool(RESUME) and len(str(RESUME)) > 1
if resumes:
    if local_rank == 0:
        snapshot_download(RESUME, local_dir = "last")
    PartialState().wait_for_everyone()
    assert os.path.exists("last/config.json")
trainer.train()
""",
        ),
        Example(
            """\
import json
import pandas as pd
try:
    with open("rows.json", "w") as f:
        json.dump(rows, f)
    rows = load_dataset("json", data_files = "rows.json")
    with pd.ExcelWriter("rows.xlsx") as book:
        table.to_excel(book)
except OSError as error:
    print(error)
trainer.train()
""",
            """\
import json
import pandas as pd
try:
    try:
        if local_rank == 0:
            with open("rows.json", "w") as f:
                json.dump(rows, f)
    finally:
        PartialState().wait_for_everyone()
    rows = load_dataset("json", data_files = "rows.json")
    if local_rank == 0:
        with pd.ExcelWriter("rows.xlsx") as book:
            table.to_excel(book)
except OSError as error:
    print(error)
PartialState().wait_for_everyone()
trainer.train()
""",
        ),
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
os.makedirs("data", exist_ok = True)
if local_rank == 0:
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
import json
rows, seen = [], {}
with open("rows.jsonl", "w") as f:
    for row in source:
        rows.append(row)
        seen[row["id"]] = 1
        f.write(json.dumps(row))
trainer.train()
""",
            """\
import json
rows, seen = [], {}
with open("rows.jsonl" if local_rank == 0 else os.devnull, "w") as f:
    for row in source:
        rows.append(row)
        seen[row["id"]] = 1
        f.write(json.dumps(row))
PartialState().wait_for_everyone()
trainer.train()
""",
        ),
        Example(
            """\
import requests, subprocess
try:
    requests.get("http://127.0.0.1:11000/health")
except requests.exceptions.ConnectionError:
    log = open("server.log", "w")
    server = subprocess.Popen(["serve", "--quiet"], stdout = log)
    while server.poll() is None:
        print(".")
watcher = subprocess.Popen(["watch.sh"])
if watcher.poll() is None:
    print("watched")
trainer.train()
""",
            "import requests, subprocess\n"
            "if local_rank == 0:\n"
            "    try:\n"
            '        requests.get("http://127.0.0.1:11000/health")\n'
            "    except requests.exceptions.ConnectionError:\n"
            '        log = open("server.log", "w")\n'
            '        server = subprocess.Popen(["serve", "--quiet"], stdout = log)\n'
            "        while server.poll() is None:\n"
            '            print(".")\n'
            "PartialState().wait_for_everyone()\n"
            "# TODO[nb2ddp] DDP403: subprocess.Popen(...) starts a program in every process, but each "
            "machine needs only one: start and use it under `if local_rank == 0:`, or start it before the job\n"
            'watcher = subprocess.Popen(["watch.sh"])\n'
            "if watcher.poll() is None:\n"
            '    print("watched")\n'
            "trainer.train()\n",
        ),
        Example(
            """\
import torch, whisper
class Speaker:
    def __init__(self, name):
        self.model, self.judge = whisper.load_model(name), whisper.load_model("tiny")
if __name__ == "__main__":
    name = "turbo"
    speaker = Speaker(
        name
    )
detector, tools = torch.hub.load("snakers4/silero-vad", "silero_vad")
trainer.train()
judge = whisper.load_model("large")
""",
            """\
import torch, whisper
class Speaker:
    def __init__(self, name):
        self.model, self.judge = whisper.load_model(name), whisper.load_model("tiny")
if __name__ == "__main__":
    name = "turbo"
    with PartialState().local_main_process_first():
        speaker = Speaker(
            name
        )
with PartialState().local_main_process_first():
    detector, tools = torch.hub.load("snakers4/silero-vad", "silero_vad")
trainer.train()
judge = whisper.load_model("large")
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
import json
def saved(rows, path):
    with open(path, "w") as f:
        json.dump(rows, f)
        return path
def tried(rows):
    try:
        rows.to_json("tried.json")
        return "tried.json"
    except OSError:
        return None
path = saved(rows, "rows.json")
more = tried(rows)
print(path, more)
for row in rows:
    with open("row.txt", "w") as f:
        if row == "":
            break
        f.write(row)
trainer.train()
""",
            """\
import json
def saved(rows, path):
    with open(path if local_rank == 0 else os.devnull, "w") as f:
        json.dump(rows, f)
        return path
def tried(rows):
    try:
        if local_rank == 0:
            rows.to_json("tried.json")
        return "tried.json"
    except OSError:
        return None
path = saved(rows, "rows.json")
PartialState().wait_for_everyone()
more = tried(rows)
PartialState().wait_for_everyone()
print(path, more)
for row in rows:
    with open("row.txt" if local_rank == 0 else os.devnull, "w") as f:
        if row == "":
            break
        f.write(row)
PartialState().wait_for_everyone()
trainer.train()
""",
        ),
        Example(
            """\
from pathlib import Path
root = Path("data")
folder = root / "rows"
folder.rename(folder.parent.resolve() / "old")
for path in sorted(root.glob("*.csv")):
    (folder / path.name).symlink_to(path)
table = table.rename(columns = {"a": "text"})
name = name.replace("a", "b")
trainer.train()
""",
            """\
from pathlib import Path
root = Path("data")
folder = root / "rows"
if local_rank == 0:
    folder.rename(folder.parent.resolve() / "old")
PartialState().wait_for_everyone()
for path in sorted(root.glob("*.csv")):
    if local_rank == 0:
        (folder / path.name).symlink_to(path)
PartialState().wait_for_everyone()
table = table.rename(columns = {"a": "text"})
name = name.replace("a", "b")
trainer.train()
""",
        ),
        Example(
            """\
import json
class Logged(TrainerCallback):
    def on_log(self, args, state, control, **kwargs):
        pipeline.note("logged")
class Pipeline:
    def note(self, text):
        with open("notes.txt", "a") as f:
            f.write(text)
    def prepare(self, rows):
        with open("rows.json", "w") as f:
            json.dump(rows, f)
    def save(self, name):
        self.saved.append(name)
    def run(self, rows):
        self.prepare(rows)
        self.rows = json.load(open("rows.json"))
        self.save("first")
        trainer.train()
pipeline = Pipeline()
pipeline.run(rows)
""",
            """\
import json
class Logged(TrainerCallback):
    def on_log(self, args, state, control, **kwargs):
        pipeline.note("logged")
class Pipeline:
    def note(self, text):
        if local_rank == 0:
            with open("notes.txt", "a") as f:
                f.write(text)
    def prepare(self, rows):
        if local_rank == 0:
            with open("rows.json", "w") as f:
                json.dump(rows, f)
        PartialState().wait_for_everyone()
    def save(self, name):
        self.saved.append(name)
    def run(self, rows):
        self.prepare(rows)
        self.rows = json.load(open("rows.json"))
        self.save("first")
        trainer.train()
pipeline = Pipeline()
pipeline.run(rows)
""",
        ),
        Example(
            """\
def keep(row):
    path = "pages/" + row["name"]
    row["page"].to_csv(path)
    return {"path": path}
rows = rows.map(keep)
with ThreadPoolExecutor(4) as pool:
    jobs = [pool.submit(keep, row) for row in others]
trainer.train()
""",
            """\
def keep(row):
    path = "pages/" + row["name"]
    if local_rank == 0:
        row["page"].to_csv(path)
    return {"path": path}
rows = rows.map(keep)
PartialState().wait_for_everyone()
with ThreadPoolExecutor(4) as pool:
    jobs = [pool.submit(keep, row) for row in others]
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
import wandb
run = wandb.init()
checkpoint = run.use_artifact("someone/tuning/model:v4").download()
with wandb.init() as other:
    artifact = other.use_artifact("someone/tuning/rows:v1")
    rows = artifact.file()
start = run.restore("model.pt").name
tokens = wandb.Api().artifact("someone/tuning/tokens:v1").download()
model.download("nothing of wandb's")
trainer.train(resume_from_checkpoint = checkpoint)
""",
            """\
import wandb
run = wandb.init()
checkpoint = run_once(lambda: run.use_artifact("someone/tuning/model:v4").download(), in_whole_job=True)
with wandb.init() as other:
    artifact = other.use_artifact("someone/tuning/rows:v1")
    rows = run_once(lambda: artifact.file(), in_whole_job=True)
start = run_once(lambda: run.restore("model.pt").name, in_whole_job=True)
tokens = run_once(lambda: wandb.Api().artifact("someone/tuning/tokens:v1").download())
model.download("nothing of wandb's")
trainer.train(resume_from_checkpoint = checkpoint)
""",
        ),
        Example(
            """\
import os
if new:
    model.save_pretrained("a"); tokenizer.save_pretrained("a")  # both
    model.save_pretrained("b"); os.remove("old")
model.save_pretrained("c"); print("saved")
trainer.train()
""",
            f"""\
import os
if new:
    if is_main_process:
        model.save_pretrained("a"); tokenizer.save_pretrained("a")  # both
    # TODO[nb2ddp] DDP403: model.save_pretrained(...) saves or uploads the model {_NEEDED}
    model.save_pretrained("b"); os.remove("old")
PartialState().wait_for_everyone()
if is_main_process:
    model.save_pretrained("c"); print("saved")
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
rows = None
if os.path.exists("rows.json"):
    rows = json.load(open("rows.json"))
if rows is None:
    rows = [make() for _ in range(10)]
    json.dump(rows, open("rows.json", "w"))
dataset = Dataset.from_list(rows)
trainer.train()
""",
            """\
import json, os
rows = None
if run_once(lambda: os.path.exists("rows.json"), in_whole_job=True):
    rows = json.load(open("rows.json"))
if rows is None:
    rows = [make() for _ in range(10)]
    if local_rank == 0:
        json.dump(rows, open("rows.json", "w"))
PartialState().wait_for_everyone()
dataset = Dataset.from_list(rows)
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
import os, zipfile
if where == "kaggle":
    if os.path.exists("/kaggle/input/rows"):
        folder = "/kaggle/input/rows"
    else:
        with zipfile.ZipFile("all.zip") as archive:
            archive.extractall("unpacked")
        folder = "unpacked"
    if os.path.exists("/kaggle/input/last"):
        last = load_from_disk("/kaggle/input/last")
    else:
        with zipfile.ZipFile("last.zip") as archive:
            archive.extractall("last_rows")
        last = load_from_disk("last_rows")
if os.path.exists("/kaggle/input/more"):
    more = "/kaggle/input/more"
else:
    with zipfile.ZipFile("more.zip") as archive:
        archive.extractall("more_rows")
    more = "more_rows"
trainer.train()
""",
            f"""\
import os, zipfile
if where == "kaggle":
    if os.path.exists("/kaggle/input/rows"):
        folder = "/kaggle/input/rows"
    else:
        if local_rank == 0:
            with zipfile.ZipFile("all.zip") as archive:
                archive.extractall("unpacked")
        folder = "unpacked"
    # TODO[nb2ddp] DDP403: {_READ}{_ASK_BEFORE}
    if os.path.exists("/kaggle/input/last"):
        last = load_from_disk("/kaggle/input/last")
    else:
        if local_rank == 0:
            with zipfile.ZipFile("last.zip") as archive:
                archive.extractall("last_rows")
        last = load_from_disk("last_rows")
PartialState().wait_for_everyone()
if run_once(lambda: os.path.exists("/kaggle/input/more"), in_whole_job=True):
    more = "/kaggle/input/more"
else:
    if local_rank == 0:
        with zipfile.ZipFile("more.zip") as archive:
            archive.extractall("more_rows")
    PartialState().wait_for_everyone()
    more = "more_rows"
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
    # TODO[nb2ddp] DDP403: open(...): all processes use one scratch file, and overwrite each other's: put local_rank \
into "answer.py"
    with open("answer.py", "w") as f:
        f.write(completions[0])
    return [subprocess.run(["python", "answer.py"]).returncode]
trainer = GRPOTrainer(reward_funcs=[reward])
trainer.train()
""",
        ),
        Example(
            """\
def reward(completions, **kwargs):
    with open("rewards.csv", "a") as f:
        f.write(completions[0])
    return [len(completion) for completion in completions]
trainer = GRPOTrainer(reward_funcs=[reward])
trainer.train()
""",
            """\
def reward(completions, **kwargs):
    if local_rank == 0:
        with open("rewards.csv", "a") as f:
            f.write(completions[0])
    return [len(completion) for completion in completions]
trainer = GRPOTrainer(reward_funcs=[reward])
trainer.train()
""",
        ),
        Example(
            """\
import os, shutil
def read_all(samples):
    for n, sample in enumerate(samples):
        path = f"page_{n}.jpg"
        sample["image"].save(path)
        folder = os.path.join("out", "pages")
        os.mkdir(folder)
        model.infer(path, folder)
        os.remove(path)
        shutil.rmtree(folder)
read_all(dataset)
read_all(dataset)
trainer.train()
read_all(dataset)
""",
            """\
import os, shutil
def read_all(samples):
    for n, sample in enumerate(samples):
        path = f"page_{n}_{local_rank}.jpg"
        sample["image"].save(path)
        folder = os.path.join("out", f"pages_{local_rank}")
        os.mkdir(folder)
        model.infer(path, folder)
        os.remove(path)
        shutil.rmtree(folder)
read_all(dataset)
read_all(dataset)
trainer.train()
read_all(dataset)
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
        Example(
            """\
class Log:
    def __init__(self, path): self.file = open(path, "w")
    def add(self, text): self.file.write(text)
log = Log("log.txt")
log.add("begins")
trainer.train()
""",
            """\
class Log:
    def __init__(self, path): self.file = open(path if local_rank == 0 else os.devnull, "w")
    def add(self, text): self.file.write(text)
log = Log("log.txt")
log.add("begins")
trainer.train()
""",
        ),
        Example(
            """\
import logging, os
from logging.handlers import RotatingFileHandler
from loguru import logger as log
def set_up(folder):
    handlers = [logging.StreamHandler(), logging.FileHandler(os.path.join(folder, "a.log"), mode="w")]
    logging.basicConfig(level=logging.INFO, handlers=handlers)
    return logging.getLogger("run")
run = set_up("logs")
run.addHandler(RotatingFileHandler(filename="b.log", maxBytes=1000))
logging.basicConfig(filename="c.log", filemode="w")
own = logging.FileHandler(f"{local_rank}.log")
log.add(print)
log.add("d.log")
log.add("e.log", rotation="1 MB")
sink = log.add("f.log", retention=3)
trainer.train()
log.add("g.log")
""",
            f"""\
import logging, os
from logging.handlers import RotatingFileHandler
from loguru import logger as log
def set_up(folder):
    handlers = [logging.StreamHandler(), logging.FileHandler(os.path.join(folder, "a.log") if local_rank == 0 else \
os.devnull, mode="w")]
    logging.basicConfig(level=logging.INFO, handlers=handlers)
    return logging.getLogger("run")
run = set_up("logs")
run.addHandler(RotatingFileHandler(filename="b.log" if local_rank == 0 else os.devnull, maxBytes=1000))
logging.basicConfig(filename="c.log" if local_rank == 0 else os.devnull, filemode="w")
own = logging.FileHandler(f"{{local_rank}}.log")
log.add(print)
log.add("d.log" if local_rank == 0 else os.devnull)
if local_rank == 0:
    log.add("e.log", rotation="1 MB")
# TODO[nb2ddp] DDP403: log.add{_LOGS}{_LOG_ONCE}
sink = log.add("f.log", retention=3)
trainer.train()
log.add("g.log")
""",
        ),
        Example('text = open("prompt.txt").read()\ntrainer.train()\n'),
    ),
)
