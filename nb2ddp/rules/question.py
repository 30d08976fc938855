"""DDP311: `input()`, `getpass()` and logins read environment variables instead; `breakpoint()` is removed.

Every process would wait for an answer, and a job has nobody to give one. This covers `login()`, `notebook_login()`,
`wandb login`, `hf auth login` and the like, and a text that stands for a token (`""`, `hf_xxx`, `YOUR_TOKEN`) in a
login, an upload, a variable or a load: the Hub refuses a wrong token even for what is public, and its library an empty
one. The Hub's libraries read HF_TOKEN themselves, Weights & Biases reads WANDB_API_KEY. A loop of questions, such as a
chat, gets the answer that ends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.logins import HUB_TOKEN
from nb2ddp.facts.program import Program
from nb2ddp.facts.questions import Question, empty_tokens_of_loads
from nb2ddp.facts.shell import quoted
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule, left_out, shown, without_names
from nb2ddp.syntax.edits import Edit, Remove, Replace, Wrap
from nb2ddp.syntax.environ import sets_only
from nb2ddp.syntax.tree import Tree

_OF_A_LOAD = "stands for a token: set HF_TOKEN in the environment, or leave it out for what is public"


def find(program: Program) -> Iterator[Finding]:
    asked = [each for each in program.questions if not program.installs.covers(each.call)]
    for question in asked:
        yield _login(program, question) if question.is_login else _asked(program, question)
    for text, variable in program.tokens_to_fill_in.items():
        if not program.installs.covers(text):
            form = program.form(text)
            said = f"{program.tree.text(text) if form is None else form.source} stands for a token"
            yield Finding(text, f"{said}: set {variable} in the environment", (_read(program, text, variable),))
    for text in program.tokens_of_loads:
        if not program.installs.covers(text):
            edit = Replace(text, f'os.environ.get("{HUB_TOKEN}")')
            yield Finding(text, f"{program.tree.text(text)} {_OF_A_LOAD}", (edit,))
    for token in empty_tokens_of_loads(program.tree):
        if program.tree.value(token) not in program.tokens_to_fill_in and not program.installs.covers(token):
            said = f"{program.tree.text(token)} is empty, which huggingface_hub 1 refuses; the script gives None then"
            yield Finding(token, said, (Wrap(token, "", " or None"),), Severity.NOTE)
    yield from _imports(program, {question.call for question in asked})


def _imports(program: Program, asking: set[cst.Call]) -> Iterator[Finding]:
    """Imports whose names only these calls use."""
    tree = program.tree
    statements: list[cst.Import | cst.ImportFrom] = [*tree.of(cst.Import), *tree.of(cst.ImportFrom)]
    for statement in statements:
        names = () if isinstance(statement.names, cst.ImportStar) else statement.names
        used = [tree.loads(each.evaluated_alias or each.evaluated_name) for each in names]
        calls = [{tree.call_of(tree.extended(use, cst.Attribute)) for use in uses} for uses in used]
        kept = [alias for alias, made in zip(names, calls, strict=True) if not made or not made <= asking]
        if len(kept) < len(names) and tree.is_live(statement) and not program.installs.covers(statement):
            edit = without_names(program, statement, kept) if kept else Remove(statement, comments_above=True)
            said = "only a question to a person needs it; the script leaves it out"
            yield Finding(statement, said, (edit,), severity=Severity.NOTE)


def _login(program: Program, question: Question) -> Finding:
    """Leave a login out: the service's library reads the variable when it is needed."""
    said = f"asks a person for a token; the script leaves it out: set {question.variable} in the environment"
    statement = program.alone(question.call)
    edit = Remove(statement, comments_above=True) if statement is not None else left_out(program, question.call)
    return Finding(question.call, f"{shown(program, question.call)} {said}", (edit,))


def _asked(program: Program, question: Question) -> Finding:
    """Read the variable that the answer is for; nobody answers a process of a job."""
    tree, call, variable = program.tree, question.call, question.variable
    owner = tree.parents[call]
    asked = f"{tree.text(call.func)}() asks a person, and a job has none"
    if question.leaving is not None:
        said = f"{asked}; the script answers {quoted(question.leaving)}, which ends the loop"
        return Finding(call, said, (Replace(call, quoted(question.leaving)),))
    if isinstance(owner, cst.Expr):
        return Finding(call, f"{asked}; the script leaves it out", (Remove(owner),))
    loop = tree.around(call, cst.While, cst.For)
    told = "the loop gets the same answer each time"
    if isinstance(loop, cst.While) and tree.text(loop.test) in ("True", "1") and not _is_left(tree, loop):
        told = "the loop never ends, and nothing below it runs"
    again = "" if loop is None else f"; {told}: take it out"
    edit = _read(program, call, variable, question.may_skip)
    may = ", or leave it out" if question.may_skip else ""
    todo = loop is not None and isinstance(edit, Replace)
    return Finding(call, f"{asked}: set {variable} in the environment{may}{again * todo}", (edit,), todo=todo)


