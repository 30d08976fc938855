"""DDP313: `tqdm.notebook` becomes `tqdm`.

Its progress bars are widgets; in a terminal they fail or print nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Replace

_MESSAGE = "tqdm.notebook draws in a notebook; the script takes the tqdm of terminals"


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for attribute in tree.of(cst.Attribute):
        if tree.text(attribute) == "tqdm.notebook":
            owner = tree.parents[attribute]
            place = owner if isinstance(owner, (cst.ImportAlias, cst.ImportFrom)) else attribute
            yield Finding(place, _MESSAGE, (Replace(attribute, "tqdm"),))
    for statement in tree.of(cst.ImportFrom):
        is_tqdm = statement.module is not None and tree.text(statement.module) == "tqdm"
        names = () if isinstance(statement.names, cst.ImportStar) or not is_tqdm else statement.names
        for alias in names:
            name = alias.evaluated_alias or alias.evaluated_name
            if alias.evaluated_name == "tqdm_notebook":
                yield Finding(alias, _MESSAGE, (Replace(alias, f"tqdm as {name}"),))
            elif alias.evaluated_name == "notebook" and len(names) == 1:
                yield Finding(alias, _MESSAGE, (Replace(statement, f"import tqdm as {name}"),))


RULE = Rule(
    name="notebook-progress-bar",
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
