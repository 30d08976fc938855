"""DDP106: If embeddings are trained, `get_peft_model` gets an offload folder for each process.

`get_peft_model` writes embeddings that are trained (in `target_modules`, in `modules_to_save`, or with new tokens) to a
file below the working directory and maps it into memory (unsloth/models/_utils.py, `offload_to_disk`). All processes of
a job would write to one file while others read it, and creating its folder fails if two try at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.flow import reached
from nb2ddp.facts.handed import added
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.arguments import passed, set_argument
from nb2ddp.syntax.tree import Tree

FOLDER = "_unsloth_temporary_saved_buffers"
OWN = f"f\"{FOLDER}/{{os.environ.get('RANK', 0)}}\""
#: What Unsloth sets aside where it is trained.
_EMBEDDINGS = frozenset({"embed_tokens", "lm_head"})

_MESSAGE = (
    "Unsloth offloads trained embeddings to disk, all processes to one file; the script gives each its own folder"
)


def find(program: Program) -> Iterator[Finding]:
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


_SAVED = """\
model = FastLanguageModel.get_peft_model(
    model,
    target_modules=['q_proj'],
    modules_to_save=['lm_head']
)
"""

_ADDED = """\
TRAIN_HEAD = {}
modules = ["q_proj", "v_proj"]
if TRAIN_HEAD:
    modules += ["lm_head"]
model = FastLanguageModel.get_peft_model(
    model,
    target_modules = modules,
    use_gradient_checkpointing = "unsloth"{}
)
"""

RULE = Rule(
    name="offloaded-into-one-file",
    find=find,
    examples=(
        Example(
            """\
model = FastLanguageModel.get_peft_model(
    model,
    target_modules = ["q_proj", "v_proj", "embed_tokens", "lm_head"],
    use_gradient_checkpointing = "unsloth",
)
""",
            """\
model = FastLanguageModel.get_peft_model(
    model,
    target_modules = ["q_proj", "v_proj", "embed_tokens", "lm_head"],
    use_gradient_checkpointing = "unsloth",
    temporary_location = f"_unsloth_temporary_saved_buffers/{os.environ.get('RANK', 0)}",
)
""",
        ),
        Example(
            "model = FastLanguageModel.get_peft_model(model, target_modules=['q_proj'],"
            " use_gradient_checkpointing='unsloth')\n"
        ),
        Example(
            _SAVED,
            _SAVED.replace(
                "['lm_head']", "['lm_head'],\n    temporary_location=f\"{FOLDER}/{os.environ.get('RANK', 0)}\""
            ).replace("{FOLDER}", FOLDER),
        ),
        Example(_SAVED.replace("lm_head", "classifier")),
        Example(
            "from unsloth import add_new_tokens\nadd_new_tokens(model, tokenizer, ['<a>'])\n"
            "model = FastLanguageModel.get_peft_model(model, r=8)\n",
            "from unsloth import add_new_tokens\nadd_new_tokens(model, tokenizer, ['<a>'])\n"
            f"model = FastLanguageModel.get_peft_model(model, r=8, temporary_location={OWN})\n",
        ),
        Example(
            "WHOLE = False\nmodel = FastLanguageModel.get_peft_model(model, use_gradient_checkpointing='unsloth',"
            " target_modules=['q_proj'] + (['lm_head'] if WHOLE else []))\n"
        ),
        Example(_ADDED.format("False", "")),
        Example(_ADDED.format("True", ""), _ADDED.format("True", f",\n    temporary_location = {OWN}")),
        Example(
            "model = FastLanguageModel.get_peft_model(model, target_modules=['lm_head'],"
            " use_gradient_checkpointing=True)\n"
        ),
    ),
)