def _is_left(tree: Tree, loop: cst.While) -> bool:
    """Whether something in a loop, or an error, may end it."""
    leaves = any(tree.within(loop, kind) for kind in (cst.Break, cst.Return, cst.Raise, cst.Yield))
    exits = any(re.search(r"\b(exit|quit|kill)$", tree.text(call.func)) for call in tree.within(loop, cst.Call))
    return leaves or exits or tree.around(loop, cst.Try) is not None


def _read(program: Program, asked: cst.BaseExpression, variable: str, may_skip: bool = False) -> Edit:
    """Read the variable in the place of what asks for it; a line that only sets this variable goes."""
    owner = program.tree.parents[asked]
    if isinstance(owner, cst.Expr) or (  # `%env HF_TOKEN=hf_xxx`
        isinstance(owner, cst.Assign) and sets_only(program.tree, owner, variable)
    ):
        return Remove(owner)
    return Replace(asked, f'os.environ.get("{variable}", "")' if may_skip else f'os.environ["{variable}"]')


RULE = Rule(
    name="question-to-a-person",
    find=find,
    severity=Severity.WARNING,
    examples=(
        Example('user = input("Name: ")\n', 'user = os.environ["USER_ANSWER"]\n'),  # every shell sets USER
        Example(
            """\
import os
from getpass import getpass
from huggingface_hub import notebook_login
notebook_login()
os.environ["WANDB_API_KEY"] = getpass("key: ")
hf_token = input("token? ")
""",
            """\
import os
hf_token = os.environ["HF_TOKEN"]
""",
        ),
        Example(
            """\
import os, wandb
from getpass import getpass
from huggingface_hub import login
login(new_session = True, add_to_git_credential = True)
!huggingface-cli login
!hf auth login --token $HF_TOKEN
!wandb login
!huggingface-cli login --token <your token>
wandb.login(relogin = True)
login(token = os.environ["HF_TOKEN"])
typed = getpass("OpenAI key (press Enter to skip): ").strip()
if typed:
    os.environ["OPENAI_API_KEY"] = typed
key = os.environ.get("GROQ_API_KEY") or getpass("key: ")
wandb.login(key = getpass())
name = input("Name: ")
if not name:
    name = None
if "MY_KEY" not in os.environ:
    print("No MY_KEY: type one, or press enter to skip")
    given = getpass("MY_KEY: ")
    if given:
        os.environ["MY_KEY"] = given
""",
            """\
import os, wandb
from huggingface_hub import login
!hf auth login --token $HF_TOKEN
login(token = os.environ["HF_TOKEN"])
typed = os.environ.get("OPENAI_API_KEY", "").strip()
if typed:
    os.environ["OPENAI_API_KEY"] = typed
key = os.environ.get("GROQ_API_KEY") or os.environ["GROQ_API_KEY"]
wandb.login(key = os.environ["WANDB_API_KEY"])
name = os.environ.get("NAME", "")
if not name:
    name = None
if "MY_KEY" not in os.environ:
    print("No MY_KEY: type one, or press enter to skip")
    given = os.environ.get("MY_KEY", "")
    if given:
        os.environ["MY_KEY"] = given
""",
        ),
        Example(
            """\
import os, wandb
from huggingface_hub import HfApi, create_repo, login
os.environ["HF_TOKEN"] = "YOUR API TOKEN"
os.environ["OMP_NUM_THREADS"] = "8"
KEY = "xxxx"  # from wandb.ai
wandb.login(key = KEY)
login("")
create_repo("me/lora", token = "hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH")
api = HfApi(token = "here_I_put_my_token")
if True:
    model.push_to_hub_merged("me/lora", tokenizer, token = "")
if UPLOADS:
    model.push_to_hub("me/lora", token = "hf_...")
try:
    login(token = "hf_xxx")
except ValueError:
    print("no login")
model = load("me/lora", token = "")
""",
            """\
import os, wandb
from huggingface_hub import HfApi, create_repo, login
os.environ["OMP_NUM_THREADS"] = "8"
KEY = os.environ["WANDB_API_KEY"]  # from wandb.ai
wandb.login(key = KEY)
login(os.environ["HF_TOKEN"])
create_repo("me/lora", token = "hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH")
api = HfApi(token = os.environ["HF_TOKEN"])
if True:
    model.push_to_hub_merged("me/lora", tokenizer, token = os.environ["HF_TOKEN"])
if UPLOADS:
    model.push_to_hub("me/lora", token = "hf_...")
try:
    login(token = "hf_xxx")
except ValueError:
    print("no login")
model = load("me/lora", token = "")
""",
        ),
        Example(
            """\
while True:
    title = input("Title: ")
    if title.lower() == "quit":
        break
    print(write(title))
while True:
    try:
        said = input().strip()
    except EOFError:
        break
    if not said or said in ("bye", "exit"): break
""",
            """\
while True:
    title = "quit"
    if title.lower() == "quit":
        break
    print(write(title))
while True:
    try:
        said = "".strip()
    except EOFError:
        break
    if not said or said in ("bye", "exit"): break
""",
        ),
        Example(
            """\
from huggingface_hub import create_repo
ARGS = {"token": "", "other": ""}
class Runner:
    def __init__(self, name, token = None):
        self.token = token
    def push(self, token):
        create_repo("me/lora", token = token)
    def push_kept(self):
        create_repo("me/lora", token = self.token)
def push_if(token):
    if token:
        create_repo("me/lora", token = token)
def try_to_push(token):
    try:
        create_repo("me/lora", token = token)
    except OSError:
        print("no upload")
def push_all(name, token):
    create_repo(name, token = token)
runner = Runner("x", "hf_xxx")
runner.push(token = ARGS["token"])
runner.push_kept()
push_if("")
try_to_push("")
if UPLOADS:
    push_all("me/lora", "")
""",
            """\
from huggingface_hub import create_repo
ARGS = {"token": os.environ["HF_TOKEN"], "other": ""}
class Runner:
    def __init__(self, name, token = None):
        self.token = token
    def push(self, token):
        create_repo("me/lora", token = token)
    def push_kept(self):
        create_repo("me/lora", token = self.token)
def push_if(token):
    if token:
        create_repo("me/lora", token = token)
def try_to_push(token):
    try:
        create_repo("me/lora", token = token)
    except OSError:
        print("no upload")
def push_all(name, token):
    create_repo(name, token = token)
runner = Runner("x", os.environ["HF_TOKEN"])
runner.push(token = ARGS["token"])
runner.push_kept()
push_if("")
try_to_push("")
if UPLOADS:
    push_all("me/lora", "")
""",
        ),
        Example(
            """\
mine = ""  # @param {type: "string"}
model, tokenizer = FastLanguageModel.from_pretrained("x/y", token = mine)
if len(mine) > 0:
    model.push_to_hub("me/lora", token = mine)
""",
            """\
mine = ""  # @param {type: "string"}
model, tokenizer = FastLanguageModel.from_pretrained("x/y", token = mine or None)
if len(mine) > 0:
    model.push_to_hub("me/lora", token = mine)
""",
        ),
        Example(
            "while True:\n    reply(input())\n",
            "while True:\n"
            "    # TODO[nb2ddp] DDP311: input() asks a person, and a job has none: set ANSWER_1 in the environment;"
            " the loop never ends, and nothing below it runs: take it out\n"
            '    reply(os.environ["ANSWER_1"])\n',
        ),
        Example("%env HF_TOKEN=hf_xxx\n%env HF_HOME=/data\n", "%env HF_HOME=/data\n"),
        Example(
            """\
from datasets import load_dataset
from transformers import AutoTokenizer
mine = "your_token_here"
rows = load_dataset("me/rows", token = mine)
model, tokenizer = FastLanguageModel.from_pretrained("x/y", token = "hf_*****")
tokenizer = AutoTokenizer.from_pretrained("x/y", token = None)
tokenizer = AutoTokenizer.from_pretrained("x/y", token = "")
""",
            """\
from datasets import load_dataset
from transformers import AutoTokenizer
mine = os.environ.get("HF_TOKEN")
rows = load_dataset("me/rows", token = mine)
model, tokenizer = FastLanguageModel.from_pretrained("x/y", token = os.environ.get("HF_TOKEN"))
tokenizer = AutoTokenizer.from_pretrained("x/y", token = None)
tokenizer = AutoTokenizer.from_pretrained("x/y", token = os.environ.get("HF_TOKEN"))
""",
        ),
        Example("import pdb; pdb.set_trace()\nif len(rows) == 0: breakpoint()\n", "if len(rows) == 0: pass\n"),
        Example("def input(x):\n    return x\ny = input(1)\n"),
    ),
)
