"""DDP313: progress bars for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Replace
from nb2ddp.syntax.walk import dotted

_MESSAGE = "tqdm.notebook draws in a notebook; the script takes the tqdm of terminals"


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for statement in tree.of(cst.ImportFrom):
        module = dotted(statement.module) if statement.module is not None else ""
        if module == "tqdm.notebook" and statement.module is not None:
            yield Finding(statement, _MESSAGE, (Replace(statement.module, "tqdm"),))
        elif module == "tqdm" and not isinstance(statement.names, cst.ImportStar):
            for alias in statement.names:
                if alias.evaluated_name == "tqdm_notebook":
                    name = alias.evaluated_alias or "tqdm_notebook"
                    yield Finding(alias, _MESSAGE, (Replace(alias, f"tqdm as {name}"),))
                elif alias.evaluated_name == "notebook" and len(statement.names) == 1:
                    name = alias.evaluated_alias or "notebook"
                    yield Finding(alias, _MESSAGE, (Replace(statement, f"import tqdm as {name}"),))
    for imported in tree.of(cst.Import):
        for alias in imported.names:
            if alias.evaluated_name == "tqdm.notebook":
                yield Finding(alias, _MESSAGE, (Replace(alias.name, "tqdm"),))
    for attribute in tree.of(cst.Attribute):
        imported_here = isinstance(tree.parents[attribute], (cst.ImportAlias, cst.ImportFrom))
        if tree.text(attribute) == "tqdm.notebook" and not imported_here:
            yield Finding(attribute, _MESSAGE, (Replace(attribute, "tqdm"),))


RULE = Rule(
    code="DDP313",
    name="notebook-progress-bar",
    summary="`tqdm.notebook` becomes `tqdm`.",
    why="Its bars are widgets; in a terminal they fail or print nothing.",
    find=find,
    examples=(
        Example("from tqdm.notebook import tqdm, trange\n", "from tqdm import tqdm, trange\n"),
        Example(
            "import tqdm.notebook\nfor row in tqdm.notebook.tqdm(rows):\n    use(row)\n",
            "import tqdm\nfor row in tqdm.tqdm(rows):\n    use(row)\n",
        ),
        Example("from tqdm.auto import tqdm\n"),
    ),
)
