"""DDP405: a server that every process would start, or ask."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.program import Program
from nb2ddp.notebook.magics import Kind
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule

_COMMAND = re.compile(
    r"\b(vllm serve|ollama serve|uvicorn|gunicorn|sglang|llama-server|text-generation-launcher|http\.server)\b|--port\b"
)
_CALLS = re.compile(
    r"uvicorn\.run|(http\.server|socketserver)\.\w*Server|.*\bSyntheticDataKit\.from_pretrained|.*\.launch_openenv"
)
_REMOTE = re.compile(
    r"(\w+\.)*(openai|anthropic|cohere|litellm|generativeai|groq|mistralai|ollama)(\.\w+)+"
    r"|(requests|httpx)\.(get|post|put|request|stream|(Async)?Client|Session)|urllib\.request\.urlopen"
    r"|aiohttp\.(ClientSession|request)|huggingface_hub\.(Async)?InferenceClient"
)


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in tree.of(cst.Call):
        if not tree.is_live(call) or program.installs.covers(call) or not program.execution.runs(call):
            continue
        if program.placement.runs_alone(call) or _is_written(program, call):
            continue
        name = tree.qualified(call.func)
        words = " ".join(str(s.evaluated_value) for s in tree.within(call, cst.SimpleString))
        starts = name in ("subprocess.Popen", "subprocess.run", "os.system") and _COMMAND.search(words)
        if starts or _CALLS.fullmatch(name):
            yield Finding(
                call,
                "starts a server before training: two processes of a machine cannot share its port; start it once,"
                " before the job",
                todo=True,
            )
        elif _REMOTE.fullmatch(name):
            yield Finding(
                call,
                f"{name} is asked by every process: each may get other data, and pay for it; fetch it once, into a"
                " file, before the job",
                todo=True,
            )
    for call, form in program.forms_of(Kind.SHELL):
        if _COMMAND.search(form.text) and not program.installs.covers(call) and program.execution.runs(call):
            yield Finding(
                call,
                "starts a server before training: start it once, before the job, and stop it afterwards",
                todo=True,
            )


def _is_written(program: Program, call: cst.Call) -> bool:
    """True inside `with open(...)` for writing, which one process goes through."""
    opened = [
        item.item for above in program.tree.ancestors(call) if isinstance(above, cst.With) for item in above.items
    ]
    return any(isinstance(each, cst.Call) and program.execution.does(each) & Does.ACT for each in opened)


RULE = Rule(
    code="DDP405",
    name="server-or-remote-data",
    summary="A server started, or a remote service asked for data, before training gets a `TODO` above it.",
    why="A port can be taken once a machine, and a remote answer may differ from process to process: the processes"
    " then train on different data, silently.",
    find=find,
    severity=Severity.WARNING,
    examples=(
        Example(
            "import requests\nrows = requests.get(url).json()\ntrainer.train()\n",
            "import requests\n# TODO[nb2ddp] DDP405: requests.get is asked by every process: each may get other"
            " data, and pay for it; fetch it once, into a file, before the job\nrows = requests.get(url).json()\n"
            "trainer.train()\n",
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
    # TODO[nb2ddp] DDP405: httpx.AsyncClient is asked by every process: each may get other data, and pay for it; \
fetch it once, into a file, before the job
    async with httpx.AsyncClient() as client:
        return (await client.get(url)).json()
rows = asyncio.run(fetch())
trainer.train()
""",
        ),
        Example("import requests\ntrainer.train()\nrequests.post(url, json = {})\n"),
    ),
)
