"""Calls that ask a person for a text or a token, and the variables that answer them in a job."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from nb2ddp.facts.effects import Does, Effects
from nb2ddp.facts.flow import stops
from nb2ddp.facts.logins import token_of, variable_of, variable_of_command
from nb2ddp.notebook.magics import Kind
from nb2ddp.syntax.cells import Source
from nb2ddp.syntax.environ import environ_key
from nb2ddp.syntax.tree import Tree

#: What a question says of an answer that may be left out.
_MAY_SKIP = re.compile(r"(?i)\b(skip|optional|leave (it )?(blank|empty)|or (just )?(press|hit) enter|blank for)\b")
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]*[A-Z0-9]\b")
#: What reads a variable of the environment.
READS = re.compile(r"os\.(environ\.get|getenv)")


@dataclass(frozen=True)
class Question:
    """A call that asks a person, who is not there in a job.

    Attributes:
        call: what asks.
        variable: the environment variable that answers.
        is_login: it logs in to a service, whose library reads the variable by itself.
        may_skip: the notebook goes on without an answer.
    """

    call: cst.Call
    variable: str
    is_login: bool
    may_skip: bool


def questions(source: Source, effects: Effects) -> list[Question]:
    """Every live call that asks a person, in order.

    Args:
        source: the notebook's code.
        effects: what its calls do.
    """
    tree = source.tree
    asking = [call for call in tree.live(cst.Call) if effects.of(call) & Does.PROMPT]
    found = [_question(tree, call, asking) for call in asking]
    for call in tree.live(cst.Call):
        variable = variable_of(tree, call)
        if (form := source.form(call)) is not None and form.kind is Kind.SHELL:
            variable = variable_of_command(form.command)
        if variable is not None and token_of(tree, call) is None:
            found.append(Question(call, variable, is_login=True, may_skip=True))
    return sorted(found, key=lambda each: tree.start(each.call))


def _question(tree: Tree, call: cst.Call, asking: list[cst.Call]) -> Question:
    variable = _variable(tree, call, asking)
    said = [*_said(tree, call), *_printed_above(tree, call)]
    may_skip = any(_MAY_SKIP.search(text) for text in said) or _is_tested(tree, call)
    return Question(call, variable, is_login=False, may_skip=may_skip)


def _is_tested(tree: Tree, call: cst.Call) -> bool:
    """Whether the notebook asks if there is an answer, and goes on without one: `if not key: key = None`."""
    answer = tree.extended(call, cst.Attribute, cst.Call)  # `getpass().strip()`
    bound = tree.parents[answer]
    uses: list[cst.CSTNode] = [answer]
    if isinstance(bound, (cst.Assign, cst.AnnAssign, cst.NamedExpr)):
        uses += [bound, *tree.bound_uses(bound)]
    goes_on = [_goes_on(tree, use) for use in uses]
    return True in goes_on and False not in goes_on


def _goes_on(tree: Tree, answer: cst.CSTNode) -> bool | None:
    """Whether the notebook goes on without an answer where it tests it; None where it does not."""
    inner = tree.extended(answer, cst.Attribute, cst.Call)
    test = tree.extended(inner, cst.UnaryOperation, cst.BooleanOperation)
    above = tree.parents[test]
    if getattr(above, "test", None) is not test:
        return True if isinstance(test, cst.BooleanOperation) and test.left is inner else None
    if isinstance(above, cst.If):
        return not stops(tree, above)
    return isinstance(above, cst.IfExp)  # not: `assert key`, `while not key`


def _said(tree: Tree, call: cst.Call) -> list[str]:
    """What a question says."""
    texts = tree.texts(call)
    return [*texts, *(str(tree.literal(each.value)) for each in call.args)]


def _printed_above(tree: Tree, call: cst.Call) -> list[str]:
    """What is printed on the line above a question."""
    statement = tree.statement(call)
    lines = list(getattr(tree.parents[statement], "body", ()))
    above = lines[lines.index(statement) - 1] if statement in lines[1:] else None
    printed = (
        [] if above is None else [each for each in tree.within(above, cst.Call) if tree.text(each.func) == "print"]
    )
    return [text for each in printed for text in _said(tree, each)]


def _variable(tree: Tree, call: cst.Call, asking: list[cst.Call]) -> str:
    """The variable for an answer: one that the notebook sets or reads with it, or names in the question, or its own."""
    target = _target(tree, call, asking)
    uses, targets = list[cst.CSTNode]([call]), list[object]()
    if (assign := tree.around(call, cst.Assign)) is not None:
        targets += [environ_key(tree, each.target) for each in assign.targets]
        uses += [*tree.bound_uses(assign), *(each for each in tree.within(assign, cst.Call) if each is not call)]
    for use in uses:
        taken = tree.around(use, cst.Assign)  # of `answer.strip()` too
        if taken is not None and taken.value is tree.extended(use, cst.Attribute, cst.Call):
            targets += [environ_key(tree, each.target) for each in taken.targets]
        if isinstance(use, cst.Call) and use.args and READS.fullmatch(tree.qualified(use.func)):
            targets.append(tree.literal(use.args[0].value))
    tests = [tree.text(above.test) for above in tree.ancestors(call) if isinstance(above, cst.If)]
    named = [match[0] for text in (*_said(tree, call), *tests) for match in _VARIABLE.finditer(text)]
    login = next((given for above in tree.inside_statement(call) if (given := variable_of(tree, above))), None)
    own = target.value.upper() if isinstance(target, cst.Name) else f"ANSWER_{asking.index(call) + 1}"
    return next((each for each in (*targets, *named, login) if isinstance(each, str)), own)


def _target(tree: Tree, call: cst.Call, asking: list[cst.Call]) -> cst.CSTNode | None:
    """What the answer is assigned to, or the keyword it is passed under."""
    for above in tree.ancestors(call):
        if isinstance(above, cst.Arg) and above.keyword is not None:
            return above.keyword
        if isinstance(above, cst.Assign):
            here = [each for each in tree.within(above, cst.Call) if each in asking]
            return above.targets[0].target if len(here) == 1 else None
        if isinstance(above, (cst.AnnAssign, cst.NamedExpr)):
            return above.target
    return None
