"""DDP310: Colab's and Kaggle's services are removed; their secrets are read from the environment.

The packages google.colab and kaggle_secrets exist only in hosted notebooks, and nobody can click in a script. Set a
secret such as HF_TOKEN in the job's environment, where every process sees it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import libcst as cst

from nb2ddp.facts.hosted import HOSTED, SECRET, UPLOAD, HostedPath, hosted_name
from nb2ddp.facts.installs import colab_branch
from nb2ddp.facts.needs import secret_variable
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.edits import Edit, Remove, Replace
from nb2ddp.syntax.environ import environ_key
from nb2ddp.syntax.tree import Statement, Tree

#: What a handler may be for that a missing package comes to.
_CATCHES = frozenset({"", "ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_VALUE = "{}(...) works on Colab or Kaggle only, so its value is None in the script: write the value{}"
_THEIRS = "is a path that only Colab or Kaggle has: name one of your machine"
_SEVERAL = "are paths that only Colab or Kaggle has: name those of your machine"
_AT_TOP = "in the check at the top"
_CHECKED = f", here and {_AT_TOP}"
_UPLOADS = "uploads files into the notebook's folder; the script leaves it out: copy them into the job's folder"
_SERVICE = "works on Colab or Kaggle only; the script leaves it out"
_WRITES = "writes to {}, which only Colab or Kaggle has: name a folder of your machine"
_UNMOUNTED = "writes to Colab's Drive, which no job mounts: mount it before the job, or name a folder of your machine"


def find(program: Program) -> Iterator[Finding]:
    tree, imports, handled = program.tree, [*_imports(program)], set[cst.CSTNode]()
    tried: dict[cst.CSTNode, Edit] = {e.node: e for each in imports for e in each.edits if isinstance(e, Replace)}
    tried |= {e.statement: e for each in imports for e in each.edits if isinstance(e, Remove)}
    for call in tree.of(cst.Call):
        name = hosted_name(tree, call)
        if name is None or not handled.isdisjoint(tree.ancestors(call)) or program.installs.covers(call):
            continue
        statement, gone = program.alone(call), next(filter(tried.get, tree.ancestors(call)), None)
        if gone is not None:
            if name == UPLOAD:
                yield Finding(call, f"{name}() {_UPLOADS}", (tried[gone],), severity=Severity.WARNING)
            continue
        handled.add(statement or call)
        if SECRET.fullmatch(name) and call.args:
            yield _secret(tree, call, name)
        elif statement is not None:
            drops = (Remove(statement, keep_comment=False, comments_above=True),)
            yield Finding(call, f"{name}(...) {_SERVICE}", drops)
        elif name == "kaggle_secrets.UserSecretsClient" and (line := tree.around(call, cst.Assign)):
            yield Finding(call, f"{name} {_SERVICE}", (Remove(line, keep_comment=False, comments_above=True),))
        elif name == UPLOAD and (line := tree.around(call, cst.Assign)) is not None and not tree.bound_uses(line):
            yield Finding(call, f"{name}() {_UPLOADS}", (Remove(line),), severity=Severity.WARNING)
        else:
            message = _VALUE.format(name, ", such as {name: open(name, 'rb').read()}" if name == UPLOAD else "")
            yield Finding(call, message, (Replace(call, "None"),), todo=True)
    yield from imports
    yield from _paths(program)


def _secret(tree: Tree, call: cst.Call, name: str) -> Finding:
    """Read a secret from the environment; where the notebook puts it there itself, that line goes."""
    key, owner = tree.literal(call.args[0].value), tree.parents[call]
    variable = secret_variable(key) if isinstance(key, str) else key
    shown = f'"{variable}"' if isinstance(key, str) else tree.text(call.args[0].value)
    edit: Edit = Replace(call, f"os.environ[{shown}]")
    if isinstance(owner, cst.Assign) and environ_key(tree, owner.targets[0].target) == variable:
        edit = Remove(owner)
    said = "reads a secret of Colab or Kaggle; the script reads it from the environment: set it there"
    return Finding(call, f"{name}(...) {said}", (edit,))


def _paths(program: Program) -> Iterator[Finding]:
    """The paths of the hosted notebook, where they are read first: one finding for those of one statement."""
    paths = [path for path in program.hosted_paths if not path.is_made]
    first = {path.text: path for path in reversed(paths)}
    required = {path.text for path in paths if path.required}
    by_statement: dict[Statement, list[HostedPath]] = {}
    for path in paths:
        if first[path.text] is path:
            by_statement.setdefault(program.tree.statement(path.node), []).append(path)
    for path, *others in by_statement.values():
        them = f"{path.text!r} {_THEIRS}" if not others else f"{path.text!r} and {len(others)} more {_SEVERAL}"
        texts = {each.text for each in (path, *others)}
        more = [each.node for each in paths if each.text in texts]
        yield Finding(path.node, f"{them}{_places(program, path.node, more, bool(texts & required))}", todo=True)
    yield from _written(program, set(by_statement))


def _written(program: Program, said: set[Statement]) -> Iterator[Finding]:
    """The folders of the hosted notebook that are written into: one finding for each, where no line says more."""
    nodes: dict[str, list[cst.BaseExpression]] = {}
    for folder, written in program.written_there:
        nodes.setdefault(folder, []).append(written)
    for folder, every in nodes.items():
        for node in [each for each in every if program.tree.statement(each) not in said][:1]:
            said.add(program.tree.statement(node))
            writes = _UNMOUNTED if "drive" in folder else _WRITES.format(folder)
            others = [each for each in every if program.location(each).cell != program.location(node).cell]
            yield Finding(node, f"{writes}{_places(program, node, others)}", todo=True)


def _places(program: Program, node: cst.CSTNode, others: Iterable[cst.CSTNode], is_checked: bool = False) -> str:
    """Where else a path stands, for the end of a message: `, here, in cell 3 and in the check at the top`."""
    statement = program.tree.statement(node)
    more = [each for each in others if program.tree.statement(each) is not statement]
    numbers = list(dict.fromkeys(str(program.location(each).cell) for each in more))
    cells = (
        [f"in cells {', '.join(numbers[:-1])} and {numbers[-1]}"] if numbers[1:] else [f"in cell {n}" for n in numbers]
    )
    *places, last = ["here", *cells, *[_AT_TOP] * is_checked]
    return f", {', '.join(places)} and {last}" if places else ""


def _is_for_colab(tree: Tree, node: cst.CSTNode) -> bool:
    """True below a test whether this is Colab, which the script answers with no."""
    around = [*tree.ancestors(node)]
    return any(colab_branch(tree, above) in around for above in around)


def _imports(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for statement, module, kept in tree.imports(*HOSTED):
        if program.installs.covers(statement):
            continue
        edit: Edit = Replace(statement, kept) if kept else Remove(statement, keep_comment=False, comments_above=True)
        tried = tree.around(statement, cst.Try)
        if tried is not None and not (_is_for_colab(tree, statement) or _gives_secrets(tree, tried)):
            edit = _handled(tree, tried, statement) or Replace(statement, 'raise ImportError("not a hosted notebook")')
        yield Finding(statement, f"{module} works on Colab or Kaggle only; the script does without it", (edit,))


def _gives_secrets(tree: Tree, tried: cst.Try) -> bool:
    """True for a `try` that asks the hosted notebook for secrets alone, and does without where there are none.

    A variable that the environment lacks then ends it as the secret did.
    """
    names = [name for call in tree.within(tried.body, cst.Call) if (name := hosted_name(tree, call)) is not None]
    caught = {_caught(tree, handler) for handler in tried.handlers}
    all_secrets = all(SECRET.fullmatch(name) or name.endswith("UserSecretsClient") for name in names)
    return bool(names) and all_secrets and not caught.isdisjoint(("", "Exception", "BaseException"))


def _caught(tree: Tree, handler: cst.ExceptHandler) -> str:
    """What a handler catches, as code; "" for everything."""
    return "" if handler.type is None else tree.text(handler.type)


def _handled(tree: Tree, tried: cst.Try, statement: cst.Import | cst.ImportFrom) -> Edit | None:
    """Put what handles a failed import in its place, where the `try` begins with it, and that only binds and prints."""
    if not tried.handlers or tried.orelse or tried.finalbody:
        return None
    handler = tried.handlers[0]
    error = tree.text(handler.name.name) if handler.name is not None else ""
    lines = handler.body.body
    told = [line for line in lines if error and error in map(tree.text, tree.within(line, cst.Name))]
    prints = all(tree.qualified(call.func) == "print" for call in tree.within(handler, cst.Call))
    plain = prints and not any(isinstance(line, cst.BaseCompoundStatement) for line in lines)
    only_tells = all(re.fullmatch(r"(?s)print\(.*\)", tree.text(line)) for line in told)
    is_first = tree.parents[statement] is tried.body.body[0]
    if not (plain and only_tells and is_first) or _caught(tree, handler) not in _CATCHES:
        return None
    kept = [tree.text(line) for line in lines if line not in told and tree.text(line) != "pass"]
    if kept:
        return Replace(tried, f"\n{tree.indentation(tried)}".join(kept))
    return Remove(tried, keep_comment=False, comments_above=True)


RULE = Rule(
    name="hosted-notebook-service",
    find=find,
    examples=(
        Example(
            """\
