"""DDP301: `%env X=1 # why` becomes `os.environ["X"] = "1"  # why`, in every process."""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.facts.environment import ENV_MAGICS, assignment
from nb2ddp.facts.program import Program
from nb2ddp.facts.shell import parse, trailing_comment
from nb2ddp.notebook.magics import Kind
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import Remove, Replace


@rule("DDP301")
def env_magic(program: Program) -> Iterator[Finding]:
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
