"""DDP307: a cell's last expression that is only shown goes."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Remove
from nb2ddp.syntax.tree import Tree

#: Methods that return something to look at and change nothing.
_SHOWING_METHODS = frozenset(
    "apply_chat_template batch_decode capitalize copy count decode describe dropna dtypes endswith format "
    "get groupby head isna items join keys lower lstrip mean nunique num_parameters replace rstrip sample "
    "split startswith std strip sum tail title to_dict to_pandas to_string tolist unique upper "
    "value_counts values".split()
)
_SHOWING_FUNCTIONS = frozenset(
    "abs dict dir float hasattr int isinstance len list max min repr round set sorted str sum tuple type".split()
)


def find(program: Program) -> Iterator[Finding]:
    for cell in program.code_cells:
        last = program.last_statement(cell)
        if (
            isinstance(last, cst.Expr)
            and not isinstance(last.value, (cst.SimpleString, cst.ConcatenatedString, cst.Ellipsis))
            and is_only_shown(program.tree, last.value)
        ):
            yield Finding(last, "the cell's last expression is only shown", edits=(Remove(last),))


def is_only_shown(tree: Tree, node: cst.CSTNode) -> bool:
    """True for an expression without an effect: no call but of methods and functions known to have none."""
    acts = any(tree.within(node, kind) for kind in (cst.Await, cst.NamedExpr, cst.Yield))
    return not acts and all(_only_returns(tree, call) for call in tree.within(node, cst.Call))


def _only_returns(tree: Tree, call: cst.Call) -> bool:
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value in _SHOWING_METHODS
    return isinstance(call.func, cst.Name) and tree.qualified(call.func) in _SHOWING_FUNCTIONS


RULE = Rule(
    code="DDP307",
    name="value-only-shown",
    summary="A cell's last expression goes where showing it was its only effect.",
    why="Jupyter shows the value of a cell's last expression; a script computes it for nobody. A call with an effect "
    "(`tokenizer.save_pretrained(...)`, `PatchDPOTrainer()`) stays.",
    find=find,
    examples=(
        Example("dataset = load()\ndataset[0] # the first row\n", "dataset = load()\n# the first row\n"),
        Example(
            "outputs = model.generate(**inputs)\ntokenizer.batch_decode(outputs)\n",
            "outputs = model.generate(**inputs)\n",
        ),
        Example('tokenizer.save_pretrained("lora")\n'),
        Example('"""A remark."""\n'),
        Example("dataset[0];\nx = 1\n"),
    ),
)