from google.colab import drive, files
# keep the checkpoints
drive.mount("/content/drive")

x = 1
try:
    files.download("model.gguf")
except Exception as error:
    print(error)
try:
    from google.colab import files
    uploaded = files.upload()
    print(uploaded.keys())
except Exception as error:
    print("put the rows beside the script")
# the disk
try:
    from google.colab import drive as disk
    disk.mount("/content/drive")
    print("mounted")
except Exception as error:
    print(f"no Drive: {error}")
y = 2
""",
            """\
x = 1
print("put the rows beside the script")
y = 2
""",
        ),
        Example(
            """\
# Run this on Colab
from google.colab import drive
drive.mount("/content/drive")

# the rows, and where they come from
from google.colab import files
rows = load("rows")
""",
            """\
# the rows, and where they come from
rows = load("rows")
""",
        ),
        Example(
            """\
from google.colab import drive, userdata, files
if IN_COLAB:
    drive.mount("/drive")
drive.mount("/drive")  # for the checkpoints
token = userdata.get("HF_TOKEN")
files.download("model.gguf")
""",
            'token = os.environ["HF_TOKEN"]\n',
        ),
        Example(
            """\
from google.colab import userdata
import os
os.environ["HF_TOKEN"] = userdata.get("HF_TOKEN")
os.environ["WANDB_API_KEY"] = userdata.get("wandb-key")
""",
            'import os\nos.environ["WANDB_API_KEY"] = os.environ["wandb_key"]\n',
        ),
        Example(
            """\
