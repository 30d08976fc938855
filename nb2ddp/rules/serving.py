"""DDP322: servers and pages at which a script would stop."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.handed import handed_on
from nb2ddp.facts.program import Program
from nb2ddp.facts.services import called_on
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Edit, SetKeyword
from nb2ddp.syntax.tree import Function, keyword, method

_BESIDE = re.compile(r"threading\.Thread|multiprocessing(\.\w+)*\.Process")
_SERVES = "serves until a person stops it"
_NO_TRAINING = f"{_SERVES}, so no training begins: take it out, or start it as a program of its own, before the job"
_LATE = f"{_SERVES}, and what stands below waits for that: move it to the end of the notebook"
_LAST = f"{_SERVES}, so the job does not end by itself"
_PAGE = "keeps a script until the page is closed, and a notebook goes on; in the script what stands below runs, and the"
_PAGE += " page ends with the script"
_EACH = "starts a server in every process, and all but the first find its port taken; in the script one process of each"
_EACH += " machine does"


def find(program: Program) -> Iterator[Finding]:
    beside = _served_beside(program)
    for call in program.execution.calls(does=Does.SERVE):
        if program.execution.phase(call) and program.tree.owner(call) not in beside:
            yield from _found(program, call)
    for starts in dict.fromkeys(each for calls in beside.values() for each in calls):
        if program.execution.runs(starts) and (edits := program.placement.once(starts)):
            yield Finding(starts, f"{program.tree.text(starts.func)}(...) {_EACH}", edits)


def _served_beside(program: Program) -> dict[Function | None, list[cst.Call]]:
    """The functions that serve in a thread or a process of their own, with the calls that start these."""
    tree, found = program.tree, dict[Function | None, list[cst.Call]]()
    for call in program.execution.calls(_BESIDE):
        target = keyword(call, "target")
        functions = handed_on(tree, [target.value])[0] if target is not None else []
        serving = [each for each in functions if program.execution.has(each, Does.SERVE)]
        owner = tree.parents[call]
        named = tree.bound_uses(owner) if isinstance(owner, cst.Assign) else [call]
        starts = [each for use in named if (each := called_on(tree, use)) is not None and method(each) == "start"]
        found |= dict.fromkeys(serving, starts)
        if target is not None and program.effects.is_server(target.value):
            found[None] = [*found.get(None, []), *starts]
    return found


def _found(program: Program, call: cst.Call) -> Iterator[Finding]:
    """A server at its place; a page of Gradio's, which opens in a notebook and goes on."""
    tree = program.tree
    places = tree.run_from(call, tree.uses)
    end = max((tree.span(tree.top_statement(place))[1] for place in places), default=tree.start(call))
    follows = any(tree.is_live(each) and tree.start(each) >= end for each in tree.module.body)
    name = tree.text(call.func)
    form = program.form(call)
    name = f"!{form.command}" if form is not None else f"{name}(...)"
    together = program.execution.runs(call)
    if follows and method(call) == "launch":
        yield Finding(call, f"{name} {_PAGE}", _opened(program, call))
    elif together or follows:
        yield Finding(call, f"{name} {_NO_TRAINING if together else _LATE}", todo=True)
    else:
        yield Finding(call, f"{name} {_LAST}", severity=Severity.WARNING)


def _opened(program: Program, call: cst.Call) -> tuple[Edit, ...]:
    """A page that the script opens, on the main process, and goes on."""
    edits: list[Edit] = [SetKeyword(call, "prevent_thread_lock", "True")]
    if (debug := keyword(call, "debug")) is not None and program.tree.literal(debug.value) is not False:
        edits.append(SetKeyword(call, "debug", "False"))  # which waits as well (gradio, Blocks.launch)
    is_alone = isinstance(program.tree.parents[call], cst.Expr)
    return (*edits, *(program.placement.on_main_process(call) if is_alone else ()))


RULE = Rule(
    code="DDP322",
    name="served-until-stopped",
    summary="A server or page that runs until a person stops it is reported or no longer blocks the script.",
    why=(
        "A script stops at a server that does not return: nothing below it trains or is saved. Gradio's `launch()` "
        "returns in a notebook, but in a script only with `prevent_thread_lock=True` (gradio 5, `Blocks.launch`), "
        "which the script adds. One process of each machine starts a server that runs in a thread, because a port "
        "can be used only once."
    ),
    find=find,
    examples=(
        Example(
            """\
import gradio as gr
with gr.Blocks() as demo:
    gr.Markdown("rows")
demo.launch(share = True)
trainer.train()
page = gr.Interface(fn = answer, inputs = "text", outputs = "text")
page.queue().launch(debug = True)
model.save_pretrained("model")
""",
            """\
import gradio as gr
with gr.Blocks() as demo:
    gr.Markdown("rows")
if is_main_process:
    demo.launch(share = True, prevent_thread_lock = True)
trainer.train()
page = gr.Interface(fn = answer, inputs = "text", outputs = "text")
page.queue().launch(debug = False, prevent_thread_lock = True)
model.save_pretrained("model")
""",
        ),
        Example(
            """\
import threading
import uvicorn
from flask import Flask
app = Flask("rows")
server = threading.Thread(target = app.run, kwargs = {"port": 8000}, daemon = True)
server.start()
threading.Thread(target = lambda: uvicorn.run(other, port = 8001)).start()
trainer.train()
""",
            """\
import threading
import uvicorn
from flask import Flask
app = Flask("rows")
server = threading.Thread(target = app.run, kwargs = {"port": 8000}, daemon = True)
if local_rank == 0:
    server.start()
    threading.Thread(target = lambda: uvicorn.run(other, port = 8001)).start()
PartialState().wait_for_everyone()
trainer.train()
""",
        ),
        Example(
            """\
from flask import Flask
app = Flask("rows")
app.run(port = 8000)
trainer.train()
app.run(port = 8000)
model.save_pretrained("model")
""",
            """\
from flask import Flask
app = Flask("rows")
# TODO[nb2ddp] DDP322: app.run(...) serves until a person stops it, so no training begins: take it out, or start it as \
a program of its own, before the job
app.run(port = 8000)
trainer.train()
# TODO[nb2ddp] DDP322: app.run(...) serves until a person stops it, and what stands below waits for that: move it to \
the end of the notebook
app.run(port = 8000)
model.save_pretrained("model")
""",
        ),
        Example("import uvicorn\ntrainer.train()\nuvicorn.run(app, port = 8000)\n", reported=True),
        Example("trainer.train()\nrocket.launch()\nshop.run()\nmodel.save_pretrained('model')\n"),
    ),
)
