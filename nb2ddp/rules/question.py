"""DDP311: `input()`, `getpass()` and logins read environment variables instead; `breakpoint()` is removed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.facts.questions import Question
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, left_out, rule, shown
from nb2ddp.syntax.edits import Edit, Remove, Replace
from nb2ddp.syntax.environ import sets_only
from nb2ddp.syntax.tree import Tree


@rule("DDP311", Severity.WARNING)
def question_to_a_person(program: Program) -> Iterator[Finding]:
    asked = [each for each in program.questions if not program.installs.covers(each.call)]
    for question in asked:
        yield _login(program, question) if question.is_login else _asked(program, question)
    for text, variable in program.tokens_to_fill_in.items():
        if not program.installs.covers(text):
            form = program.form(text)
            said = f"{program.tree.text(text) if form is None else form.source} stands for a token"
            yield Finding(text, f"{said}: set {variable} in the environment", (_read(program, text, variable),))


def _login(program: Program, question: Question) -> Finding:
    """Leave a login out: the service's library reads the variable when it is needed."""
    said = f"asks a person for a token; the script leaves it out: set {question.variable} in the environment"
    statement = program.alone(question.call)
    edit = Remove(statement, comments_above=True) if statement is not None else left_out(program, question.call)
    return Finding(question.call, f"{shown(program, question.call)} {said}", (edit,))


def _asked(program: Program, question: Question) -> Finding:
    """Read the variable that the answer is for; nobody answers a process of a job."""
    tree, call, variable = program.tree, question.call, question.variable
    owner = tree.parents[call]
    asked = f"{tree.text(call.func)}() asks a person, and a job has none"
    if isinstance(owner, cst.Expr):
        return Finding(call, f"{asked}; the script leaves it out", (Remove(owner),))
    loop = tree.around(call, cst.While, cst.For)
    told = "the loop gets the same answer each time"
    if isinstance(loop, cst.While) and tree.text(loop.test) in ("True", "1") and not _is_left(tree, loop):
        told = "the loop never ends, and nothing below it runs"
    again = "" if loop is None else f"; {told}: take it out"
    edit = _read(program, call, variable, question.may_skip)
    if question.test is not None and isinstance(edit, Replace):
        edit = _without_test(tree, question.test, edit)
    may = ", or leave it out" if question.may_skip else ""
    todo = loop is not None and isinstance(edit, Replace)
    return Finding(call, f"{asked}: set {variable} in the environment{may}{again * todo}", (edit,), todo=todo)


def _is_left(tree: Tree, loop: cst.While) -> bool:
    """Whether something in a loop, or an error, may end it."""
    leaves = any(tree.within(loop, kind) for kind in (cst.Break, cst.Return, cst.Raise, cst.Yield))
    exits = any(re.search(r"\b(exit|quit|kill)$", tree.text(call.func)) for call in tree.within(loop, cst.Call))
    return leaves or exits or tree.around(loop, cst.Try) is not None


def _read(program: Program, asked: cst.BaseExpression, variable: str, may_skip: bool = False) -> Edit:
    """Read the variable in the place of what asks for it; a line that only sets this variable goes."""
    owner = program.tree.parents[asked]
    if isinstance(owner, cst.Expr) or (  # `%env HF_TOKEN=hf_xxx`
        isinstance(owner, cst.Assign) and sets_only(program.tree, owner, variable)
    ):
        return Remove(owner)
    return Replace(asked, f'os.environ.get("{variable}", "")' if may_skip else f'os.environ["{variable}"]')


def _without_test(tree: Tree, test: cst.If, answer: Replace) -> Replace:
    """Bind an answer without the test whether its variable is set, as nothing else binds it where that is."""
    (start, end), asked = tree.span(answer.node), [*tree.ancestors(answer.node)]
    kept = list[str]()
    for line in test.body.body:
        first, last = tree.span(line)
        if line in asked:
            kept.append(f"{tree.source[first:start]}{answer.text}{tree.source[end:last]}")
        elif not re.match(r"print\(", tree.text(line)):  # what it prints asks for an answer
            kept.append(tree.source[first:last])
    return Replace(test, "\n".join(kept))