from kaggle_secrets import UserSecretsClient
secrets = UserSecretsClient()
token = secrets.get_secret("hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH")
""",
            'token = os.environ["HF_TOKEN"]\n',
        ),
        Example(
            """\
try:
    import google.colab
    in_colab = True
except ImportError:
    in_colab = False
""",
            "in_colab = False\n",
        ),
        Example(
            """\
token = None
# the hosted notebook's secret
try:
    from google.colab import userdata
    token = userdata.get("HF_TOKEN")
    if token:
        print("found")
except ImportError:
    pass  # elsewhere
except ValueError:
    pass  # not set
login(token)
""",
            """\
token = None
login(token)
""",
        ),
        Example(
            """\
try:
    from google.colab import userdata
    token = userdata.get("HF_TOKEN")
except ValueError:
    token = ""
except ImportError:
    token = None
""",
            """\
try:
    raise ImportError("not a hosted notebook")
    token = os.environ["HF_TOKEN"]
except ValueError:
    token = ""
except ImportError:
    token = None
""",
        ),
        Example(
            """\
import os, sys
try:
    if "google.colab" in sys.modules:
        from google.colab import drive
        drive.mount("/content/drive")
        root = "/content/drive/MyDrive"
except ImportError:
    print("elsewhere")
try:
    from google.colab import userdata
    token = userdata.get("HF_TOKEN")
except Exception:
    token = os.environ.get("HF_TOKEN")
from google.colab import files
uploaded = files.upload()
name = list(uploaded.keys())[0]
""",
            """\
import os, sys
try:
    if "google.colab" in sys.modules:
        root = "/content/drive/MyDrive"
except ImportError:
    print("elsewhere")
try:
    token = os.environ["HF_TOKEN"]
except Exception:
    token = os.environ.get("HF_TOKEN")
# TODO[nb2ddp] DDP310: google.colab.files.upload(...) works on Colab or Kaggle only, so its value is None in the \
script: write the value, such as {name: open(name, 'rb').read()}
uploaded = None
name = list(uploaded.keys())[0]
""",
        ),
        Example(
            """\
try:
    from google.colab import output
    done()
except ImportError:
    print("elsewhere")
""",
            'print("elsewhere")\n',
        ),
        Example(
            """\
try:
    from google.colab import output
    done()
except ImportError:
    output = connect()
uploaded = files.upload()
from google.colab import files
uploaded = files.upload() # rows.csv
""",
            """\
try:
    raise ImportError("not a hosted notebook")
    done()
except ImportError:
    output = connect()
uploaded = files.upload()
# rows.csv
""",
        ),
        Example(
            """\
rows = load("/content/drive/MyDrive/rows.csv")
more = load("/content/drive/MyDrive/more.csv")
""",
            f"""\
# TODO[nb2ddp] DDP310: '/content/drive/MyDrive/rows.csv' {_THEIRS}{_CHECKED}
rows = load("/content/drive/MyDrive/rows.csv")
# TODO[nb2ddp] DDP310: '/content/drive/MyDrive/more.csv' {_THEIRS}{_CHECKED}
more = load("/content/drive/MyDrive/more.csv")
""",
        ),
        Example(
            """\
