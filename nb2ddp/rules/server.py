"""DDP405: A remote service is asked once for all ranks, and a server is started once on each machine.

A remote answer may differ from rank to rank: they would train on different data, without an error. A port can be used
only once on a machine. If the script cannot do it, a `TODO` stands above the call.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.execution import Phase
from nb2ddp.facts.program import Program
from nb2ddp.facts.services import answer, gpus_of, questions
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule, made_alone
from nb2ddp.script.inserted import LEAVE_GPUS
from nb2ddp.syntax.edits import AddToSetup
from nb2ddp.syntax.tree import Tree, argument

_COMMAND = re.compile(
    r"\b(vllm serve|ollama serve|uvicorn|gunicorn|sglang|llama-server|text-generation-launcher|http\.server)\b|--port\b"
)
_HERE = re.compile(r"\b(localhost|127\.0\.0\.1|0\.0\.0\.0)\b|\[::1\]")
_CALLS = re.compile(r"(http\.server|socketserver)\.\w*Server|.*\bSyntheticDataKit\.from_pretrained")

FEWER = "one process fewer than the machine has GPUs"
_ONCE = "asks a service, which may answer each process differently; in the script one asks for all"
_EACH = (
    "asks a service in every process, and each may get other data and be billed for it: fetch it to a file once, "
    "before the job"
)
_STARTED = "starts a server in every process; in the script one process of each machine does, and runs what uses it"
_USED = "uses a server that only one process of each machine starts; in the script that process does it"
_TAKEN = "starts a server in every process, and all but the first find its port taken: start it once, before the job"


def find(program: Program) -> Iterator[Finding]:
    execution = program.execution
    asked: set[cst.Call] = set()
    for call in execution.calls(phase=Phase.TOGETHER):
        starts, asks = _starts(program, call), execution.does(call) & Does.ASK
        if starts and (gpus := gpus_of(program.tree, call, program.effects.command(call))):
            seen = ",".join(str(number) for number in range(8) if str(number) not in gpus)
            said = f"starts a server on GPU {', '.join(gpus)}; the script leaves that to it: start {FEWER}"
            yield Finding(call, said, (AddToSetup(f'{LEAVE_GPUS}"{seen}")', True),), Severity.WARNING)
        if not (starts or asks) or program.placement.runs_alone_as_placed(call):
            continue
        if starts:
            yield from _started(program, call)
        else:
            asked.update(each for each in questions(program.tree, call) if execution.runs(each))
    for place, edits in program.placement.lifted.items():
        if not program.placement.runs_alone_as_placed(place):
            yield Finding(place, f"{textwrap.shorten(program.tree.text(place), 60, placeholder='...')} {_ONCE}", edits)
    for call in program.tree.in_order(asked):
        once = program.tree.function(call) in program.placement.asks_once
        apart = once or program.placement.runs_alone_as_placed(call) or _is_rewards(program, call)
        if not apart and not _asks_whether(program.tree, call):
            yield _asked(program, call)


def _is_rewards(program: Program, call: cst.Call) -> bool:
    """True for what rewards alone ask, each process for its own completions: in methods of an environment too."""
    tree, function = program.tree, program.tree.function(call)
    if program.rewards.is_only_here(call):
        return True
    used = tree.named(function) if function in program.rewards.functions and function is not None else []
    return bool(used) and all(tree.owner(use) in program.rewards.functions for use in used)


def _asks_whether(tree: Tree, call: cst.Call) -> bool:
    """True for a question that all may ask: of a server on this machine, or whether one answers at all."""
    if tree.text(call.func).rsplit(".", 1)[-1] not in ("get", "head", "urlopen"):
        return False
    url = argument(call, "url", 0)
    if url is not None and any(_HERE.search(tree.text(part)) for part in tree.made_of(url.value)):
        return True
    return isinstance(tree.parents[tree.extended(call, cst.Attribute, cst.Call)], cst.Expr)


def _asked(program: Program, call: cst.Call) -> Finding:
    """A question that is asked once for all, or a `TODO` where its answer cannot be handed on."""
    given = answer(program.tree, call)
    edits = program.placement.shared(given, in_whole_job=True) if given is not None else ()
    return Finding(call, f"{program.tree.text(call.func)}(...) {_ONCE if edits else _EACH}", edits, todo=not edits)


def _started(program: Program, call: cst.Call) -> Iterator[Finding]:
    """A server that one process of each machine starts, where no other needs what holds it; else a `TODO`."""
    if program.tree.qualified(call.func) == "subprocess.Popen" or program.alone(call) is not None:
        return  # DDP403 and DDP305 say so of any program
    yield from made_alone(program, call, _STARTED, _USED, _TAKEN)


def _starts(program: Program, call: cst.Call) -> bool:
    """True for a call, or a shell command, that starts a server beside the script."""
    if program.execution.does(call) & Does.SERVE:
        return False
    started = _COMMAND.search(program.effects.command(call))
    return bool(started or _CALLS.fullmatch(program.tree.qualified(call.func)))


RULE = Rule(
    name="server-or-remote-data",
    find=find,
    examples=(
        Example(
            """\
