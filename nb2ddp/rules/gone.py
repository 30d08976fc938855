"""DDP212: what the versions that the script runs with no longer have."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.facts.releases import SUCCESSORS, Use, asked_for, taken, uses
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Replace

_TITLES = {"trl": "TRL", "transformers": "transformers"}
#: What to write instead.
_INSTEAD = {
    "DataCollatorForCompletionOnlyLM": "unsloth.chat_templates.train_on_responses_only masks the prompts",
    "setup_chat_format": "unsloth.chat_templates.get_chat_template sets the template",
}


def find(program: Program) -> Iterator[Finding]:
    text = "\n".join(cell.source for cell in program.notebook.cells)
    for use in uses(program.tree):
        asked = asked_for(program.tree, text, use.library)
        releases = taken(use.library, asked)
        if releases and not use.is_in(releases[-1]):
            yield _finding(use, releases, asked)


def _finding(use: Use, releases: list[str], asked: str) -> Finding:
    title, new = _TITLES[use.library], SUCCESSORS.get(use.name)
    gone = f"{use.name} is gone from {title} after {use.last}"
    if new and isinstance(use.node, cst.Arg) and use.node.keyword is not None:
        return Finding(use.node, f"{gone}; the script calls it {new}", (Replace(use.node.keyword, new),), Severity.NOTE)
    if any(map(use.is_in, releases)):
        return Finding(use.node, f"{gone}; the requirements ask for a version that has it", severity=Severity.NOTE)
    where = f"the {title} that the notebook asks for ({asked})" if asked else f"every {title} that Unsloth takes"
    return Finding(use.node, f"{gone}, and so from {where}: {_INSTEAD.get(use.name, 'take it out')}")


_IMPORT = "from unsloth import FastLanguageModel\n"
_ARGUMENTS = _IMPORT + "from transformers import TrainingArguments\n"

RULE = Rule(
    code="DDP212",
    name="gone-from-the-library",
    summary="Names and arguments that the libraries removed become the new ones, or get a warning.",
    why=(
        "The script would stop at this line, or ignore the argument: Unsloth drops config arguments that TRL no "
        "longer has, with a warning (unsloth/models/rl_config_compat.py, 2026.10.9). Renamed ones are replaced, such "
        "as `evaluation_strategy` and the `tokenizer` of transformers' own Trainer. If an older version that Unsloth "
        "supports has the name, the requirements ask for that version.\n\nThe table covers the releases of TRL since "
        "0.7 and of transformers since 4.36."
    ),
    find=find,
    severity=Severity.WARNING,
    examples=(
        Example(
            _ARGUMENTS + 'args = TrainingArguments(output_dir = "out", evaluation_strategy = "steps")\n',
            _ARGUMENTS + 'args = TrainingArguments(output_dir = "out", eval_strategy = "steps")\n',
        ),
        Example(
            _IMPORT + "from transformers import Trainer\ntrainer = Trainer(model, tokenizer = tokenizer)\n",
            _IMPORT + "from transformers import Trainer\ntrainer = Trainer(model, processing_class = tokenizer)\n",
        ),
        Example(
            "!pip install transformers==4.56.2\n" + _IMPORT + "from transformers import Trainer\n"
            "trainer = Trainer(model, tokenizer = tokenizer)\n"
        ),
        Example(
            'version = "4.56.2"\n!pip install transformers=={version}\n'
            + _IMPORT
            + "from transformers import Trainer\n"
            "trainer = Trainer(model, tokenizer = tokenizer)\n"
        ),
        Example(
            "!pip install trl==0.22.2\n" + _IMPORT + "from trl import DataCollatorForCompletionOnlyLM\n", reported=True
        ),
        Example(
            _IMPORT + "from trl import SFTConfig, SFTTrainer\ntrainer = SFTTrainer(model, tokenizer = tokenizer)\n"
        ),
    ),
)
