"""DDP212: Names and arguments that the versions at hand lack become the new ones, or get a `TODO`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.facts.releases import SUCCESSORS, Use, fitting
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import Replace

_TITLES = {"trl": "TRL", "transformers": "transformers"}
#: What to write instead.
_INSTEAD = {
    "DataCollatorForCompletionOnlyLM": "unsloth.chat_templates.train_on_responses_only masks the prompts",
    "setup_chat_format": "unsloth.chat_templates.get_chat_template sets the template",
}


@rule("DDP212", Severity.WARNING, also_alone=True)
def gone_from_the_library(program: Program) -> Iterator[Finding]:
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
