"""What a job needs beside its packages and GPUs: variables, paths, services, tokens. One list of the whole notebook."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

import libcst as cst

from nb2ddp.facts.effects import Does
from nb2ddp.facts.flow import is_tried, owner_of, returned, stops, taker
from nb2ddp.facts.hosted import SECRET, UPLOAD, elsewhere, hosted_name, is_only_tried, written_elsewhere
from nb2ddp.facts.logins import HUB_TOKEN, TOKEN_VARIABLE, TRACKER_KEY, token_of, tokens, variable_of_command
from nb2ddp.facts.questions import LOADS, READS, given_tokens, goes_on_without, stops_without
from nb2ddp.facts.releases import SUCCESSORS, fitting
from nb2ddp.facts.shell import only_shows
from nb2ddp.facts.texts import held, passed, spelled
from nb2ddp.notebook import magics
from nb2ddp.syntax.arguments import constant
from nb2ddp.syntax.environ import LAUNCHER_VARIABLES, SHELL_VARIABLES, environ_key, sets_only
from nb2ddp.syntax.tree import Tree, argument, keyword, method

if TYPE_CHECKING:
    from nb2ddp.facts.program import Program

_SECRET_NAME = re.compile(r"\w*(KEY|TOKEN|SECRET|PASSWORD)")
#: What sets variables from a file.
_FROM_FILE = re.compile(r"dotenv(\.\w+)*\.load_dotenv|(\w+\.)*load_dotenv")
#: A server on this machine, as an address names it.
_SERVER = re.compile(r"https?://(localhost|127\.0\.0\.1|0\.0\.0\.0):\d+")
#: Any service, as an address names it; keywords for an address.
_ADDRESS = re.compile(r"https?://(?!localhost\b|127\.|0\.0\.0\.0)[\w.-]+\.\w+(:\d+)?")
_GIVEN = ("api_base", "base_url", "endpoint", "env_url", "server_url")
_CLIENT = re.compile(r"(?:\w+\.)*(openai|anthropic|cohere|litellm|generativeai|genai|groq|mistralai|ollama)\.")
#: What begins a run of Weights & Biases, or a client of its Weave.
_RUNS_OF_WANDB = re.compile(r"wandb\.init|weave\.init")
#: Tokens as services write them: the Hub's, OpenAI's and its like, GitHub's, Google's; 40 hexadecimal digits, of wandb.
_TOKEN = re.compile(
    r"(?<![\w-])(?P<head>hf_|gsk_|r8_|gh[pousr]_|github_pat_|sk-|xai-|AIza|AKIA)[\w-]{16,}(?P<tail>[\w-]{3})(?![\w-])"
)
_KEY = re.compile(r"(?<![\w-])(?P<head>)[0-9a-f]{37}(?P<tail>[0-9a-f]{3})(?![\w-])")
#: A name of a key, or of Weights & Biases: `api_key`, `WNB_TOKEN`, `wb`; and of what is as long, but public.
_OF_KEY = re.compile(r"(?i)(?<![a-z])((wandb|wnb|wb|api)_?)*(key|token|wandb|wnb|wb)(?![a-z])")
_OF_HASH = re.compile(r"(?i)commit|revision|sha|hash|digest|checksum|cache")
#: What stands for the name of a person's account.
_NO_ACCOUNT = re.compile(
    r"(?i)[<\[]?((your|my|hf|hub|hugging[ _-]?face)[ _-]*)*(user[ _-]?(name|id)?|account|org(ani[sz]ation)?)[>\]]?"
    r"|[<\[]?your\b.*|your[_-].*|<.*>|hf"
)
#: What stands for the name of a repository without an account: `your_model`, `<model>`, `NAME OF THE MODEL`.
_NO_REPOSITORY = re.compile(r"(?i)[<\[]?your\b.*|your_.*|<.*>|(?=.*\s)(.*\W)?(your|name|here)(\W.*)?")
#: The keywords for the name of what is loaded.
_LOADED = ("model_name", "pretrained_model_name_or_path", "model_id", "path")
#: Clouds whose libraries find credentials by themselves: their calls, their addresses, a variable that says them.
_CLOUDS = {
    "AWS": (re.compile(r"boto3\.(client|resource|Session)|s3fs\.\w+"), "s3://", "AWS_ACCESS_KEY_ID"),
    "Google": (re.compile(r"google\.cloud\..*Client|gcsfs\.\w+"), "gs://", "GOOGLE_APPLICATION_CREDENTIALS"),
}
#: A keyword for credentials of a cloud, or for none.
_CREDENTIALS = re.compile(r"\w*(access_key|profile|credentials|token|key|secret|anon|config)\w*")
#: What goes on with a folder that is there, into which it may not write.
_MAKES = re.compile(r"(mkdir|makedirs)$")
#: What fetches llama.cpp, and a program of it.
_LLAMA_CPP = re.compile(r"github\.com[/:][\w-]+/llama\.cpp|install_llama_cpp")
_OF_LLAMA_CPP = re.compile(r"(?<![\w./~$}-])(?:\./)?(llama\.cpp/(?:[\w-]+/)*[\w-]+(?:\.py)?)(?![\w./-])")
_STARTS = re.compile(r"\b(serve|server|uvicorn|gunicorn|sglang|ollama)\b|&\s*$")


class Kind(Enum):
    """What is needed."""

    VARIABLE = "variable of the environment"
    LOGIN = "token of the Hub, as a variable or a login of the machine"
    TRACKER = "key of Weights & Biases, likewise"
    PATH = "path"
    WINDOWS = "path of Windows"
    FILE = "file or folder beside the script"
    FOLDER = "folder to write into"
    SERVICE = "service"
    TOKEN = "token that the notebook holds"
    NAME = "name that the notebook leaves open"
    RELEASE = "release of a library"
    MODULE = "module that nothing brings"


@dataclass(frozen=True)
class Need:
    """One thing that a job needs.

    Attributes:
        name: the variable, the path, the address, the release, or what is shown of a token.
        kind: what it is.
        cells: the cells that read it, by number, in order.
        required: the notebook stops without it, so the script looks for it as it starts.
        is_optional: the notebook asks for it, and says or shows that it goes on without.
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
        said = "a Windows path, " if self.kind is Kind.WINDOWS else "optional, " if self.is_optional else ""
        return f"{self.name}{where} ({said}{cells})"


