"""DDP310: leave Colab's and Kaggle's services; secrets come from the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.environment import environ_key
from nb2ddp.facts.program import Program
from nb2ddp.results import Severity
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.bindings import dotted
from nb2ddp.syntax.edits import Edit, Remove, Replace
from nb2ddp.syntax.tree import Tree

_HOSTED = ("google.colab", "kaggle_secrets", "kaggle_web_client")
_SECRET = re.compile(r"google\.colab\.userdata\.get|.*\.get_secret|kaggle_secrets\.UserSecretsClient\.get_secret")
_PATH = re.compile(r"/(content|kaggle)(/|$)")


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    handled: list[tuple[int, int]] = []
    for call in tree.of(cst.Call):
        if any(start <= tree.start(call) < end for start, end in handled) or program.installs.covers(call):
            continue
        name = _hosted_name(tree, call)
        if name is None:
            continue
        statement = program.alone(call)
        handled.append(tree.span(statement or call))
        if _SECRET.fullmatch(name) and call.args:
            key = tree.literal(call.args[0].value)
            owner = tree.parents[call]
            if isinstance(owner, cst.Assign) and environ_key(tree, owner.targets[0].target) == key:
                yield Finding(
                    call,
                    f"{name}(...) reads a secret of the hosted notebook: set it in the environment",
                    (Remove(owner),),
                )
                continue
            code = f'os.environ["{key}"]' if isinstance(key, str) else f"os.environ[{tree.text(call.args[0].value)}]"
            yield Finding(
                call,
                f"{name}(...) reads a secret of the hosted notebook: set it in the environment",
                (Replace(call, code),),
            )
        elif statement is not None:
            yield Finding(call, f"{name}(...) is a service of the hosted notebook", (Remove(statement),))
        elif name == "kaggle_secrets.UserSecretsClient":
            yield Finding(call, f"{name} is a service of the hosted notebook", (Remove(_small(tree, call)),))
        else:
            yield Finding(
                call,
                f"{name}(...) is a service of the hosted notebook: give its value by other means",
                (Replace(call, "None"),),
                severity=Severity.WARNING,
                todo=True,
            )
    yield from _imports(program)
    for comparison in tree.of(cst.Comparison):
        if "google.colab" in tree.text(comparison) and not program.installs.covers(comparison):
            answer = "True" if " not in " in tree.text(comparison) else "False"
            yield Finding(comparison, "asks whether this is Colab: it is not", (Replace(comparison, answer),))
    for string in tree.of(cst.SimpleString):
        value = string.evaluated_value
        if (
            isinstance(value, str)
            and _PATH.match(value)
            and tree.is_live(string)
            and not program.installs.covers(string)
            and not any(start <= tree.start(string) < end for start, end in handled)
        ):
            yield Finding(
                string,
                f"{value!r} is a folder of the hosted notebook: name one that this machine has",
                severity=Severity.WARNING,
                todo=True,
            )


def _hosted_name(tree: Tree, call: cst.Call) -> str | None:
    """The full name of a call of Colab's or Kaggle's packages, through an object of theirs too."""
    name = tree.qualified(call.func)
    if name.startswith(_HOSTED):
        return name
    if isinstance(call.func, cst.Attribute):
        owner = tree.value(call.func.value)
        if isinstance(owner, cst.Call) and tree.qualified(owner.func).startswith(_HOSTED):
            return f"{tree.qualified(owner.func)}.{call.func.attr.value}"
    return None


def _small(tree: Tree, node: cst.CSTNode) -> cst.BaseSmallStatement:
    return next(a for a in tree.ancestors(node) if isinstance(a, cst.BaseSmallStatement))


def _imports(program: Program) -> Iterator[Finding]:
    tree = program.tree
    statements: list[tuple[cst.Import | cst.ImportFrom, str]] = [
        (s, dotted(s.module)) for s in tree.of(cst.ImportFrom) if s.module is not None
    ]
    statements += [(s, s.names[0].evaluated_name) for s in tree.of(cst.Import)]
    for statement, module in statements:
        names = () if isinstance(statement.names, cst.ImportStar) else statement.names
        imports = [alias.evaluated_name for alias in names]
        colab = module.startswith(_HOSTED) or (module == "google" and imports == ["colab"])
        if not colab or program.installs.covers(statement):
            continue
        edit: Edit = Remove(statement)
        if any(isinstance(above, cst.Try) for above in tree.ancestors(statement)):
            edit = Replace(statement, 'raise ImportError("not a hosted notebook")')
        yield Finding(statement, f"{module} is the hosted notebook's", (edit,))


RULE = Rule(
    code="DDP310",
    name="hosted-notebook-service",
    summary="Colab's and Kaggle's services go; their secrets are read from the environment.",
    why="The packages google.colab and kaggle_secrets exist in their notebooks alone, and a script has nobody to"
    " click. A secret such as HF_TOKEN is set in the environment of the job, where every process sees it.",
    find=find,
    examples=(
        Example(
            """\
from google.colab import drive, userdata, files
drive.mount("/drive")
token = userdata.get("HF_TOKEN")
files.download("model.gguf")
""",
            'token = os.environ["HF_TOKEN"]\n',
        ),
        Example(
            """\
from kaggle_secrets import UserSecretsClient
secrets = UserSecretsClient()
token = secrets.get_secret("HF_TOKEN")
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
            """\
try:
    raise ImportError("not a hosted notebook")
    in_colab = True
except ImportError:
    in_colab = False
""",
        ),
        Example('import google.auth\nname = settings.get("name")\n'),
    ),
)
