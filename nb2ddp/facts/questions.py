"""Calls that ask a person for a text or a token, and the variables that answer them in a job."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import libcst as cst

from nb2ddp.facts.effects import Does, Effects
from nb2ddp.facts.flow import is_unconditional, stops
from nb2ddp.facts.logins import (
    TOKEN_VARIABLE,
    given_tokens,
    login_of,
    looks_like_placeholder,
    variable_of_command,
)
from nb2ddp.facts.values import resolved
from nb2ddp.notebook.magics import Kind
from nb2ddp.syntax.cells import Source
from nb2ddp.syntax.environ import READS, SHELL_VARIABLES, environ_key
from nb2ddp.syntax.tree import Tree

#: Words in a question whose answer is optional.
_MAY_SKIP = re.compile(r"(?i)\b(skip|optional|leave (it )?(blank|empty)|or (just )?(press|hit) enter|blank for)\b")
#: Negative tests and positive tests: `not x`, `x is None`, `x not in y`; `x`, `x is not None`, `x in y`.
_NO = (cst.Not, cst.Is, cst.NotIn)
_YES = (cst.Name, cst.Call, cst.IsNot, cst.In)
#: The name of a variable, except one that only shows where a notebook runs.
_VARIABLE = re.compile(r"\b(?!KAGGLE_KERNEL|COLAB_)[A-Z][A-Z0-9]*_[A-Z0-9_]*[A-Z0-9]\b")


@dataclass(frozen=True)
class Question:
    """A call that asks a person, which nobody can answer in a job.

    Attributes:
        call: the call that asks.
        variable: the environment variable with the answer.
        is_login: it logs in to a service whose library reads the variable.
        may_skip: the notebook states or shows that it continues without an answer.
        test: the test whether this variable is set, if only its branch binds the answer.
    """

    call: cst.Call
    variable: str
    is_login: bool
    may_skip: bool
    test: cst.If | None = None


def questions(source: Source, effects: Effects) -> list[Question]:
    """Return all live calls that ask a person, in order.

    Args:
        source: the notebook's code.
        effects: what its calls do.
    """
    tree = source.tree
    asking = [call for call in tree.live(cst.Call) if effects.of(call) & Does.PROMPT]
    found = list[Question]()
    for call in asking:
        variable = _variable(tree, call, asking)
        found.append(Question(call, variable, False, _may_skip(tree, call), _test(tree, call, variable)))
    for call in tree.live(cst.Call):
        service, token = login_of(tree, call)
        if (form := source.form(call)) is not None and form.kind is Kind.SHELL:
            service = variable_of_command(form.command)
        if service is not None and token is None:
            found.append(Question(call, service, is_login=True, may_skip=True))
    return sorted(found, key=lambda each: tree.start(each.call))


def _may_skip(tree: Tree, call: cst.Call) -> bool:
    """Return whether the notebook continues without an answer: `if not key: key = None`, `input() or "me"`."""
    answer = tree.extended(call, cst.Attribute, cst.Call)
    bound = tree.parents[answer]
    uses = [answer, *(tree.bound_uses(bound) if isinstance(bound, cst.Assign) else ())]
    tops = [tree.extended(use, cst.UnaryOperation, cst.NamedExpr) for use in uses]
    return any(_MAY_SKIP.search(text) for text in _wording(tree, call)) or any(
        (isinstance(test, cst.If) and test.test is top and not stops(tree, test))
        or (isinstance(test, cst.IfExp) and test.test is top)
        or (isinstance(test, cst.BooleanOperation) and test.left is top)
        for top, test in ((top, tree.parents[top]) for top in tops)
    )


def _test(tree: Tree, call: cst.Call, variable: str) -> cst.If | None:
    """Return the test that asks a question if its variable is not set; None if other code also binds the answer."""
    test = tree.around(call, cst.If)
    if test is None or test.orelse is not None or tree.parents[test] is not tree.module:
        return None
    start, end = tree.span(test)
    bound = [each.offset for name in tree.binds(test) for each in tree.bindings(name)]
    is_own = bool(bound) and all(start <= offset < end for offset in bound)
    is_plain = all(isinstance(each, (cst.SimpleStatementLine, cst.BaseSmallStatement)) for each in test.body.body)
    return test if is_own and is_plain and variable in _missing(tree, call) else None


def _missing(tree: Tree, call: cst.Call) -> list[str]:
    """Return the texts that enclosing tests find missing: `X` of `if "X" not in os.environ:`, of `if x: ... else:`."""
    found: list[str] = []
    inner: cst.CSTNode = call
    for above in tree.ancestors(call):
        if isinstance(above, (cst.If, cst.IfExp)) and inner is not above.test:
            test: cst.CSTNode = above.test
            test = test.comparisons[0] if isinstance(test, cst.Comparison) else test
            test = getattr(test, "operator", test)
            if isinstance(test, _NO if inner is above.body else _YES):
                found += [text for part in tree.backward_slice(above.test) for text in tree.texts(part)]
        inner = above
    return found


def _wording(tree: Tree, call: cst.Call) -> list[str]:
    """Return the texts of a question."""
    texts = tree.texts(call)
    return [*texts, *(str(tree.literal(each.value)) for each in call.args)]


def _variable(tree: Tree, call: cst.Call, asking: list[cst.Call]) -> str:
    """Return the variable for an answer: one that the notebook sets or reads with it, one in the question, or one
    made from its name."""
    target = _target(tree, call, asking)
    uses, targets = list[cst.CSTNode]([call]), list[object]()
    if (assign := tree.around(call, cst.Assign)) is not None:
        targets += [environ_key(tree, each.target) for each in assign.targets]
        uses += [*tree.bound_uses(assign), *(each for each in tree.within(assign, cst.Call) if each is not call)]
    for use in uses:
        taken = tree.around(use, cst.Assign)  # also for `answer.strip()`
        if taken is not None and taken.value is tree.extended(use, cst.Attribute, cst.Call):
            targets += [environ_key(tree, each.target) for each in taken.targets]
        if isinstance(use, cst.Call) and use.args and READS.fullmatch(tree.qualified(use.func)):
            targets.append(tree.literal(use.args[0].value))
    named = [match[0] for text in (*_wording(tree, call), *_missing(tree, call)) for match in _VARIABLE.finditer(text)]
    login = next((given for above in tree.inside_statement(call) if (given := login_of(tree, above)[0])), None)
    own = target.value.upper() if isinstance(target, cst.Name) else f"ANSWER_{asking.index(call) + 1}"
    own = f"{own}_ANSWER" if own in SHELL_VARIABLES else own
    return next((each for each in (*targets, *named, login) if isinstance(each, str)), own)


def _target(tree: Tree, call: cst.Call, asking: list[cst.Call]) -> cst.CSTNode | None:
    """Return the target to which the answer is assigned, or the keyword with which it is passed; None if unknown."""
    for above in tree.ancestors(call):
        if isinstance(above, cst.Arg) and above.keyword is not None:
            return above.keyword
        if isinstance(above, cst.Assign):
            here = [each for each in tree.within(above, cst.Call) if each in asking]
            return above.targets[0].target if len(here) == 1 else None
        if isinstance(above, (cst.AnnAssign, cst.NamedExpr)):
            return above.target
    return None


def tokens_to_fill_in(
    tree: Tree, effects: Effects, settings: Iterable[tuple[cst.CSTNode, object, object]]
) -> dict[cst.BaseExpression, str]:
    """Return the placeholders for tokens that the notebook always passes, with the variables that hold the tokens.

    For a `%env`, the placeholder is the call that replaces the magic.

    Args:
        tree: the notebook's code.
        effects: what its calls do.
        settings: the node that sets a variable, the variable, and the value.
    """
    found = dict[cst.BaseExpression, str]()
    set_here = [each for each in settings if tree.is_live(each[0])]
    is_off = any(name in ("WANDB_MODE", "WANDB_DISABLED") for _, name, _ in set_here)  # then wandb needs no key
    for node, name, value in set_here:
        is_open = isinstance(value, str) and looks_like_placeholder(value.strip("'\"")) and is_unconditional(tree, node)
        is_named = isinstance(name, str) and TOKEN_VARIABLE.fullmatch(name)
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and is_named and is_open:
            found[node] = str(name)
    for given, variable in given_tokens(tree, effects):
        if (text := _placeholder(tree, given)) is not None:
            found[text] = variable
    return {text: variable for text, variable in found.items() if not (is_off and variable == "WANDB_API_KEY")}


def _placeholder(tree: Tree, token: cst.BaseExpression) -> cst.SimpleString | None:
    """Return the text of a token if it is a placeholder that is always passed; else None."""
    text = resolved(tree, token)
    is_sure = is_unconditional(tree, token) and (text is token or tree.is_top_level(text))
    if not (is_sure and isinstance(text, cst.SimpleString)):
        return None
    return text if looks_like_placeholder(tree.literal(text)) else None