def needs(program: Program) -> list[Need]:
    """What the notebook reads and does not make itself, in the order of the first reading.

    What stands in code that a constant switches off is no need, but a token that is written there is one.
    """
    found: dict[tuple[Kind, str], list[tuple[cst.CSTNode, bool]]] = {}
    for kind, name, node, required in sorted(_read(program), key=lambda each: program.tree.start(each[2])):
        if kind is Kind.TOKEN or not _is_off(program.tree, node):
            found.setdefault((kind, name), []).append((node, required))
    asked = [question for question in program.questions if not question.is_login]
    optional = {*program.tokens_of_loads, *(question.call for question in asked if question.may_skip)}
    optional |= {*filter(partial(_may_lack, program), program.tree.live(cst.Call))}
    listed = [
        Need(
            name,
            kind,
            tuple(dict.fromkeys(program.location(node).cell for node, _ in places)),
            any(required and not (kind is Kind.VARIABLE and _is_filled(program, node)) for node, required in places),
            all(node in optional for node, _ in places),
        )
        for (kind, name), places in found.items()
    ]
    logins = {HUB_TOKEN: Kind.LOGIN} if _asks_for_login(program) else {}
    logins |= {TRACKER_KEY: Kind.TRACKER} if _asks_for_key(program) else {}
    return [
        replace(need, kind=logins[need.name], required=True) if need.name in logins and not need.required else need
        for need in listed
    ]


def _is_filled(program: Program, node: cst.CSTNode, *, is_setting: bool = False) -> bool:
    """Whether a `.env` file, which may set variables, is read before a node, or before the training that it sets."""
    places: list[cst.CSTNode] = [*program.training.calls[:1]] if is_setting else [node]
    files = program.execution.calls(_FROM_FILE)
    return any(_runs_before(program.tree, file, place) for file in files for place in places or [node])


