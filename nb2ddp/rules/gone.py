"""DDP212: Names and arguments that the versions at hand lack become the new ones, or get a `TODO`.

The script would stop at this line. Renamed ones are replaced, such as `evaluation_strategy` and the `tokenizer` of
transformers' own Trainer. If an older version that Unsloth supports has the name, the requirements ask for that
version.

Arguments of TRL's configs that are gone do not stop the script: Unsloth moves them where they belong, or leaves them
out, as on one GPU (unsloth/models/rl_config_compat.py, 2026.10.9). Where the notebook reads such a field of TRL's
config (`args.max_prompt_length`), the script would stop there.

The table covers the releases of TRL since 0.7 and of transformers since 4.36.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.facts.releases import SUCCESSORS, Use, fitting
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
    for use, releases, asked in program.lacked:
        having = tuple(filter(use.is_in, fitting(program.tree, use.library, releases)))
        yield _finding(use, having, releases[-1], asked)


def _finding(use: Use, having: tuple[str, ...], newest: str, asked: str) -> Finding:
    title, new = _TITLES[use.library], SUCCESSORS.get(use.name)
    last = use.last_before(newest)
    told = f"{use.name} {f'is gone after {title} {last}' if last else f'came with {title} {use.spans[0][0]}'}"
    if new and isinstance(use.node, cst.Arg) and use.node.keyword is not None:
        return Finding(use.node, f"{told}; the script calls it {new}", (Replace(use.node.keyword, new),), Severity.NOTE)
    if having:
        return Finding(use.node, f"{told}; the requirements ask for a version that has it", severity=Severity.NOTE)
    lacks = f"the {title} that the notebook asks for ({asked}) lacks it" if asked else f"no {title} for Unsloth has it"
    otherwise = "take it out" if last else "ask for a newer one, or take it out"
    instead = f"import it from {use.home}" if use.home else _INSTEAD.get(use.name, otherwise)
    return Finding(use.node, f"{told}, and {lacks}: {instead}", todo=True)


_IMPORT = "from unsloth import FastLanguageModel\n"
_CONFIG = _IMPORT + 'from trl import GRPOConfig\nargs = GRPOConfig(vllm_importance_sampling_mode = "token_truncate")\n'
_GROUPED = _IMPORT + "from trl import SFTConfig\nargs = SFTConfig(group_by_length = True)\n"
_OWN = "from unsloth import UnslothTrainingArguments\n"
_ARGUMENTS = _IMPORT + "from transformers import TrainingArguments\n"

RULE = Rule(
    name="gone-from-the-library",
    find=find,
    severity=Severity.WARNING,
    also_alone=True,
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
            "!pip install transformers==4.44.2\n"
            + _ARGUMENTS
            + 'args = TrainingArguments(evaluation_strategy = "no")\n',
            "!pip install transformers==4.44.2\n" + _ARGUMENTS + 'args = TrainingArguments(eval_strategy = "no")\n',
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
        *(
            Example(f"{before}{line}\n", f"{before}# TODO[nb2ddp] DDP212: {told}\n{line}\n")
            for before, line, told in (
                (
                    f"!pip install trl==0.22.2\n{_IMPORT}",
                    "from trl import DataCollatorForCompletionOnlyLM",
                    "DataCollatorForCompletionOnlyLM is gone after TRL 0.19.1, and the TRL that the notebook asks for "
                    "(==0.22.2) lacks it: unsloth.chat_templates.train_on_responses_only masks the prompts",
                ),
                (
                    f"!pip install trl==1.15.0\n{_IMPORT}",
                    "from trl import ORPOConfig",
                    "ORPOConfig is gone after TRL 0.28.0, and the TRL that the notebook asks for (==1.15.0) lacks it: "
                    "import it from trl.experimental.orpo",
                ),
                (
                    f"!pip install trl==0.22.2\n{_IMPORT}from trl import GRPOConfig\n",
                    'args = GRPOConfig(vllm_importance_sampling_mode = "token_truncate")',
                    "vllm_importance_sampling_mode came with TRL 0.26.2, and the TRL that the notebook asks for "
                    "(==0.22.2) lacks it: ask for a newer one, or take it out",
                ),
                (
                    "!pip install trl==0.22.2\nfrom trl import SFTConfig\n",
                    "args = SFTConfig(max_seq_length = 512)",
                    "max_seq_length is gone after TRL 0.19.1, and the TRL that the notebook asks for (==0.22.2) "
                    "lacks it: take it out",
                ),
                (
                    f"!pip install transformers==4.56.2\n{_ARGUMENTS}",
                    'args = TrainingArguments(train_sampling_strategy = "group_by_length")',
                    "train_sampling_strategy came with transformers 5.2.0, and the transformers that the notebook asks "
                    "for (==4.56.2) lacks it: ask for a newer one, or take it out",
                ),
            )
        ),
        Example(_OWN + "args = UnslothTrainingArguments(group_by_length = True)\n"),
        Example(
            _OWN + 'args = UnslothTrainingArguments(evaluation_strategy = "no")\n',
            _OWN + 'args = UnslothTrainingArguments(eval_strategy = "no")\n',
        ),
        Example("!pip install trl\n" + _CONFIG),
        Example(
            _IMPORT + "from trl import ORPOConfig\nargs = ORPOConfig(max_prompt_length = 256)\n",
            reported=True,
        ),
        Example(_IMPORT + "from trl import GRPOConfig\nargs = GRPOConfig(max_prompt_length = 256)\n"),
        Example(
            _IMPORT
            + "from trl import GRPOConfig\nargs = GRPOConfig(max_prompt_length = 256)\nprint(args.max_prompt_length)\n",
            reported=True,
        ),
        Example(
            "!pip install git+https://github.com/huggingface/transformers@v4.49.0-Gemma-3\n"
            + _IMPORT
            + "from trl import GRPOConfig\nargs = GRPOConfig(max_prompt_length = 256)\n"
        ),
        Example(_GROUPED),
        Example("!pip install transformers==4.56.2\n" + _GROUPED),
        Example(_IMPORT + "from trl import DPOTrainer\ntrainer = DPOTrainer(model, max_prompt_length = 9)\n"),
        Example(
            "!pip install trl==0.22.2\n"
            + _IMPORT
            + "from trl import GRPOConfig\nargs = GRPOConfig(max_prompt_length = 256, max_completion_length = 9)\n"
        ),
        Example(
            _IMPORT + "from trl import SFTConfig, SFTTrainer\ntrainer = SFTTrainer(model, tokenizer = tokenizer)\n"
        ),
        Example(
            "from trl import SFTTrainer\ntrainer = SFTTrainer(model, tokenizer = tokenizer)\n",
            "from trl import SFTTrainer\ntrainer = SFTTrainer(model, processing_class = tokenizer)\n",
        ),
    ),
)
