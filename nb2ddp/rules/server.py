"""DDP405: a server that every process would start, or ask."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.execution import Phase
from nb2ddp.facts.program import Program
from nb2ddp.notebook.magics import Kind
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule

_COMMAND = re.compile(
    r"\b(vllm serve|ollama serve|uvicorn|gunicorn|sglang|llama-server|text-generation-launcher|http\.server)\b|--port\b"
)
_CALLS = re.compile(r"uvicorn\.run|(http\.server|socketserver)\.\w*Server|.*\bSyntheticDataKit\.from_pretrained")


def find(program: Program) -> Iterator[Finding]:
    tree, execution = program.tree, program.execution
    for call in execution.calls(phase=Phase.TOGETHER):
        starts, asks = _starts(program, call), execution.does(call) & Does.ASK
        if not (starts or asks) or program.placement.runs_alone_as_placed(call):
            continue
        if starts:
            yield Finding(
                call,
                "starts a server in every process, and all but the first find its port taken: start it once, before"
                " the job",
                todo=True,
            )
        elif not (program.rewards.is_only_here(call) or _is_only_written(program, call)):
            yield Finding(
                call,
                f"{tree.qualified(call.func)} is asked by every process: each may get other data, and pay for it; fetch"
                " it once, into a file, before the job",
                todo=True,
            )


def _is_only_written(program: Program, call: cst.Call) -> bool:
    """True for an answer that only one process looks at, to write it into a file from which all read."""
    tree = program.tree
    assign = next((above for above in tree.ancestors(call) if isinstance(above, cst.Assign)), None)
    target = assign.targets[0].target if assign is not None else None
    uses = tree.loads(target.value) if isinstance(target, cst.Name) else []
    taken = [use for use in uses if (binding := tree.binding(use)) is not None and binding.node is assign]
    return bool(taken) and all(program.placement.runs_alone_as_placed(use) for use in taken)


def _starts(program: Program, call: cst.Call) -> bool:
    """True for a call, or a shell command, that starts a server."""
    form = program.form(call)
    if form is not None:
        return form.kind is Kind.SHELL and bool(_COMMAND.search(form.text))
    if program.execution.does(call) & Does.RUN:
        words = " ".join(str(s.evaluated_value) for s in program.tree.within(call, cst.SimpleString))
        if _COMMAND.search(words):
            return True
    return bool(_CALLS.fullmatch(program.tree.qualified(call.func)))


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
            """\
import requests
answer = requests.get(url)
with open("rows.json", "w") as f:
    f.write(answer.text)
rows = load_dataset("json", data_files = "rows.json")
trainer.train()
"""
        ),
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