def _is_off(tree: Tree, node: cst.CSTNode) -> bool:
    """Whether a constant switches off a node, or all that runs it: `push = False`, and `if push:` around it."""
    runs = tree.run_from(node, tree.uses)
    return tree.is_ruled_out(node) or (bool(runs) and all(map(tree.is_ruled_out, runs)))


def _asks_for_login(program: Program) -> bool:
    """Whether an upload takes the token of the environment or of the machine's login."""
    tree = program.tree
    uploads = [(call, token) for call, token in _uploads(program) if not is_tried(tree, call)]
    settings = [call for call, _ in uploads if not method(call).startswith(("push_to_hub", "upload_"))]
    sure = [token for call, token in uploads if not _is_filled(program, call, is_setting=call in settings)]
    by_name = (token is None or HUB_TOKEN in tree.texts(tree.value(token)) for token in sure)
    return not tokens(tree) and any(by_name)


def _asks_for_key(program: Program) -> bool:
    """Whether a run of Weights & Biases surely begins with the key of the environment or of the machine's login."""
    tree = program.tree
    runs = [*program.execution.calls(_RUNS_OF_WANDB), *_logins_by_name(tree)]
    if any(keyword(run, name) for run in runs for name in ("mode", "anonymous", "settings")):
        return False
    commands = [program.effects.command(call) for call in program.execution.calls()]
    if any("wandb" in command and variable_of_command(command) is None for command in commands):
        return False  # one that turns it off, or is given the key
    told = [(each, tree.value(each)) for each in tree.given("report_to")]
    plain = [pair for pair in told if isinstance(pair[1], (cst.SimpleString, cst.List, cst.Tuple))]
    given = [each for each, value in plain if "wandb" in tree.texts(value)]
    sure = [node for node in _trackers(program) if node in runs or node in given]
    sure = [node for node in sure if not (is_tried(tree, node) or _is_off(tree, node))]
    return any(not _is_filled(program, node, is_setting=node in given) for node in sure)


def _uploads(program: Program) -> Iterator[tuple[cst.Call, cst.BaseExpression | None]]:
    """Uploads, and the settings that make a trainer upload its model, with the tokens that they are given."""
    tree = program.tree
    for call in program.execution.calls():
        client = tree.value(call.func.value) if isinstance(call.func, cst.Attribute) else call
        is_upload = method(call).startswith("push_to_hub") and bool(program.execution.does(call) & Does.SAVE)
        if isinstance(client, cst.Call) and tree.qualified(client.func).endswith("HfApi"):
            is_upload = method(call).startswith("upload_")
        elif tree.qualified(call.func).startswith("huggingface_hub.upload_"):
            is_upload = True
        if is_upload or constant(tree, call, "push_to_hub") is True:
            given = [keyword(call, "hub_token"), keyword(call, "token")]
            given += [keyword(client, "token")] if isinstance(client, cst.Call) else []
            yield call, next((token.value for token in given if token is not None), None)


def _read(program: Program) -> Iterator[tuple[Kind, str, cst.CSTNode, bool]]:
    for name, node, required in (*_variables(program), *_asked(program)):
        yield Kind.VARIABLE, name, node, required
    for path in program.hosted_paths:
        if path.is_made:
            folder = "/content" if path.text.startswith("/content") else "/kaggle/working"
            yield Kind.PATH, f"{folder} as the current folder", path.node, False
        else:
            yield Kind.PATH, path.text, path.node, path.required
    for local in program.local_paths:
        kind = Kind.FILE if local.is_beside else Kind.WINDOWS if local.is_of_windows else Kind.PATH
        yield kind, local.text, local.node, local.required
    yield from _checkpoints(program)
    for tool, node in _of_llama_cpp(program):
        yield Kind.FILE, tool, node, False
    for name, node in _chosen(program):
        yield Kind.NAME, f"{name} in place of files.upload()", node, False
    for folder, node in program.written_there:
        yield Kind.FOLDER, folder, node, False
    for folder, call in written_elsewhere(program.execution):
        yield Kind.FOLDER, folder, call, _must_be_made(program, folder, call)
    calls = program.execution.calls()
    started = any(program.tree.qualified(call.func) == "subprocess.Popen" for call in calls)
    if not started and not any(_STARTS.search(program.effects.command(call)) for call in calls):
        for text in program.tree.live(cst.SimpleString):
            if match := _SERVER.match(program.tree.content(text)):
                yield Kind.SERVICE, f"a server at {match[0]}", text, False
    for name, node in _services(program):
        yield Kind.SERVICE, name, node, False
    for name, node in _clouds(program):
        yield Kind.SERVICE, f"credentials of {name}", node, False
    for name, node in _tokens(program):
        yield Kind.TOKEN, f"the token {name}, which the notebook holds", node, False
    for name, node in _open_names(program):
        yield Kind.NAME, f'a name in place of "{name}"', node, False
    for use, releases, _ in program.lacked:
        has = [release for release in fitting(program.tree, use.library, releases) if use.is_in(release)]
        if has and use.name not in SUCCESSORS:
            yield Kind.RELEASE, f"{use.library} {has[-1]} or older", use.node, False


