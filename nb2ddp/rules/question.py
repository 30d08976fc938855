"""DDP311: `input()`, `getpass()` and logins read environment variables instead; `breakpoint()` is removed.

Every process would wait for an answer, and a job has nobody to give one. This covers `login()`, `notebook_login()`,
`wandb login`, `hf auth login` and the like, and a text that stands for a token (`""`, `hf_xxx`, `YOUR_TOKEN`) in a
login, an upload or a variable. The Hub's libraries read HF_TOKEN themselves, Weights & Biases reads WANDB_API_KEY. A
question below a test whether the variable is set loses that test, where nothing else binds the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.program import Program
from nb2ddp.facts.questions import Question
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule, left_out, shown
from nb2ddp.syntax.edits import Edit, Remove, Replace
from nb2ddp.syntax.environ import sets_only
from nb2ddp.syntax.tree import Tree


def find(program: Program) -> Iterator[Finding]:
    asked = [each for each in program.questions if not program.installs.covers(each.call)]
    for question in asked:
        yield _login(program, question) if question.is_login else _asked(program, question)
    for text, variable in program.tokens_to_fill_in.items():
        if not program.installs.covers(text):
            form = program.form(text)
            said = f"{program.tree.text(text) if form is None else form.source} stands for a token"
            yield Finding(text, f"{said}: set {variable} in the environment", (_read(program, text, variable),))


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
    if isinstance(owner, cst.Expr):
        return Finding(call, f"{asked}; the script leaves it out", (Remove(owner),))
    loop = tree.around(call, cst.While, cst.For)
    told = "the loop gets the same answer each time"
    if isinstance(loop, cst.While) and tree.text(loop.test) in ("True", "1") and not _is_left(tree, loop):
        told = "the loop never ends, and nothing below it runs"
    again = "" if loop is None else f"; {told}: take it out"
    edit = _read(program, call, variable, question.may_skip)
    if question.test is not None and isinstance(edit, Replace):
        edit = _without_test(tree, question.test, edit)
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


def _without_test(tree: Tree, test: cst.If, answer: Replace) -> Replace:
    """Bind an answer without the test whether its variable is set, as nothing else binds it where that is."""
    (start, end), asked = tree.span(answer.node), [*tree.ancestors(answer.node)]
    kept = list[str]()
    for line in test.body.body:
        first, last = tree.span(line)
        if line in asked:
            kept.append(f"{tree.source[first:start]}{answer.text}{tree.source[end:last]}")
        elif not re.match(r"print\(", tree.text(line)):  # what it prints asks for an answer
            kept.append(tree.source[first:last])
    return Replace(test, "\n".join(kept))


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
from getpass import getpass
from huggingface_hub import notebook_login
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
if "MY_KEY" not in os.environ:
    print("No MY_KEY: type one, or press enter to skip")
    given = getpass("MY_KEY: ")
    if given:
        os.environ["MY_KEY"] = given
""",
            """\
import os, wandb
from getpass import getpass
from huggingface_hub import login
!hf auth login --token $HF_TOKEN
login(token = os.environ["HF_TOKEN"])
typed = os.environ.get("OPENAI_API_KEY", "").strip()
if typed:
    os.environ["OPENAI_API_KEY"] = typed
key = os.environ.get("GROQ_API_KEY") or os.environ["GROQ_API_KEY"]
wandb.login(key = os.environ["WANDB_API_KEY"])
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
            "while True:\n    reply(input())\n",
            "while True:\n"
            "    # TODO[nb2ddp] DDP311: input() asks a person, and a job has none: set ANSWER_1 in the environment;"
            " the loop never ends, and nothing below it runs: take it out\n"
            '    reply(os.environ["ANSWER_1"])\n',
        ),
        Example("%env HF_TOKEN=hf_xxx\n%env HF_HOME=/data\n", "%env HF_HOME=/data\n"),
        Example(
            "import pdb; pdb.set_trace()\nif len(rows) == 0: breakpoint()\n", "import pdb\nif len(rows) == 0: pass\n"
        ),
        Example(
            """\
import os
if not os.getenv("MY_KEY"):
    print("Type your key.")
    key = input("Key: ").strip()
other = os.getenv("OTHER_KEY")
if not other: other = input("Key: ")
""",
            """\
import os
key = os.environ["MY_KEY"].strip()
other = os.getenv("OTHER_KEY")
if not other: other = os.environ["OTHER_KEY"]
""",
        ),
        Example("def input(x):\n    return x\ny = input(1)\n"),
    ),
)