import requests
answer = requests.get(url)
with open("rows.json", "w") as f:
    f.write(answer.text)
trainer.train()
""",
            """\
import requests
answer = run_once(lambda: requests.get(url), in_whole_job=True)
with open("rows.json", "w") as f:
    f.write(answer.text)
trainer.train()
""",
        ),
        Example(
            "import os, subprocess\n"
            'env = {**os.environ, "CUDA_VISIBLE_DEVICES": "1"}\n'
            'server = subprocess.Popen(["vllm", "serve", "Qwen/Qwen3-4B"], env = env)\ntrainer.train()\n',
            reported=True,
        ),
        Example("!CUDA_VISIBLE_DEVICES=1 nohup vllm serve Qwen/Qwen3-4B &\ntrainer.train()\n", reported=True),
        Example(
            """\
import requests
book = {}
book["text"] = requests.get(url).text.strip()
parts = requests.get(url, stream = True).iter_content()
trainer.train()
""",
            "import requests\n"
            "book = {}\n"
            'book["text"] = run_once(lambda: requests.get(url).text.strip(), in_whole_job=True)\n'
            "# TODO[nb2ddp] DDP405: requests.get(...) asks a service in every process, and each may get "
            "other data and be billed for it: fetch it to a file once, before the job\n"
            "parts = requests.get(url, stream = True).iter_content()\n"
            "trainer.train()\n",
        ),
        Example(
            """\
from llama_index.core import Settings
from llama_index.llms.openai import OpenAI
from llama_index.packs.raft_dataset import RAFTDatasetPack
Settings.llm = OpenAI(model = "gpt-4o")
pack = RAFTDatasetPack(file_path = "paper.pdf", llm = Settings.llm)
dataset = pack.run()
trainer.train()
print(Settings.llm.complete("done?"))
""",
            """\
from llama_index.core import Settings
from llama_index.llms.openai import OpenAI
from llama_index.packs.raft_dataset import RAFTDatasetPack
Settings.llm = OpenAI(model = "gpt-4o")
pack = RAFTDatasetPack(file_path = "paper.pdf", llm = Settings.llm)
dataset = run_once(lambda: pack.run(), in_whole_job=True)
trainer.train()
print(Settings.llm.complete("done?"))
""",
        ),
        *(
            Example(
                f"import openai\n{made}for text in texts:\n"
                "    rows.append(client.responses.create(input = text))\ntrainer.train()\n",
                f"import openai\n{made}for text in texts:\n"
                "    rows.append(run_once(lambda: client.responses.create(input = text), in_whole_job=True))\n"
                "trainer.train()\n",
            )
            for made in (
                "client = openai.OpenAI(api_key = key) if key else None\n",
                "if key:\n    client = openai.OpenAI(api_key = key)\nelse:\n    client = None\n",
                "try:\n    client = openai.OpenAI()\nexcept Exception:\n    client = None\n",
            )
        ),
        Example(
            """\
import asyncio, httpx
async def fetch():
    async with httpx.AsyncClient() as client:
        return (await client.get(url)).json()
rows = asyncio.run(fetch())
trainer.train()
""",
            """\
import asyncio, httpx
async def fetch():
    async with httpx.AsyncClient() as client:
        return (await client.get(url)).json()
rows = run_once(lambda: asyncio.run(fetch()), in_whole_job=True)
trainer.train()
""",
        ),
        Example(
            """\
import json, time
from openai import OpenAI
client = OpenAI()
made = []
def judge(text):
    for attempt in range(3):
        try:
            return client.chat.completions.create(model = "gpt-4o", messages = [text]).choices[0].message.content
        except Exception as error:
            time.sleep(2)
def label(text):
    try:
        made.append(client.chat.completions.create(model = "gpt-4o", messages = [text]))
    except Exception as error:
        print(error)
labels = [judge(text) for text in texts]
with open("more.jsonl", "w") as f:
    for text in more:
        f.write(json.dumps(judge(text)))
label("of a text")
trainer.train()
""",
            "import json, time\n"
            "from openai import OpenAI\n"
            "client = OpenAI()\n"
            "made = []\n"
            "def judge(text):\n"
            "    for attempt in range(3):\n"
            "        try:\n"
            '            return client.chat.completions.create(model = "gpt-4o", messages = '
            "[text]).choices[0].message.content\n"
            "        except Exception as error:\n"
            "            time.sleep(2)\n"
            "def label(text):\n"
            "    try:\n"
            "        # TODO[nb2ddp] DDP405: client.chat.completions.create(...) asks a service in every "
            "process, and each may get other data and be billed for it: fetch it to a file once, before the job\n"
            '        made.append(client.chat.completions.create(model = "gpt-4o", messages = [text]))\n'
            "    except Exception as error:\n"
            "        print(error)\n"
            "labels = run_once(lambda: [judge(text) for text in texts], in_whole_job=True)\n"
            'with open("more.jsonl", "w") as f:\n'
            "    for text in more:\n"
            "        f.write(json.dumps(judge(text)))\n"
            'label("of a text")\n'
            "trainer.train()\n",
        ),
        Example(
            """\