def _must_be_made(program: Program, folder: str, call: cst.Call) -> bool:
    """Whether a call surely writes into a folder, or a trainer that it is for, and no command sees to that folder."""
    execution, tree = program.execution, program.tree
    given = keyword(call, "output_dir")
    is_output = given is not None and folder in (text.rstrip("/") for text in spelled(tree, given.value))
    is_written = execution.does(call) & (Does.SAVE | Does.WRITE) and not _MAKES.search(tree.text(call.func))
    is_seen_to = any(folder in program.effects.command(each) for each in execution.calls())
    return bool(is_output or is_written) and "*" not in folder and not (is_seen_to or is_tried(tree, call))


def _checkpoints(program: Program) -> Iterator[tuple[Kind, str, cst.CSTNode, bool]]:
    """Checkpoints that a training surely goes on from, and that no earlier one saves; `--resume` looks for its own."""
    tree = program.tree
    trainings = [call for call in program.training.calls if method(call) == "train"]
    for call in [] if program.options.resume else trainings:
        given = argument(call, "resume_from_checkpoint", 0)
        named = None if given is None or is_tried(tree, call) else tree.literal(given.value)
        if isinstance(named, str) and (named.startswith("/") or call is trainings[0]):
            is_open = call is not trainings[0] or program.may_make(named, call)
            yield Kind.PATH if named.startswith("/") else Kind.FILE, named, call, not is_open
        elif named is True and call is trainings[0] and not tree.given("local_dir"):
            folders = {tree.literal(each) for each in tree.given("output_dir")}
            folder = folders.pop() if len(folders) == 1 else ...
            yield Kind.PATH, f"a checkpoint in {'the output folder' if folder is ... else folder}", call, False


def _of_llama_cpp(program: Program) -> Iterator[tuple[str, cst.CSTNode]]:
    """The programs of a llama.cpp beside the script that run, where nothing fetches one: Unsloth's is elsewhere."""
    for call in [] if _LLAMA_CPP.search(program.text) else program.execution.calls():
        command = program.effects.command(call)
        if not only_shows(command):
            yield from ((path, call) for path in _OF_LLAMA_CPP.findall(command))


def _chosen(program: Program) -> Iterator[tuple[str, cst.Call]]:
    """The files that a person chose on Colab, by name where the saved outputs say it, whose content the code uses."""
    tree = program.tree
    for call in tree.live(cst.Call):
        if hosted_name(tree, call) != UPLOAD or program.installs.covers(call) or program.alone(call) is not None:
            continue
        line = tree.around(call, cst.Assign)
        if (line is None or tree.bound_uses(line)) and not is_only_tried(program.execution, call):
            names = program.notebook.cell(program.location(call).cell).uploaded
            yield from ((name, call) for name in names or ("a file",))


def _repositories(program: Program) -> Iterator[cst.BaseExpression]:
    """The names of the repositories that the notebook uploads to."""
    for call in program.execution.calls(does=Does.SAVE):
        repository, owner = argument(call, "repo_id", 0), owner_of(call)
        says = owner is not None and program.training.is_trainer(owner)  # a trainer is given what its commit says
        if repository is not None and not (says or method(call).startswith("save_")):
            yield repository.value
    yield from program.tree.given("hub_model_id")


