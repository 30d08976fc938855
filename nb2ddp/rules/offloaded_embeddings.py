"""DDP106: If embeddings are trained, `get_peft_model` gets an offload folder for each process."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.flow import reached
from nb2ddp.facts.handed import added
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.arguments import passed, set_argument
from nb2ddp.syntax.tree import Tree

FOLDER = "_unsloth_temporary_saved_buffers"
OWN = f"f\"{FOLDER}/{{os.environ.get('RANK', 0)}}\""
#: What Unsloth sets aside where it is trained.
_EMBEDDINGS = frozenset({"embed_tokens", "lm_head"})

_MESSAGE = (
    "Unsloth offloads trained embeddings to disk, all processes to one file; the script gives each its own folder"
)


@rule("DDP106")
def offloaded_into_one_file(program: Program) -> Iterator[Finding]:
    tree = program.tree
    adding = [call for call in tree.live(cst.Call) if tree.qualified(call.func).endswith("add_new_tokens")]
    for call in tree.live(cst.Call):
        if not tree.text(call.func).endswith("get_peft_model") or passed(tree, call, "temporary_location") is not None:
            continue
        checkpointing = passed(tree, call, "use_gradient_checkpointing")
        unsloth = checkpointing is None or tree.literal(checkpointing.value) in ("unsloth", ...)
        has_new_tokens = any(tree.start(other) < tree.start(call) for other in adding)
        if unsloth and (has_new_tokens or trains_embeddings(tree, call)):
            yield Finding(call, _MESSAGE, (set_argument(tree, call, "temporary_location", OWN),))


def trains_embeddings(tree: Tree, call: cst.Call) -> bool:
    """True for adapters that may come with trained embeddings or a trained head.

    The names of their modules are looked for in all that the notebook binds the names to, or adds to their lists, but
    for the branches that a constant rules out: `[...] if WHOLE else []`.
    """
    given = [passed(tree, call, name) for name in ("target_modules", "modules_to_save")]
    parts = reached([each.value for each in given if each is not None], lambda node: _sources(tree, node))
    strings = [each for part in parts for each in tree.within(part, cst.SimpleString) if tree.is_live(each)]
    return any(tree.content(each) in _EMBEDDINGS and not tree.is_ruled_out(each) for each in strings)


def _sources(tree: Tree, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What the names in an expression are bound to, and what is added to their lists."""
    for name in tree.within(node, cst.Name):
        bound = tree.definition(name)
        for binding in tree.bindings(name.value, bound) if bound is not None else ():
            if isinstance(binding.node, (cst.Assign, cst.AnnAssign, cst.AugAssign)) and binding.node.value is not None:
                yield binding.node.value
        yield from added(tree, name.value)
