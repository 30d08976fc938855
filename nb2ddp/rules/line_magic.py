"""DDP303: line magics become the Python that they stand for, or go."""

from __future__ import annotations

from collections.abc import Iterator

from nb2ddp.edits import Remove, Replace
from nb2ddp.ipython import Kind, Syntax
from nb2ddp.model import Severity
from nb2ddp.once import WAIT, on_main_process, once_a_machine
from nb2ddp.program import Finding, Program
from nb2ddp.rule import Example, Rule
from nb2ddp.shell import is_install, only_shows, parse

#: Magics that change or show the notebook only.
_NOTEBOOK_ONLY = frozenset(
    "alias autoawait autocall autoindent automagic autosave bookmark clear cls colors config connect_info debug dhist"
    " dirs doctest_mode edit gui hist history killbgscripts less load_ext logoff logon logstart logstate logstop lsmagic"
    " man matplotlib mkdirs more notebook page pastebin pdb pdef pdoc pfile pinfo pinfo2 pprint precision profile"
    " psearch psource pylab qtconsole quickref recall reload_ext rehashx rep rerun reset reset_selective save store tb"
    " unload_ext who who_ls whos xdel xmode autoreload aimport watermark tensorboard load_interactive".split()
)
#: Magics that are shell commands under another name.
_SHELL = frozenset("cat cp head ldir lf lk ll ls lx mkdir mv rm rmdir sx system tail".split())
_TIMERS = frozenset({"time", "timeit", "prun", "memit", "mprun", "lprun"})
#: Handled by rules of their own.
_ELSEWHERE = frozenset({"env", "set_env", "pip", "conda", "mamba", "uv", "micromamba"})


def find(program: Program) -> Iterator[Finding]:
    for call, form in program.forms_of(Kind.LINE_MAGIC):
        if form.name not in _ELSEWHERE and not is_install(form.text if form.name in ("sx", "system") else ""):
            yield _finding(program, call, form)


def _finding(program: Program, call: object, form: Syntax) -> Finding:
    statement = program.alone(call)  # type: ignore[arg-type]
    message = f"%{form.name} is IPython's"
    node = call
    if form.name in ("cd", "pushd") and statement is not None:
        target = form.text.strip("'\"") if form.text[:1] in ("'", '"') else form.text
        if target in ("", "~"):
            code = 'os.chdir(os.path.expanduser("~"))'
        else:
            path = parse(target, program.tree).expression
            code = f"os.chdir(os.path.expanduser({path}))" if target.startswith("~") else f"os.chdir({path})"
        return Finding(node, message, edits=(Replace(statement, code),))  # type: ignore[arg-type]
    if form.name == "pwd":
        edit = Remove(statement) if statement is not None else Replace(node, "os.getcwd()")  # type: ignore[arg-type]
        return Finding(node, message, edits=(edit,))  # type: ignore[arg-type]
    if form.name in _TIMERS and form.text and statement is not None:
        code = form.text
        while code.startswith("-"):  # %timeit -n 10 f(x)
            code = code.split(None, 2)[2] if len(code.split(None, 2)) == 3 else ""
        return Finding(node, message, edits=(Replace(statement, code),) if code else (Remove(statement),))  # type: ignore[arg-type]
    if form.name in _SHELL and statement is not None:
        text = form.text if form.name in ("sx", "system") else f"{form.name} {form.text}".strip()
        if only_shows(text):
            return Finding(
                node,  # type: ignore[arg-type]
                message,
                edits=(Replace(statement, parse(text, program.tree).run), *on_main_process(program, statement)),
                needs=frozenset({"subprocess"}),
            )
        return Finding(
            node,  # type: ignore[arg-type]
            message,
            edits=(Replace(statement, parse(text, program.tree).run), *once_a_machine(program, statement)),
            needs=WAIT | {"subprocess"},
        )
    if form.name in _SHELL | {"sx", "system"}:
        text = form.text if form.name in ("sx", "system") else f"{form.name} {form.text}".strip()
        code = parse(text, program.tree).lines
        return Finding(node, message, edits=(Replace(node, code),), needs=frozenset({"subprocess"}))  # type: ignore[arg-type]
    if statement is not None and (form.name in _NOTEBOOK_ONLY or form.name in _TIMERS):
        return Finding(node, message, edits=(Remove(statement),))  # type: ignore[arg-type]
    return Finding(
        node,  # type: ignore[arg-type]
        f"%{form.name} has no counterpart in a script: write what it does in Python",
        edits=(Replace(node, "None"),) if statement is None else (Remove(statement),),  # type: ignore[arg-type]
        severity=Severity.WARNING,
        todo=True,
    )


RULE = Rule(
    code="DDP303",
    name="line-magic",
    summary="`%cd` becomes `os.chdir`, `%time f()` becomes `f()`, `%ls` and its like run as shell commands; magics that only"
    " steer the notebook go.",
    why="A script has no magics. `%cd` changes the folder of each process, so every process runs it.",
    find=find,
    examples=(
        Example('%matplotlib inline\n%cd data/sub\nplace = %pwd\n', 'os.chdir("data/sub")\nplace = os.getcwd()\n'),
        Example("%time result = f(1)\n", "result = f(1)\n"),
        Example("x = a %b\n"),
    ),
)