def _open_names(program: Program) -> Iterator[tuple[str, cst.CSTNode]]:
    """Names of repositories, or their owners, that stand for a name of the reader's own."""
    tree = program.tree
    named = [(repository, text) for repository in _repositories(program) for text in spelled(tree, repository)]
    paths = {path.text for path in program.local_paths}
    for call in program.execution.calls(LOADS):
        for each in call.args[:2]:
            if each.keyword is None or each.keyword.value in _LOADED:
                texts = [text for text in spelled(tree, each.value) if text not in paths]
                own = [text for text in texts if not any(maker.is_named(text) for maker in program.makers)]
                named += [(each.value, text) for text in own]
    for node, text in named:
        owner, _, name = text.partition("/")
        if (_NO_ACCOUNT if name else _NO_REPOSITORY).fullmatch(owner.strip()):
            yield owner, node


def _services(program: Program) -> Iterator[tuple[str, cst.CSTNode]]:
    """Services on other machines: by the address in a question, or the package of a client that is given none."""
    tree = program.tree
    given = [value for name in _GIVEN for value in tree.given(name) if tree.is_live(value)]
    for value in given:
        if match := _ADDRESS.search(tree.text(tree.value(value))):
            yield f"the service at {match[0]}", value
    for call in program.execution.calls(does=Does.ASK):
        texts = [tree.text(part) for each in call.args for part in tree.made_of(each.value)]
        asked = next((match[0] for text in texts if (match := _ADDRESS.search(text)) is not None), None)
        package = _CLIENT.match(tree.qualified(call.func))
        if asked is not None and not any(each.value in given for each in call.args):
            yield f"the service at {asked}", call
        elif package is not None and not any(each.keyword and each.keyword.value in _GIVEN for each in call.args):
            yield f"the service of {package[1]}", call


def _clouds(program: Program) -> Iterator[tuple[str, cst.CSTNode]]:
    """Clouds that the notebook asks, or names a file of, and gives no credentials."""
    tree, known = program.tree, {name for _, name, _ in program.settings}
    for name, (calls, scheme, variable) in _CLOUDS.items():
        if variable in known:
            continue
        for call in program.execution.calls(calls):
            if not any(each.keyword and _CREDENTIALS.fullmatch(each.keyword.value) for each in call.args):
                yield name, call
        for text in tree.live(cst.SimpleString):
            user = taker(tree, text)
            is_given = user is not None and keyword(user, "storage_options") is not None
            if tree.content(text).startswith(scheme) and not is_given:
                yield name, text


def _tokens(program: Program) -> Iterator[tuple[str, cst.CSTNode]]:
    """Tokens that are written out, with all but their ends left out."""
    tree = program.tree
    written = [(each, each.value) for each in tree.of(cst.SimpleString)]  # in code that never runs too
    forms = [
        (call, f"{form}\n{form.body or ''}") for call, form in program.forms_of(*magics.Kind) if tree.is_live(call)
    ]
    logged_in = {held(tree, token) for token, variable in given_tokens(tree, program.effects) if "WANDB" in variable}
    for node, text in (*written, *forms):
        is_wandb = "wandb" in tree.text(tree.statement(node)).lower() or "wandb" in text.lower()
        is_wandb = is_wandb or node in logged_in or _is_named_key(tree, node)
        asked = taker(tree, node)
        is_name = asked is not None and SECRET.fullmatch(hosted_name(tree, asked) or "")  # of a secret
        for match in () if is_name else (*_TOKEN.finditer(text), *(_KEY.finditer(text) if is_wandb else ())):
            if _is_token(match) and not program.installs.covers(node):
                yield f"{match['head']}...{match['tail']}", node


def _is_named_key(tree: Tree, node: cst.CSTNode) -> bool:
    """True for a text that is bound or given under a name of a key: of a variable, a keyword, an entry, an item."""
    above = tree.parents[node]
    if isinstance(above, cst.Assign):
        names = [tree.text(each.target) for each in above.targets]
    elif isinstance(above, cst.DictElement):
        names = [tree.text(above.key)] if above.value is node else []
    elif isinstance(above, cst.Arg):
        names = [above.keyword.value] if above.keyword is not None else []
    else:
        names = [tree.text(above.target)] if isinstance(above, (cst.AnnAssign, cst.NamedExpr)) else []
    return any(_OF_KEY.search(name) and not _OF_HASH.search(name) for name in names)