import os
on_kaggle = "KAGGLE_KERNEL_RUN_TYPE" in os.environ
root = "/kaggle/input/rows" if on_kaggle else "rows"
if not on_kaggle:
    more = "more"
else:
    more = "/kaggle/input/more"
"""
        ),
        Example('import os\nroot = "/content/rows"\nif os.path.exists(root):\n    rows = load(root)\n'),
        Example(
            '!mkdir -p /content/rows\nrows = load("/content/rows/a.csv")\n',
            f"# TODO[nb2ddp] DDP310: {_WRITES.format('/content')}\n"
            '!mkdir -p /content/rows\nrows = load("/content/rows/a.csv")\n',
        ),
        Example(
            """\
args = SFTConfig(output_dir = "/kaggle/working/outputs")
log = open("/kaggle/working/log.txt", "w")
# %%
try:
    model.save_pretrained("/kaggle/working/tried")
except OSError:
    print("not saved")
# %%
model.save_pretrained("/kaggle/working/lora")
# %%
model.save_pretrained("/content/drive/MyDrive/lora")
# %%
model.save_pretrained("/kaggle/working/merged")
""",
            f"""\
# TODO[nb2ddp] DDP310: {_WRITES.format("/kaggle/working")}, here and in cells 3 and 5
args = SFTConfig(output_dir = "/kaggle/working/outputs")
log = open("/kaggle/working/log.txt", "w")
# %%
try:
    model.save_pretrained("/kaggle/working/tried")
except OSError:
    print("not saved")
# %%
model.save_pretrained("/kaggle/working/lora")
# %%
# TODO[nb2ddp] DDP310: {_UNMOUNTED}
model.save_pretrained("/content/drive/MyDrive/lora")
# %%
model.save_pretrained("/kaggle/working/merged")
""",
        ),
        Example(
            """\
!cp /content/drive/MyDrive/a.zip /content/drive/MyDrive/b.zip
# %%
model.save_pretrained("/content/drive/MyDrive/lora")
""",
            f"""\
# TODO[nb2ddp] DDP310: '/content/drive/MyDrive/a.zip' {_THEIRS}
!cp /content/drive/MyDrive/a.zip /content/drive/MyDrive/b.zip
# %%
# TODO[nb2ddp] DDP310: {_UNMOUNTED}, here and in cell 1
model.save_pretrained("/content/drive/MyDrive/lora")
""",
        ),
        Example('args = SFTConfig(output_dir = "outputs")\nlog = open("/tmp/log.txt", "w")\n'),
        Example(
            '!unzip /content/rows.zip -d rows\nname = f"/kaggle/input/{folder}"\n',
            f"# TODO[nb2ddp] DDP310: '/content/rows.zip' {_THEIRS}\n"
            "!unzip /content/rows.zip -d rows\n"
            f"# TODO[nb2ddp] DDP310: '/kaggle/input/{{folder}}' {_THEIRS}\n"
            'name = f"/kaggle/input/{folder}"\n',
        ),
        Example(
            "import os\nfor folder, _, names in os.walk('/kaggle/input'):\n    for name in names:\n"
            "        print(os.path.join(folder, name))\n"
        ),
        Example(
            'files = ["/content/a.csv", "/content/b.csv"]\n',
            f"# TODO[nb2ddp] DDP310: '/content/a.csv' and 1 more {_SEVERAL}\n"
            'files = ["/content/a.csv", "/content/b.csv"]\n',
        ),
        Example(
            """\
first = show("/content/a.png")
# %%
second = open("/content/a.png")
""",
            f"""\
# TODO[nb2ddp] DDP310: '/content/a.png' {_THEIRS}, here, in cell 2 {_CHECKED.removeprefix(", here ")}
first = show("/content/a.png")
# %%
second = open("/content/a.png")
""",
        ),
        Example(
            """\
import os
from google.colab import drive
drive.mount("/content/drive")
OUT = "/content/drive/MyDrive/out"
os.makedirs(OUT, exist_ok = True)
model.save_pretrained(f"{OUT}/lora")
""",
            f"""\
import os
# TODO[nb2ddp] DDP310: {_UNMOUNTED}
OUT = "/content/drive/MyDrive/out"
os.makedirs(OUT, exist_ok = True)
model.save_pretrained(f"{{OUT}}/lora")
""",
        ),
        Example("!head '/content/drive/MyDrive/a b/rows.jsonl'\n"),
        Example('import google.auth\nname = settings.get("name")\n'),
    ),
)