from unsloth.dataprep import SyntheticDataKit
generator = SyntheticDataKit.from_pretrained("unsloth/Llama-3.2-3B-Instruct")
generator.prepare_qa_generation(output_folder = "data")
names = generator.chunk_data("data/output/paper.txt")
generator.cleanup()
trainer.train()
""",
            """\
from unsloth.dataprep import SyntheticDataKit
if local_rank == 0:
    generator = SyntheticDataKit.from_pretrained("unsloth/Llama-3.2-3B-Instruct")
PartialState().wait_for_everyone()
generator.prepare_qa_generation(output_folder = "data")
names = generator.chunk_data("data/output/paper.txt")
if local_rank == 0:
    generator.cleanup()
PartialState().wait_for_everyone()
trainer.train()
""",
        ),
        Example(
            """\
from unsloth.dataprep import SyntheticDataKit
generator = SyntheticDataKit.from_pretrained("unsloth/Llama-3.2-3B-Instruct")
rows = Dataset.from_list(generator.rows)
trainer.train()
""",
            """\
from unsloth.dataprep import SyntheticDataKit
# TODO[nb2ddp] DDP405: starts a server in every process, and all but the first find its port taken: start it once, \
before the job
generator = SyntheticDataKit.from_pretrained("unsloth/Llama-3.2-3B-Instruct")
rows = Dataset.from_list(generator.rows)
trainer.train()
""",
        ),
        Example(
            """\
import requests, yaml
host = "127.0.0.1"
requests.get(url, timeout = 2).raise_for_status()
settings = yaml.safe_load(requests.get(f"http://{host}:11000/settings").text)
trainer.train()
"""
        ),
        Example(
            """\
import requests
for url in urls:
    try:
        page = requests.get(url)
        second = requests.get(page.text)
    except Exception as error:
        print(error)
trainer.train()
""",
            f"""\
import requests
for url in urls:
    try:
        page = run_once(lambda: requests.get(url), in_whole_job=True)
        # TODO[nb2ddp] DDP405: requests.get(...) {_EACH}
        second = requests.get(page.text)
    except Exception as error:
        print(error)
trainer.train()
""",
        ),
        Example("import requests\ntrainer.train()\nrequests.post(url, json = {})\n"),
        Example(
            """\
import requests
class Env:
    def step(self, move):
        return requests.post(url + "/step", json = move).json()
env = Env()
def plays(completions, **kwargs):
    return [env.step(each)["reward"] for each in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [plays])
trainer.train()
"""
        ),
        Example(
            """\
import requests
def plays(seed):
    try:
        return requests.post("https://rows.org/reset", json = {"seed": seed}).json()["reward"]
    except Exception as error:
        return 0
def episode(seed):
    plays(seed)
    return plays(seed)
def scored(completions, **kwargs):
    return [episode(1) for text in completions]
first = plays(7)
second = episode(7)
trainer = GRPOTrainer(model = model, reward_funcs = [scored])
trainer.train()
""",
            """\
import requests
def plays(seed):
    try:
        return requests.post("https://rows.org/reset", json = {"seed": seed}).json()["reward"]
    except Exception as error:
        return 0
def episode(seed):
    plays(seed)
    return plays(seed)
def scored(completions, **kwargs):
    return [episode(1) for text in completions]
first = run_once(lambda: plays(7), in_whole_job=True)
second = run_once(lambda: episode(7), in_whole_job=True)
trainer = GRPOTrainer(model = model, reward_funcs = [scored])
trainer.train()
""",
        ),
        Example(
            """\
import requests
def start(n):
    return requests.post("https://rows.org/reset", json = {"id": n}).json()
def rows():
    found = []
    for n in range(6):
        try:
            found.append(start(n)["text"])
        except Exception as error:
            print("left out", n, error)
    return found
def play():
    return model.generate(**start(7), do_sample = True)
def scored(completions, **kwargs):
    return [start(1)["score"] for text in completions]
data = rows()
before = play()
trainer = GRPOTrainer(model = model, reward_funcs = [scored], train_dataset = data)
trainer.train()
print(before, play())
""",
            """\
import requests
def start(n):
    return requests.post("https://rows.org/reset", json = {"id": n}).json()
def rows():
    found = []
    for n in range(6):
        try:
            found.append(start(n)["text"])
        except Exception as error:
            print("left out", n, error)
    return found
def play():
    return model.generate(**start(7), do_sample = True)
def scored(completions, **kwargs):
    return [start(1)["score"] for text in completions]
data = run_once(lambda: rows(), in_whole_job=True)
before = run_once(lambda: play(), in_whole_job=True)
trainer = GRPOTrainer(model = model, reward_funcs = [scored], train_dataset = data)
trainer.train()
print(before, play())
""",
        ),
        Example(
            """\
import requests
def judged(completions, **kwargs):  # each process has its own completions judged
    return [requests.post(url, json = {"text": text}).json()["score"] for text in completions]
trainer = GRPOTrainer(model = model, reward_funcs = [judged])
trainer.train()
"""
        ),
    ),
)