def _is_token(match: re.Match[str]) -> bool:
    """False for a placeholder: one of words or dashes, of few letters, or without a digit or a capital."""
    text = match[0].removeprefix(match["head"])
    return len(set(text)) > 9 and bool(re.search(r"\d|[a-z][A-Z]", text)) and not re.search(r"(?i)token|your|_", text)


def secret_variable(name: str) -> str:
    """The variable for a secret of the hosted notebook: its name as shells take it, if that is not the token itself."""
    return (
        "HF_TOKEN" if re.fullmatch(r"hf_[A-Za-z0-9]{20,}", name) else re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII)
    )


def _asked(program: Program) -> Iterator[tuple[str, cst.CSTNode, bool]]:
    """Variables that answer what the notebook asks a person."""
    known = {name for _, name, _ in program.settings}
    for each in program.questions:
        is_set = each.is_login and each.variable in known
        is_answered = each.is_login or not isinstance(program.tree.parents[each.call], cst.Expr)
        if is_answered and each.leaving is None and not program.installs.covers(each.call) and not is_set:
            handled = each.may_skip or is_tried(program.tree, each.call, each.variable)
            yield each.variable, each.call, not (handled or _is_set_alike(program.tree, each.call, each.variable))
    for text, variable in program.tokens_to_fill_in.items():
        if not program.installs.covers(text):
            is_alike = isinstance(text, cst.Call) or _is_set_alike(program.tree, text, variable)
            yield variable, text, not is_alike
    yield from ((HUB_TOKEN, text, False) for text in program.tokens_of_loads if not program.installs.covers(text))


def _variables(program: Program) -> Iterator[tuple[str, cst.CSTNode, bool]]:
    """Variables that the notebook reads and does not set: secrets of Colab and Kaggle, `os.environ`.

    What it asks a person for is not set in a job.
    """
    tree = program.tree
    asking: list[cst.CSTNode] = [question.call for question in program.questions]
    asking += program.tokens_to_fill_in
    asking += [call for call in tree.live(cst.Call) if SECRET.fullmatch(hosted_name(tree, call) or "")]
    handed = list(_handed(program))
    asking += [node for _, node, *_ in handed]
    lines = {tree.statement(each) for each in asking}
    set_here = [(node, name) for node, name, _ in program.settings if tree.statement(node) not in lines]

    def is_known(name: str, place: cst.CSTNode) -> bool:
        own = [node for node, each in set_here if each == name]
        return name in LAUNCHER_VARIABLES | SHELL_VARIABLES or any(_runs_before(tree, node, place) for node in own)

    given = tokens(tree)
    parts = [part for repository in _repositories(program) for part in tree.made_of(repository)]
    named = [call for part in parts for call in tree.within(part, cst.Call)]
    for call in tree.live(cst.Call):
        key = tree.literal(call.args[0].value) if call.args else None
        if not isinstance(key, str) or program.installs.covers(call):
            continue
        name = hosted_name(tree, call)
        if name is not None and SECRET.fullmatch(name):
            yield secret_variable(key), call, not (_is_tried(tree, call) or _is_set_alike(tree, call, key))
        elif READS.fullmatch(tree.qualified(call.func)) and len(call.args) == 1 and not is_known(key, call):
            logs_in = any(tree.value(token) is call for token in given)
            if logs_in or _SECRET_NAME.fullmatch(key) or call in named:
                may_lack = _may_lack(program, call) or (key == TRACKER_KEY and not stops_without(tree, call))
                yield key, call, logs_in and not (_is_tried(tree, call) or may_lack)
    for call, token in () if given or HUB_TOKEN in dict(set_here).values() else _uploads(program):
        if token is None:
            yield HUB_TOKEN, call, False  # or a login of the machine's own
    for node in _trackers(program):
        yield TRACKER_KEY, node, False
    for item in tree.live(cst.Subscript):
        key = environ_key(tree, item)
        is_read = not isinstance(tree.parents[item], (cst.AssignTarget, cst.Del))
        if isinstance(key, str) and is_read and not program.installs.covers(item) and not is_known(key, item):
            yield key, item, not _is_tried(tree, item)
    for key, node, is_secret, required in handed:
        if is_secret or ((required or _SECRET_NAME.fullmatch(key)) and not is_known(key, node)):
            yield key, node, required


