"""DDP301: `%env X=1 # why` becomes `os.environ["X"] = "1"  # why`, in every process.

A script has no magics. IPython stores the comment as part of the value (`'1 # why'`), which programs that test for
`"1"` do not recognise; the script stores the value without it.
"""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.facts.environment import ENV_MAGICS, assignment
from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import parse, trailing_comment
from nb2ddp.notebook.magics import Kind
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Remove, Replace


def find(program: Program) -> Iterator[Finding]:
    for call, form in program.forms_of(Kind.LINE_MAGIC):
        if form.name not in ENV_MAGICS or call in program.tokens_to_fill_in:  # DDP311 says so
            continue
        statement = program.alone(call)
        pair = assignment(form.text)
        if pair is None:
            shown = f'os.environ["{form.text}"]' if form.text else "dict(os.environ)"
            edit = Replace(call, shown) if statement is None else Remove(statement, comment=trailing_comment(form.text))
            yield Finding(call, f"%{form} only shows the environment; the script leaves it out", (edit,))
            continue
        name, value, comment = pair
        code = f'os.environ["{name}"] = {parse(value, program.tree.bound_at(call)).expression}'
        said = f"%{form.name} works in a notebook only; the script sets the variable in Python"
        yield Finding(call, said, (Replace(call, f"{code}  {comment}".rstrip()),))


RULE = Rule(
    name="env-magic",
    find=find,
    examples=(
        Example(
            "%env UNSLOTH_RETURN_LOGITS = 1 # needed here\n%set_env HF_HOME /data/hf\n",
            'os.environ["UNSLOTH_RETURN_LOGITS"] = "1"  # needed here\nos.environ["HF_HOME"] = "/data/hf"\n',
        ),
        Example("%env\nx = 1\n", "x = 1\n"),
        Example("env = 1\n"),
    ),
)
