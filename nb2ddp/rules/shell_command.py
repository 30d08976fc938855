"""DDP305: shell commands become `subprocess.run`, once a machine before training."""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.edits import Remove, Replace
from nb2ddp.ipython import Kind
from nb2ddp.once import WAIT, on_main_process, once_a_machine
from nb2ddp.program import Finding, Program
from nb2ddp.rule import Example, Rule
from nb2ddp.rules.installs import removed_statements
from nb2ddp.shell import is_install, only_shows, parse, without_installs


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    removed = removed_statements(program)
    for call, form in program.forms_of(Kind.SHELL):
        statement = program.alone(call)
        if is_install(form.text) or any(above in removed for above in (call, *tree.ancestors(call))):
            continue
        text = without_installs(form.text)
        shown = text if len(text) < 60 else text[:57] + "..."
        message = f"!{shown} is IPython's"
        if statement is None:
            yield Finding(
                call, message, edits=(Replace(call, parse(text, tree).lines),), needs=frozenset({"subprocess"})
            )
        elif not text or text.startswith("#"):
            yield Finding(call, message, edits=(Remove(statement),))
        elif only_shows(text):
            yield Finding(
                call,
                message,
                edits=(Replace(statement, parse(text, tree).run), *on_main_process(program, statement)),
                needs=frozenset({"subprocess"}),
            )
        else:
            guard = once_a_machine(program, statement)
            yield Finding(
                call,
                message,
                edits=(Replace(statement, parse(text, tree).run), *guard),
                needs=frozenset({"subprocess"}) | (WAIT if guard else frozenset()),
            )


RULE = Rule(
    code="DDP305",
    name="shell-command",
    summary="`!command` becomes `subprocess.run`. Before training it runs on each machine's first process and the others"
    " wait; after training the main process is alone.",
    why="`!` is IPython's. Two processes that clone or download into one folder at once break each other's files. "
    "`{name}` and `$name` are filled in where the notebook binds the name; every other brace and dollar is the shell's.",
    find=find,
    examples=(
        Example(
            """\
from trl import SFTTrainer
name = "data.txt"
!wget -q https://example.com/{name} -O {name}
!mkdir -p out/{a,b}
lines = !cat $name
trainer = SFTTrainer(model)
trainer.train()
!ls out
""",
            """\
from trl import SFTTrainer
name = "data.txt"
if local_rank == 0:
    subprocess.run(f"wget -q https://example.com/{name} -O {name}", shell=True)
    subprocess.run("mkdir -p out/{a,b}", shell=True, executable="/bin/bash")
PartialState().wait_for_everyone()
lines = subprocess.run(f"cat {name}", shell=True, capture_output=True, text=True).stdout.splitlines()
trainer = SFTTrainer(model)
trainer.train()
subprocess.run("ls out", shell=True)
""",
        ),
        Example('x = "!ls"\ny = not x != 3\n'),
    ),
)