def _handed(program: Program) -> Iterator[tuple[str, cst.CSTNode, bool, bool]]:
    """The variables that functions of the notebook's read by a name that they are given: `load_secret("A_KEY")`.

    Each with what names it, whether it is a secret of Colab or Kaggle, and whether the notebook stops without it.
    """
    tree, reads = program.tree, dict[cst.Param, list[cst.BaseExpression]]()
    for node, asked in _by_name(tree):
        if isinstance(param := tree.definition(asked), cst.Param):
            reads.setdefault(param, []).append(node)
    setting = [line for line in tree.live(cst.Assign) if any(environ_key(tree, each.target) for each in line.targets)]
    used = [*tokens(tree), *(line.value for line in setting)]
    for param, nodes in reads.items():
        names = [hosted_name(tree, node) for node in nodes if isinstance(node, cst.Call)]
        raises, gives = _raises_without(tree, param, nodes), _gives_only(tree, param, nodes)
        for given in passed(tree, param):
            key, call = tree.literal(given), taker(tree, given)
            if not isinstance(key, str) or program.installs.covers(given) or not tree.is_live(given):
                continue
            uses = [use for use in used if call is not None and tree.value(use) is call and not _is_tried(tree, use)]
            stops_there = gives and bool(uses) and call is not None and not goes_on_without(tree, call)
            required = call is not None and not _is_tried(tree, call) and (raises or stops_there)
            name = HUB_TOKEN if secret_variable(key) == HUB_TOKEN else key  # the function reads it as it is given
            yield name, call or given, any(names), required


def _by_name(tree: Tree) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """What reads a variable or a secret and has no other answer, and the expression that names it."""
    for call in tree.live(cst.Call):
        is_secret = SECRET.fullmatch(hosted_name(tree, call) or "")
        if len(call.args) == 1 and (is_secret or READS.fullmatch(tree.qualified(call.func))):
            yield call, call.args[0].value
    for item in tree.live(cst.Subscript):
        index = item.slice[0].slice
        is_read = not isinstance(tree.parents[item], (cst.AssignTarget, cst.Del))
        if is_read and isinstance(index, cst.Index) and tree.qualified(item.value) == "os.environ":
            yield item, index.value


def _is_of(tree: Tree, node: cst.BaseExpression, reads: list[cst.BaseExpression]) -> bool:
    """Whether an expression stands for nothing but what some reads give, or None."""
    values: list[cst.BaseExpression | None] = [node]
    if isinstance(node, cst.Name) and node.value != "None":
        bound = tree.definition(node)
        values = [each.value for each in tree.bindings(node.value, bound)] if bound is not None else [None]
    return all(each in reads or (each is not None and tree.text(each) == "None") for each in values)


def _gives_only(tree: Tree, param: cst.Param, reads: list[cst.BaseExpression]) -> bool:
    """Whether the function of a parameter returns nothing but what its reads give, or None."""
    given = returned(tree, tree.function(param))
    return bool(given) and all(_is_of(tree, each, reads) for each in given)


def _raises_without(tree: Tree, param: cst.Param, reads: list[cst.BaseExpression]) -> bool:
    """Whether the function of a parameter raises where the variable of this name is not set."""
    function = tree.function(param)
    if function is None:
        return False
    sure: list[cst.CSTNode] = [
        each for each in reads if not READS.fullmatch(tree.qualified(getattr(each, "func", each)))
    ]
    for test in tree.within(function, cst.If):
        names, nested = tree.within(test.test, cst.Name), tree.within(test.body, cst.If)
        if stops(tree, test) and names and not nested and all(_is_of(tree, name, reads) for name in names):
            sure.append(test)
    left = [each for each in tree.within(function, cst.Return) if each.value is None or each.value not in reads]
    ends = [tree.span(each)[1] for each in left]
    inside = [each for each in sure if not is_tried(tree, each, within=function)]
    return any(not any(end < tree.start(each) for end in ends) for each in inside)


