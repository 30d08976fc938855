"""What a job needs besides packages and GPUs: variables, paths, services and tokens, in one list for the notebook."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.flow import called_as, is_unconditional
from nb2ddp.facts.hosted import SECRET, hosted_name
from nb2ddp.facts.logins import HUB_TOKEN, TRACKER_KEY, given_tokens, tokens
from nb2ddp.facts.releases import fitting
from nb2ddp.facts.values import texts_of
from nb2ddp.notebook import magics
from nb2ddp.syntax.arguments import constant
from nb2ddp.syntax.environ import LAUNCHER_VARIABLES, READS, SHELL_VARIABLES, environ_key, sets_only
from nb2ddp.syntax.tree import Tree, argument, grouped, keyword, method

if TYPE_CHECKING:
    from nb2ddp.facts.program import Program

_SECRET_NAME = re.compile(r"\w*(KEY|TOKEN|SECRET|PASSWORD)")
#: Functions that set variables from a file.
_FROM_FILE = re.compile(r"dotenv(\.\w+)*\.load_dotenv|(\w+\.)*load_dotenv")
#: The address of a server on this machine.
_SERVER = re.compile(r"https?://(localhost|127\.0\.0\.1|0\.0\.0\.0):\d+")
#: The address of any other service; and keywords for an address.
_ADDRESS = re.compile(r"https?://(?!localhost\b|127\.|0\.0\.0\.0)[\w.-]+\.\w+(:\d+)?")
_GIVEN = ("api_base", "base_url", "endpoint", "env_url", "server_url")
_CLIENT = re.compile(r"(?:\w+\.)*(openai|anthropic|cohere|litellm|generativeai|genai|groq|mistralai|ollama)\.")
#: Functions that start a run of Weights & Biases, or a client of Weave.
_RUNS_OF_WANDB = re.compile(r"wandb\.init|weave\.init")
#: Forms of tokens: those of the Hub, OpenAI and similar services, GitHub, Google; wandb's 40 hexadecimal digits.
_TOKEN = re.compile(
    r"(?<![\w-])(?P<head>hf_|gsk_|r8_|gh[pousr]_|github_pat_|sk-|xai-|AIza|AKIA)[\w-]{16,}(?P<tail>[\w-]{3})(?![\w-])"
)
_KEY = re.compile(r"(?<![\w-])(?P<head>)[0-9a-f]{37}(?P<tail>[0-9a-f]{3})(?![\w-])")
#: Names of a key, or of Weights & Biases: `api_key`, `WNB_TOKEN`, `wb`; names of public values of the same length.
_OF_KEY = re.compile(r"(?i)(?<![a-z])((wandb|wnb|wb|api)_?)*(key|token|wandb|wnb|wb)(?![a-z])")
_OF_HASH = re.compile(r"(?i)commit|revision|sha|hash|digest|checksum|cache")
#: A command that starts a server.
_STARTS = re.compile(r"\b(serve|server|uvicorn|gunicorn|sglang|ollama)\b|&\s*$")


class Kind(Enum):
    """The kind of a need."""

    VARIABLE = "variable of the environment"
    PATH = "path"
    FILE = "file or folder beside the script"
    FOLDER = "folder to write into"
    SERVICE = "service"
    TOKEN = "token that the notebook holds"
    RELEASE = "release of a library"
    MODULE = "module that nothing brings"


@dataclass(frozen=True)
class Need:
    """One thing that a job needs.

    Attributes:
        name: the variable, the path, the address, the release, or the shown part of a token.
        kind: its kind.
        cells: the cells that read it, by number, in order.
        required: the script always reads this variable, so it checks for it when it starts.
        is_optional: the notebook asks for it, and states that it continues without it.
    """

    name: str
    kind: Kind
    cells: tuple[int, ...]
    required: bool
    is_optional: bool = False

    def __str__(self) -> str:
        cells = f"cell{'s' if len(self.cells) > 1 else ''} {', '.join(map(str, self.cells))}"
        is_above = self.kind is Kind.FILE and self.name.startswith("../")
        where = " from the current folder" if is_above else " beside the script" if self.kind is Kind.FILE else ""
        where = " to write into" if self.kind is Kind.FOLDER else where
        prefix = "optional, " if self.is_optional else ""
        return f"{self.name}{where} ({prefix}{cells})"


def needs(program: Program) -> list[Need]:
    """Return what the notebook reads and does not make, in the order in which it is first read.

    Code that a constant switches off has no needs, except for tokens that are written in it.
    """
    found = grouped(
        ((kind, name), (node, required))
        for kind, name, node, required in sorted(_read(program), key=lambda each: program.tree.start(each[2]))
        if (kind is Kind.TOKEN or not _is_off(program.tree, node)) and not program.installs.covers(node)
    )
    optional = [question.call for question in program.questions if question.may_skip and not question.is_login]
    return [
        Need(
            name,
            kind,
            tuple(dict.fromkeys(program.location(node).cell for node, _ in places)),
            any(required for _, required in places),
            all(node in optional for node, _ in places),
        )
        for (kind, name), places in found.items()
    ]


def _is_off(tree: Tree, node: cst.CSTNode) -> bool:
    """Return whether a constant switches off a node, or all that runs it: `push = False`, and `if push:` around it."""
    runs = tree.run_from(node, tree.uses)
    return tree.is_ruled_out(node) or (bool(runs) and all(map(tree.is_ruled_out, runs)))


def _uploads(program: Program) -> Iterator[cst.Call]:
    """Yield the calls that upload, or that make a trainer upload its model, and that get no token."""
    tree = program.tree
    for call in program.execution.calls():
        client = tree.value(call.func.value) if isinstance(call.func, cst.Attribute) else call
        calls = [each for each in (call, client) if isinstance(each, cst.Call)]
        name = called_as(tree, call)
        uploads = name.startswith(("push_to_hub", "upload_")) and program.execution.does(call) & Does.SAVE
        has_token = any(keyword(each, name) for each in calls for name in ("token", "hub_token"))
        if (uploads or constant(tree, call, "push_to_hub") is True) and not has_token:
            yield call


def _read(program: Program) -> Iterator[tuple[Kind, str, cst.CSTNode, bool]]:
    for name, variable, required in _variables(program):
        yield Kind.VARIABLE, name, variable, required
    for path in program.hosted_paths:
        folder = "/content" if path.text.startswith("/content") else "/kaggle/working"
        yield Kind.PATH, f"{folder} as the current folder" if path.is_made else path.text, path.node, False
    for local in program.local_paths:
        kind = Kind.FILE if local.is_beside else Kind.PATH
        yield kind, local.text, local.node, False
    for kind, name, checkpoint in _checkpoints(program):
        yield kind, name, checkpoint, False
    for folder, written in program.written_there:
        yield Kind.FOLDER, folder, written, False
    starts = any(_STARTS.search(program.effects.command(call)) for call in program.execution.calls())
    if not starts and not program.execution.calls("subprocess.Popen"):
        for text in program.tree.live(cst.SimpleString):
            if match := _SERVER.match(program.tree.content(text)):
                yield Kind.SERVICE, f"a server at {match[0]}", text, False
    for name, node in _services(program):
        yield Kind.SERVICE, name, node, False
    for name, node in _tokens(program):
        yield Kind.TOKEN, f"the token {name}, which the notebook holds", node, False
    for use, releases, _ in program.lacked:
        has = [release for release in fitting(program.tree, use.library, releases) if use.is_in(release)]
        if has and not use.successor:
            yield Kind.RELEASE, f"{use.library} {has[-1]} or older", use.node, False


def _checkpoints(program: Program) -> Iterator[tuple[Kind, str, cst.CSTNode]]:
    """Yield the checkpoints from which a training resumes, and that no earlier training saves; none with `--resume`."""
    trainings = [call for call in program.training.calls if method(call) == "train"]
    for call in [] if program.options.resume else trainings:
        given = argument(call, "resume_from_checkpoint", 0)
        is_sure = given is not None and is_unconditional(program.tree, call)
        named = program.tree.literal(given.value) if given is not None and is_sure else None
        if isinstance(named, str) and (named.startswith("/") or call is trainings[0]):
            yield Kind.PATH if named.startswith("/") else Kind.FILE, named, call
        elif named is True and call is trainings[0]:
            texts = [text for each in program.tree.given("output_dir") for text in texts_of(program.tree, each)]
            folders = [text for text in texts if "*" not in text]
            yield Kind.PATH, f"a checkpoint in {[*folders, 'the output folder'][0]}", call


def _services(program: Program) -> Iterator[tuple[str, cst.CSTNode]]:
    """Yield the services on other machines: by the address in a call, or the package of a client without an address."""
    tree = program.tree
    given = [value for name in _GIVEN for value in tree.given(name)]
    for value in given:
        if match := _ADDRESS.search(tree.text(tree.value(value))):
            yield f"the service at {match[0]}", value
    for call in program.execution.calls(does=Does.ASK):
        texts = [tree.text(part) for each in call.args for part in tree.backward_slice(each.value)]
        asked = next((match[0] for text in texts if (match := _ADDRESS.search(text)) is not None), None)
        package = _CLIENT.match(tree.qualified(call.func))
        if asked is not None and not any(each.value in given for each in call.args):
            yield f"the service at {asked}", call
        elif package is not None and not any(each.keyword and each.keyword.value in _GIVEN for each in call.args):
            yield f"the service of {package[1]}", call


def _tokens(program: Program) -> Iterator[tuple[str, cst.CSTNode]]:
    """Yield the tokens that are written out, shortened to their ends."""
    tree = program.tree
    written = [(each, each.value) for each in tree.of(cst.SimpleString)]  # also in code that never runs
    forms = [
        (call, f"{form}\n{form.body or ''}") for call, form in program.forms_of(*magics.Kind) if tree.is_live(call)
    ]
    for node, text in (*written, *forms):
        for match in (*_TOKEN.finditer(text), *_KEY.finditer(text)):
            line = f"{tree.text(tree.statement(node))} {text}"
            is_named = match.re is _TOKEN or (_OF_KEY.search(line) and not _OF_HASH.search(line))
            if is_named and _is_token(match):
                yield f"{match['head']}...{match['tail']}", node


def _is_token(match: re.Match[str]) -> bool:
    """Return whether a match is a token, not a placeholder (with words, dashes or few letters; no digit or capital)."""
    text = match[0].removeprefix(match["head"])
    return len(set(text)) > 9 and bool(re.search(r"\d|[a-z][A-Z]", text)) and not re.search(r"(?i)token|your|_", text)


def secret_variable(name: str) -> str:
    """Return the variable for a secret of a hosted notebook: its name in a form for shells, unless that is a token."""
    return (
        "HF_TOKEN" if re.fullmatch(r"hf_[A-Za-z0-9]{20,}", name) else re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII)
    )


def _variables(program: Program) -> Iterator[tuple[str, cst.CSTNode, bool]]:
    """Yield the variables that the notebook reads and does not set: answers, secrets of the host, `os.environ`.

    Each one comes with the node that reads it, and with whether the script always reads it and stops without it.
    """
    tree, known = program.tree, {name for _, name, _ in program.settings}
    asking: list[tuple[str, cst.BaseExpression, cst.CSTNode, bool]] = [
        (each.variable, each.call, each.test or each.call, each.may_skip)
        for each in program.questions
        if (each.variable not in known if each.is_login else not isinstance(tree.parents[each.call], cst.Expr))
    ]
    asking += [(variable, text, text, False) for text, variable in program.tokens_to_fill_in.items()]
    reads = list[tuple[str, cst.Call]]()
    for call in tree.live(cst.Call):
        key = tree.literal(call.args[0].value) if call.args else None
        if isinstance(key, str) and SECRET.fullmatch(hosted_name(tree, call) or ""):
            asking.append((secret_variable(key), call, call, False))
        elif isinstance(key, str) and READS.fullmatch(tree.qualified(call.func)) and len(call.args) == 1:
            reads.append((key, call))
    for name, node, place, may_skip in asking:
        owner = tree.parents[node]
        is_left_out = isinstance(owner, cst.Expr) or (isinstance(owner, cst.Assign) and sets_only(tree, owner, name))
        yield name, node, not (may_skip or is_left_out) and is_unconditional(tree, place)
    answers = {tree.statement(node) for _, node, *_ in asking}
    own = [(node, name) for node, name, _ in program.settings if tree.statement(node) not in answers]
    of_logins = [tree.value(token) for token in tokens(tree)]
    for key, call in reads:
        if (_SECRET_NAME.fullmatch(key) or call in of_logins) and key not in [name for _, name in own]:
            yield key, call, False
    files = program.execution.calls(_FROM_FILE)
    for item in tree.live(cst.Subscript):
        key = environ_key(tree, item)
        is_read = not isinstance(tree.parents[item], (cst.AssignTarget, cst.Del))
        start = tree.start(tree.statement(item)) if tree.function(item) is None else len(tree.source)
        given = {name for node, name in own if tree.start(node) < start} | LAUNCHER_VARIABLES | SHELL_VARIABLES
        if isinstance(key, str) and is_read and given.isdisjoint((key, ...)):
            yield key, item, is_unconditional(tree, item) and not files
    if not of_logins and HUB_TOKEN not in known:
        yield from ((HUB_TOKEN, call, False) for call in _uploads(program))
    known |= {variable for _, variable in given_tokens(tree, program.effects)}
    if not known & {TRACKER_KEY, "WANDB_MODE", "WANDB_DISABLED"}:
        trackers: list[cst.CSTNode] = [*program.execution.calls(_RUNS_OF_WANDB)]
        trackers += [each for each in tree.given("report_to") if "wandb" in tree.texts(tree.value(each))]
        yield from ((TRACKER_KEY, node, False) for node in trackers)