def _is_tried(tree: Tree, node: cst.CSTNode) -> bool:
    """The same as `is_tried`, but for a branch that every machine takes which is neither Colab nor Kaggle."""
    inner = node
    for above in tree.ancestors(node):
        answer = elsewhere(tree, above.test) if isinstance(above, cst.If) and inner is not above.test else None
        if isinstance(above, cst.If) and answer is (inner is above.body):
            return is_tried(tree, node, within=above) or _is_tried(tree, above)
        inner = above
    return is_tried(tree, node)


def _may_lack(program: Program, call: cst.Call) -> bool:
    """Whether the notebook reads a variable, and goes on where it is not set.

    An upload then has no token, nor has a run of Weights & Biases, if the notebook does not see to that.
    """
    tree = program.tree
    key = tree.literal(call.args[0].value) if READS.fullmatch(tree.qualified(call.func)) and call.args else None
    if not isinstance(key, str) or not goes_on_without(tree, call):
        return False
    if key == TRACKER_KEY:
        bound = tree.around(call, cst.Assign)
        uses = [call, *(() if bound is None else tree.bound_uses(bound))]
        tests = [test for use in uses if isinstance(test := tree.statement(use), cst.If)]
        return any(test.orelse is not None or "not " in tree.text(test.test) for test in tests)
    return TOKEN_VARIABLE.fullmatch(key) is None or not any(_uploads(program))


def _runs_before(tree: Tree, node: cst.CSTNode, place: cst.CSTNode) -> bool:
    """True for what may run before a place, or where what stands there says so; functions run where they are used."""
    if node in tree.ancestors(place):  # `os.environ["A"] = os.environ["A"].strip()`
        return False
    tests = [above.test for above in tree.ancestors(node) if isinstance(above, cst.If)]
    if any(place in tree.within(part, type(place)) for test in tests for part in tree.made_of(test)):
        return True
    ends = [tree.span(tree.top_statement(run))[1] for run in tree.run_from(place, tree.uses)]
    return any(tree.start(run) < max(ends, default=math.inf) for run in tree.run_from(node, tree.uses))


def _trackers(program: Program) -> Iterator[cst.CSTNode]:
    """What begins a run of Weights & Biases, whose library asks for its key, where nothing logs in or turns it off."""
    tree, known = program.tree, {name for _, name, _ in program.settings}
    logins = _logins_by_name(tree)
    others = [call for call in tree.live(cst.Call) if "wandb" in tree.qualified(call.func) and call not in logins]
    if any(token_of(tree, call) for call in others) or known & {TRACKER_KEY, "WANDB_MODE", "WANDB_DISABLED"}:
        return
    yield from logins
    yield from program.execution.calls(_RUNS_OF_WANDB)
    yield from [each for each in tree.given("report_to") if "wandb" in tree.texts(tree.value(each))]


def _logins_by_name(tree: Tree) -> list[cst.Call]:
    """Logins to Weights & Biases by `os.environ.get("WANDB_API_KEY")`: without it, by the machine's own login."""
    logins = [call for call in tree.live(cst.Call) if tree.qualified(call.func) == "wandb.login"]
    given = [(call, tree.value(token)) for call in logins if (token := token_of(tree, call)) is not None]
    reads = [(call, token) for call, token in given if isinstance(token, cst.Call) and len(token.args) == 1]
    named = [(call, token) for call, token in reads if tree.literal(token.args[0].value) == TRACKER_KEY]
    return [call for call, token in named if READS.fullmatch(tree.qualified(token.func))]


def _is_set_alike(tree: Tree, node: cst.CSTNode, name: str) -> bool:
    """True for what only sets the variable by its own name, for a library that may find its token elsewhere too."""
    owner = tree.parents[node]
    return isinstance(owner, cst.Assign) and sets_only(tree, owner, name)
