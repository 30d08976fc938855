"""Rehearsals before and during the run of a script: what is requested and made, and how a process uses libraries."""

from __future__ import annotations

import ast
import json
import os
import pickle
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result

from nb2ddp.cli.main import main
from nb2ddp.project import links
from nb2ddp.rehearsal import rehearse
from nb2ddp.rehearsal.hub import DataHints, Hub, answering_server
from nb2ddp.rehearsal.plan import Plan, PlanError
from nb2ddp.rehearsal.questions import QUESTIONS
from nb2ddp.rehearsal.run import environment, launched
from nb2ddp.rehearsal.stage import learn, packages, shapes
from nb2ddp.rehearsal.stage.attempts import Attempts, rests_on
from nb2ddp.rehearsal.stage.columns import columns, read_of_rows
from nb2ddp.rehearsal.stage.device import seen_by_script
from nb2ddp.rehearsal.stage.fast import Fast
from nb2ddp.rehearsal.stage.files import Sources
from nb2ddp.rehearsal.stage.hooks import UnknownError, attribute
from nb2ddp.rehearsal.stage.log import Log
from nb2ddp.rehearsal.stage.schema import Schema
from nb2ddp.rehearsal.stage.shrink import shrunk
from tests import rehearsals
from tests.examples import table
from tests.notebook.test_marimo import TRAINING
from tests.notebooks import text as notebook
from tests.rehearsals import read
from tests.test_verdict import PLAN, trains

from .e2e.faults import FAULTS, FOLDER, GOOD


@pytest.fixture(autouse=True)
def _libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that every package is installed: these tests run nothing."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)


def rehearsed(*words: str) -> Result:
    return CliRunner().invoke(main, ["rehearse", *words])


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that the command rehearses and finds ready after some steps."""
    found: list[Plan] = []

    def found_ready(plan: Plan, options: object, tell: Any) -> object:
        found.append(plan)
        for step in ("installing", "", "1 process: line 7: step", "1 process: line 8: step", "2 processes: starting"):
            tell(step)
        return trains(plan=plan)

    monkeypatch.setattr("nb2ddp.rehearsal.rehearse.rehearse", found_ready)
    return found


def test_marimo_notebooks_are_converted_and_exported_scripts_are_not(plans: list[Plan], tmp_path: Path) -> None:
    marimo, exported = tmp_path / "a.py", tmp_path / "b.py"
    marimo.write_text(TRAINING)
    exported.write_text("# In[1]:\n\n\nTrainer(model).train()\n")
    result = rehearsed(str(marimo), "--format", "json", "--versions", "here")
    assert result.stderr == "installing\n1 process: line 7: step\n2 processes: starting\n"  # stderr is not a terminal
    rehearsed(str(exported), "--versions", "here")
    assert [plan.name for plan in plans] == ["a.py", "b.py"]
    assert "# %% Distributed setup" in plans[0].text
    assert plans[1].text == exported.read_text()


def test_a_link_is_fetched_and_converted(plans: list[Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "fetch", lambda link: notebook().encode())
    rehearsed("https://github.com/me/notebooks/blob/main/tune.ipynb", "--versions", "here")
    assert plans[0].name == "tune.py"
    assert "# %% Distributed setup" in plans[0].text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("http://example.com/a.ipynb", "http://example.com/a.ipynb: only https links are fetched"),
        ("https://127.0.0.1/a.ipynb", "https://127.0.0.1/a.ipynb: "),
        ("folder", "folder: is a folder, not a notebook"),
        ("picture.ipynb", "picture.ipynb: not a notebook: not UTF-8 (invalid start byte at byte 0)"),
        ("text.ipynb", "text.ipynb: "),
        ("nothing.py", "nothing.py: there is no such file\n"),
        ("alone.py", "alone.py: it has no training"),
        ("broken.py", "broken.py:1: it is not Python"),
        ("zero.py", "zero.py: it is not Python"),
    ],
)
def test_bad_sources_get_one_line(source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("picture.ipynb").write_bytes(b"\x89PNG")
    for name, text in (
        ("text.ipynb", "Not JSON."),
        ("alone.py", "x = 1\n"),
        ("broken.py", "x = (\n"),
        ("zero.py", "\0"),
    ):
        Path(name).write_text(text)
    result = rehearsed(source)
    assert (result.exit_code, len(result.output.splitlines())) == (2, 1)
    assert result.output.startswith(message)


def test_an_error_of_ours_is_none_of_the_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("Trainer(model).train()\n")
    monkeypatch.setattr("nb2ddp.rehearsal.rehearse.rehearse", lambda *_: 1 / 0)
    result = rehearsed(str(tmp_path / "train.py"))
    assert result.exit_code == 2
    assert "an error of nb2ddp rehearse, not of the script: ZeroDivisionError" in result.output


def test_readme_and_page_tell_of_all_questions() -> None:
    (ready,) = rehearsals.READY.findall(rehearsals.README.read_text(encoding="utf-8"))
    (wrong,) = rehearsals.FAULTS.findall(rehearsals.PAGE.read_text(encoding="utf-8"))
    questions = [question for question, _ in QUESTIONS]
    assert re.findall(r"^  ✓ (.+?)  ", ready, re.MULTILINE) == questions
    faults = re.findall(r"^  ✗ (.+?)  ", wrong, re.MULTILINE)
    assert f"{len(faults)} of {len(questions)} questions show a fault" in wrong
    assert set(faults) < set(questions)


def planned(folder: Path, text: str) -> Plan:
    (folder / "train.py").write_text(text)
    return read(folder / "train.py")


def test_what_a_script_says_of_its_data(tmp_path: Path) -> None:
    text = (
        'rows = load_dataset("me/rows", "deutsch", split = "dev[:50]").select(range(900))\n'
        'rows.map(lambda row: {"text": row["frage"] + row["antwort"]})\nTrainer(model).train()\n'
    )
    assert planned(tmp_path, text).data == {
        "": DataHints(("train", "test", "validation"), ("default",), 1200),
        "me/rows": DataHints(("dev", "train", "test", "validation"), ("deutsch",), 1200),
    }


@table(__file__, "unsloth")
def test_text_trains_with_the_real_unsloth(code: str, answers: list[str], tmp_path: Path) -> None:
    text = f"from unsloth import FastLanguageModel\n{code}\nSFTTrainer(model).train()\n"
    assert [planned(tmp_path, text).unsloth] == answers


def test_variables_that_are_not_set_have_a_value(tmp_path: Path) -> None:
    text = (
        'os.environ["MINE"] = os.getenv("EPOCHS") + {**os.environ}["RANK"] + os.environ["MINE"]\n'
        'if "THE_KEY" in os.environ: os.environ.setdefault("MODE", "a") == os.environ["MODE"]\nTrainer(model).train()\n'
    )
    plan = planned(tmp_path, text)
    assert plan.variables == {"MINE": True, "EPOCHS": False, "THE_KEY": True}
    given = environment(plan, tmp_path / "run", {})
    assert [given.get(name) for name in ("MINE", "EPOCHS", "THE_KEY")] == ["rehearsal", None, "rehearsal"]


def test_a_module_beside_the_script_is_one_of_its_files_and_a_long_text_is_none(tmp_path: Path) -> None:
    (tmp_path / "rows.py").touch()
    text = f"from rows import made\nsay('{'違' * 150}')\nTrainer(made).train()\n"
    assert planned(tmp_path, text).files == (tmp_path / "rows.py",)


def test_missing_packages_are_named_with_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "accelerate" else name)
    with pytest.raises(PlanError, match=r"needs accelerate: install uv .*docs/rehearsal.md"):
        planned(tmp_path, "Trainer(model).train()\n")


def test_secrets_and_launchers_stay_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MY_API_KEY", "HF_TOKEN", "WANDB_API_KEY", "RANK", "MASTER_ADDR"):
        monkeypatch.setenv(name, "from outside")
    assert "from outside" not in environment(PLAN, tmp_path, {}).values()
    assert launched(0, 1, 5, tmp_path) == {}


def test_faults_are_changes_to_scripts_that_are_read(tmp_path: Path) -> None:
    assert len(FAULTS) >= 25
    assert all(read(FOLDER / f"{name}.py").trainers for name in GOOD)
    for fault in FAULTS.values():
        assert fault.line in planned(tmp_path, fault.text()).text


def test_hub_builds_what_is_asked_for_into_its_cache(tmp_path: Path) -> None:
    built = []

    def build(request: dict[str, Any]) -> str:
        built.append(request["name"])
        return "no room"

    hub = Hub(tmp_path, build)
    for folder in ("models--me--broken", "models--my_folder", "models--me--broken"):
        asked = tmp_path / "asked" / folder
        asked.touch()
        deadline = time.monotonic() + 20
        while asked.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    hub.close()
    assert built == ["me/broken"]  # once
    assert hub.offered == {("models", "me/broken"): "no room"}


def test_a_server_that_was_not_started_is_answered_for() -> None:
    with answering_server() as port:
        answers = []
        for data in (None, b"Rate this", b"Rate that", b"Rate this"):
            asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", data)
            answers.append(json.load(urllib.request.urlopen(asked))["choices"][0]["message"]["content"])
        assert answers == ["0", "7", "0", "7"]


def test_a_hub_that_is_slow_is_asked_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Slow:
        """A builder that keeps running while it may ask the hub."""

        def start(self, *command: str, environment: Mapping[str, str], **where: Path) -> subprocess.Popen[bytes]:
            asked.append(environment.get("HF_HUB_OFFLINE"))
            return subprocess.Popen(["true"] if asked[-1] else ["sleep", "100"], start_new_session=True)

    monkeypatch.setattr(rehearse, "PATIENCE", 0.1)
    environ: dict[str, str] = {}
    for _ in range(2):
        assert rehearse.built(cast("Any", Slow()), tmp_path, environ, {}) == ""
    assert asked == [None, "1", "1"]


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="has no such sockets")
def test_sockets_fit_below_long_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, usual = (tmp_path / (name * 100) for name in "kt")
    usual.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(usual))
    with rehearse.own_folder(kept) as root:
        below = root / "16-processes" / "tmp" / "pymp-12345678"
        below.mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(below / "listener-12345678"))
        assert len(str(below / "listener-12345678")) < 104
        (root / "a.txt").touch()
    assert (kept / "a.txt").is_file()
    assert not root.exists()


@table(__file__, "columns")
def test_columns_are_those_that_the_script_or_its_trainer_reads(code: str, answers: list[str]) -> None:
    assert sorted(columns(ast.parse(code))) == answers


def schema(folder: Path, text: str = "", columns: list[str] | None = None) -> Schema:
    known = Schema(str(folder / "schema.json"), text, 20, ["train", "test"])
    if not (folder / "schema.json").exists():
        known.columns = {name: known.guess(name) for name in columns or ["text"]}
    return known


def prepared(folder: Path, text: str, columns: list[str] | None = None) -> Schema:
    """Run a preparation until it ends, and return what is learnt of `rows`, `table` and `open`."""
    known = schema(folder, text, columns)
    for _ in range(12):
        rows = known.made_rows("rows")
        try:
            exec(compile(text, "prepare.py", "exec"), {"rows": rows, "table": {"fr": 0, "en": 1}, "known": known})
            return known
        except Exception as error:
            place = learn.place_of(error, "prepare.py", text, known)
            assert place is not None
            if not learn.learn(place, lambda name: False, []):
                raise
    raise AssertionError(known.learnt)


@table(__file__, "learnt")
@pytest.mark.skipif("sys.version_info < (3, 11)", reason="an exception does not tell its expression")
def test_made_rows_learn_what_a_preparation_reads(code: str, answers: list[str], tmp_path: Path) -> None:
    assert answers[0] in str(vars(prepared(tmp_path, code)))


@pytest.mark.parametrize(("looks", "made"), [("islice(Path('a/scans').iterdir(), 2)", 1), ("open('a/scans')", 0)])
def test_a_folder_that_the_script_looks_into_is_made(looks: str, made: int, tmp_path: Path) -> None:
    text = f"from itertools import islice\nfrom pathlib import Path\nfor one in {looks}:\n    print(one)\n"
    with pytest.raises(FileNotFoundError) as raised:
        exec(compile(text, "prepare.py", "exec"), {})
    place = learn.place_of(raised.value, "prepare.py", text, schema(tmp_path))
    assert place is not None
    assert learn.learn(place, lambda name: name == "a/scans", []) == bool(made)


def test_a_table_that_lacks_a_column_raises_what_the_script_raised(tmp_path: Path) -> None:
    text = "import pandas\ntable = pandas.DataFrame({'a': [1]})\ntable['b']\n"
    with pytest.raises(KeyError):
        prepared(tmp_path, text, ["b"])


def test_what_functions_of_rows_ask_for_is_found_in_the_text(tmp_path: Path) -> None:
    text = """def pair(row):
    many = row.get("answers", [])
    said = [one.get("text") for one in many if one["score"] is not None]
    return {"q": row["q"], "chosen": said[0]}
rows.map(pair).filter(lambda row: row["label"])
rows.map(lambda part: {"n": [len(one) for one in part["ids"]]}, batched=True)
def other(row): return row["no"]
def both(rows):
    for number, (one, other) in enumerate(zip(rows["good"], rows["bad"])):
        one[:-1], one[-1].get("role"), rows["text"][number], rows["text"][0]["a"]
        other.get("said")
rows.map(both, batched=True)
"""
    assert read_of_rows(ast.parse(text)) == {
        "answers": shapes.list_of(shapes.keyed(text=shapes.plain(), score=shapes.plain("number"))),
        "q": shapes.plain(),
        "label": shapes.one_of([0, 1]),
        "ids": shapes.plain(),
        "good": shapes.turns("role"),
        "bad": shapes.keyed(said=shapes.plain()),
        "text": shapes.keyed(a=shapes.plain()),
    }
    assert Schema(str(tmp_path / "schema.json"), text, 20, []).columns["good"] == shapes.turns("role")


def test_what_is_learnt_is_kept(tmp_path: Path) -> None:
    known = schema(tmp_path)
    known.add((), "frage")
    known.save()
    assert schema(tmp_path).columns == known.columns
    assert schema(tmp_path).made_rows("a") == known.made_rows("a")  # in every process


@table(__file__, "labels")
def test_made_labels_are_as_many_as_the_model_has(code: str, answers: list[str], tmp_path: Path) -> None:
    assert [str(schema(tmp_path, code, ["label"]).columns["label"]["values"])] == answers


def test_rows_are_of_the_kinds_that_their_columns_say() -> None:
    rng, make = random.Random(0), shapes.Maker()
    assert {turn["role"] for turn in make.value(shapes.by_name("messages"), rng)} == {"user", "assistant"}
    assert make.value(shapes.by_name("image"), rng)["bytes"].startswith(b"\x89PNG")
    assert make.value(shapes.by_name("audio"), rng)["bytes"].startswith(b"RIFF")
    row = {"talk": make.column("talk", shapes.turns("role"), "rows", 1)[0]}
    paths = [make.path(part) for part in (row["talk"][0]["content"], row["talk"][0], row)]
    assert paths == [("talk", "[]", "content"), ("talk", "[]"), ()]


def sources(folder: Path, text: str = "", columns: list[str] | None = None, sample: str = "") -> Sources:
    script = folder / "train.py"
    script.write_text(text)
    log = Log()
    log.open(str(folder / "log"), str(script))
    return Sources(log, schema(folder, text, columns), str(folder), sample)


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("a.png", b"\x89PNG"),
        ("b/a.jpg", b"\x89PNG"),
        ("a.wav", b"RIFF"),
        ("a.csv", b"frage,label"),
        ("a.jsonl", b'{"frage": '),
        ("a.json", b'[{"frage": '),
        ("a.txt", b""),
    ],
)
def test_a_file_that_is_not_there_is_made(
    name: str, start: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = sources(tmp_path, columns=["frage", "label"])
    assert made.make(name)
    assert Path(name).read_bytes().startswith(start)
    assert not made.make(name)
    assert made.schema.files == [name]
    assert json.loads((tmp_path / "log").read_text())["name"] == name
    assert not any(made.make(each) for each in ("/elsewhere/a.csv", "a.unknown", "x" * 400 + ".csv"))


def test_a_folder_has_files_of_the_kinds_that_the_script_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = sources(tmp_path, 'glob("scans/*.png")')
    assert made.make("scans")
    assert made.make("pages/*.png")
    before = {path: path.read_bytes() for path in Path("scans").iterdir()}
    assert sorted(path.name for path in before) == [f"made{n}.png" for n in range(4)]
    assert len(list(Path("pages").glob("*.png"))) == 4
    monkeypatch.setattr("os.path.exists", lambda path: False)  # another process makes it meanwhile
    assert made.make("scans")
    assert {path: path.read_bytes() for path in Path("scans").iterdir()} == before
    assert not list(Path().glob("*.part"))


def test_a_sample_gives_the_rows(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"q": "Why?"}\n')
    assert sources(tmp_path, sample=str(tmp_path / "mine.jsonl")).rows("any")[:2] == [{"q": "Why?"}] * 2


#: Stand-ins for libraries, beside a script, with the parts that are changed in them.
LIBRARIES = {
    "work/transformers/__init__.py": "class TrainerCallback: ...",
    "work/transformers/trainer.py": """DEFAULT_CALLBACKS = []
class Trainer:
    def __init__(self, model, compute_metrics=None):
        self.compute_metrics = compute_metrics
    def train(self): ...
    def training_step(self): ...
""",
    "work/transformers/loss/loss_utils.py": """def ForCausalLMLoss(logits, labels, vocab_size, **given):
    return vocab_size, given
LOSS_MAPPING = {"ForCausalLM": ForCausalLMLoss}
""",
    "work/transformers/utils/quantization_config.py": """from importlib import metadata
class BitsAndBytesConfig:
    def post_init(self):
        self.is_checked = True
        metadata.version("bitsandbytes-that-is-not-there")
""",
    "work/transformers/modeling_utils.py": """class PreTrainedModel:
    @classmethod
    def from_pretrained(cls, name, **given):
        return name, given
""",
    "work/trl/__init__.py": "",
    "work/unsloth/__init__.py": """from types import SimpleNamespace
class FastLanguageModel:
    @staticmethod
    def from_pretrained(model_name, **given):
        return SimpleNamespace(save_pretrained=None, asked=model_name), given
FastModel = FastLanguageModel
""",
    "work/unsloth/models/loader.py": "def from_pretrained(model_name, fullgraph, qat_scheme): ...",
    "work/unsloth-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: unsloth\nVersion: 1\n",
    "work/unsloth_zoo/__init__.py": "",
    "work/unsloth_zoo/cpu/loader.py": "save_pretrained_gguf = None",
    "work/wandb.py": "begun = []\ndef init(**given): begun.append(given)",
}


def played(
    folder: Path, text: str, files: Mapping[str, str] = {}, **variables: str
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """Run one process of a script. Return how it ends, and the events that it writes."""
    for name, content in {**files, "work/train.py": text}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    about = {
        "steps": 3,
        "unsloth": "real",
        "data": "",
        "trust": False,
        "rows": 8,
        "splits": [],
        "server": 9,
    }
    about |= {"root": str(folder), "logs": str(folder), "schema": f"{folder}/schema.json", "beside": f"{folder}/beside"}
    start = Path(packages.__file__).with_name("start.py")
    done = subprocess.run(
        [sys.executable, start, "play", f"{folder}/work/train.py"],
        env={**os.environ, "NB2DDP_REHEARSAL": json.dumps(about), **variables},
        cwd=folder / "work",
        capture_output=True,
        text=True,
        check=False,
    )
    return done, [json.loads(line) for line in (folder / "0.jsonl").read_text().splitlines()]


#: For each script: the files that it finds, the field of its events to compare, and the expected values.
PLAYED = {
    "a database that a run begins with may be read by all": (
        """import sqlite3
for name in ("given.db", "new.db", ":memory:"):
    sqlite3.connect(name)
""",
        {"work/given.db": ""},
        "Write.path",
        ["new.db"],
    ),
    "a clone is whole though the script names files in it": (
        """import os
os.system("git clone https://x/repository")
assert {*os.listdir("repository")} == {"a.py", "b.py"}
""",
        dict.fromkeys(("beside/repository/a.py", "beside/repository/b.py", "work/repository/a.py"), ""),
        "Clone.there",
        [True],
    ),
    "a hosted folder is that of the run": (
        """import os
rows = "/kaggle/input/rows.csv", "/contents"
name = "out"
out = f"/kaggle/working/{name}"
home = '/kaggle/working'
assert (out, home) == (os.path.join(os.getcwd(), "out"), os.getcwd())
assert rows == (os.getcwd() + "/kaggle" + "/input/rows.csv", "/contents")
""",
        {},
        "StandIn.line",
        [4],
    ),
    "a run of a tracker is noted unless it is told to do nothing": (
        """import os, wandb
os.environ["WANDB_MODE"] = "offline"
wandb.init(project="a")
wandb.init(mode="disabled")
os.environ["WANDB_MODE"] = "disabled"
wandb.init()
assert [each["mode"] for each in wandb.begun] == ["disabled"] * 3
""",
        LIBRARIES,
        "Tracked.what",
        ["a run of wandb"],
    ),
    "what transformers asks for or refuses": (
        """import no_such_package_at_all as page
from types import SimpleNamespace
from transformers.loss.loss_utils import LOSS_MAPPING
from transformers.modeling_utils import PreTrainedModel
from transformers.trainer import Trainer
from transformers.utils.quantization_config import BitsAndBytesConfig
# Metrics may come of a package that is not there, what is trained may not.
assert Trainer("model", lambda: {"wer": page.score(), "loss": 1.5}).compute_metrics() == {"wer": 0.0, "loss": 1.5}
assert Trainer("model", lambda: None).compute_metrics() is None
try:
    Trainer(page.Page())
except ModuleNotFoundError as error:
    assert str(error) == "No module named 'no_such_package_at_all', which training needs"
else:
    raise AssertionError
# A head that was cut gives a loss.
logits = SimpleNamespace(shape=(2, 8, 4))
assert LOSS_MAPPING["ForCausalLM"](logits=logits, labels=None, vocab_size=512, shift=1) == (4, {"shift": 1})
# A configuration of bitsandbytes is made without it.
config = BitsAndBytesConfig()
config.post_init()
assert config.is_checked
# Models load without what only a GPU can.
given = {"device_map": 0, "quantization_config": {}, "attn_implementation": "flash_attention_2"}
assert PreTrainedModel.from_pretrained("me/a", **given) == ("me/a", {"attn_implementation": "sdpa"})
""",
        LIBRARIES,
        "StandIn.package",
        [True],
    ),
    "what Unsloth takes on a GPU": (
        """import os
from pathlib import Path
from types import SimpleNamespace
from unsloth import FastLanguageModel
from unsloth_zoo.cpu import loader
# A model in a folder that is not there gets an id; what only a GPU takes is dropped.
same = ["unsloth/Qwen3-0.6B", "outputs/checkpoint-60", os.getcwd()]
names = dict(zip(same, same)) | dict.fromkeys(("/home/me/models/qwen-sft/", "./qwen-sft"), "local/qwen-sft")
for name, asked in names.items():
    model, given = FastLanguageModel.from_pretrained(name, fullgraph=True, qat_scheme="x", max_seq_length=64)
    assert (model.asked, given) == (asked, {"max_seq_length": 64, "load_in_4bit": False})
# No GGUF file is made.
model = SimpleNamespace(save_pretrained=lambda folder: Path(folder).mkdir())
(made,) = loader.save_pretrained_gguf(model, "out", None, quantization_method="q8_0")
assert Path(made).suffix == ".gguf"
assert Path(made).exists()
""",
        LIBRARIES,
        "Program.command",
        ["llama.cpp, which makes GGUF files"],
    ),
    "rows": (
        """import pandas, pickle
from datasets import Dataset
from no_such.packs import Pack
def refused(function, *args, **given):
    try:
        function(*args, **given)
    except (IndexError, TypeError):
        return True
# Made-up rows are fewer; more than a data set has are the script's own fault.
rows = Dataset.from_dict({"a": [*range(240)]})
assert len(rows.select(range(100_000))) == 240
assert refused(rows.select, range(500))
# Rows on disk and those of a package that is not there are made.
assert len(Dataset.load_from_disk("rows")) == 8
assert pickle.loads(pickle.dumps(Pack().run())).column_names == ["text"]
# Texts get no end that Unsloth does not add.
def add_eos(row):
    return row
assert refused(rows.map, add_eos, no_such_argument=1)
add_eos.__module__ = "trl.trainer.sft_trainer"
assert rows.map(add_eos, num_proc=2) is rows
# A filter of a table that leaves none keeps all.
table = pandas.read_csv("rows.csv")
few = table.iloc[[]]
some = table.loc[table["text"].str.len() > 999]
if not len(few) == len(some) == len(table) > 0:
    raise ValueError(few, some)
""",
        {},
        "Made.name",
        ["rows", "no_such"],
    ),
}


@pytest.mark.parametrize(("text", "files", "asked", "expected"), PLAYED.values(), ids=PLAYED)
def test_played(text: str, files: Mapping[str, str], asked: str, expected: list[object], tmp_path: Path) -> None:
    done, events = played(tmp_path, text, files)
    assert done.returncode == 0, done.stderr
    kind, _, field = asked.partition(".")
    assert [event[field] for event in events if event["kind"] == kind] == expected


TRAINER = "class Trainer:\n    train = lambda self: None\ntrainer, rows = Trainer(), []\n"


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("print(rows[0])\nrows = [1]\ntrainer.train()\nopen('x').nothing\nlast = missing\nprint(last)\n", [4, 7, 8]),
        (
            "open(__file__)\ntrainer.train()\nimport signal\nif True:  # it takes long\n"
            "    signal.setitimer(signal.ITIMER_PROF, 0.1)\n    while True: pass\nprint(trainer and 'rehearsal')\n",
            [9],
        ),
    ],
)
def test_a_statement_that_training_does_not_need_is_passed_over(text: str, passed: list[int], tmp_path: Path) -> None:
    done, events = played(tmp_path, TRAINER + text)
    found = {event["line"]: event["own"] for event in events if event["kind"] == "Passed"}
    assert (done.returncode, done.stdout) == (0, "rehearsal\n"), done.stderr
    assert [*found] == passed
    assert found.get(8, True)  # a name that nothing binds
    again, _ = played(tmp_path, TRAINER + text, RANK="0")  # one of several processes passes over the same statements
    assert again.stdout == done.stdout, again.stderr


def test_a_statement_that_training_needs_is_not(tmp_path: Path) -> None:
    done, events = played(tmp_path, f"{TRAINER}rows = rows[0]\ntrainer.train(rows)\n")
    assert done.returncode == 1
    assert not [event for event in events if event["kind"] == "Passed"]


def test_a_process_waits_before_it_loads_for_what_one_process_has_learnt(tmp_path: Path) -> None:
    text = "began = True\nshown = missing\nrows = open(name).read()\nlast = missing\n"
    made, gate = sources(tmp_path, text), tmp_path / "gate"
    names = {"name": str(tmp_path / "rows.txt")}
    job = Attempts(made, text, is_alone=False, names=names, gate=str(gate))
    process = threading.Thread(target=job.run)
    process.start()
    process.join(0.5)
    assert process.is_alive()
    assert "began" in names
    assert "shown" not in names  # it has failed, and may be passed over
    learnt = sources(tmp_path, text).schema
    learnt.passed, learnt.files = [2, 4], [names["name"]]
    learnt.save()
    gate.touch()
    process.join(20)
    assert isinstance(names["shown"], packages.Nothing)
    assert names["rows"]
    assert not (tmp_path / "log").read_text()  # the rehearsal has made the file, not the script


@pytest.mark.parametrize(
    ("source", "line", "names"),
    [
        ("x = c.load()\ndef own(y):\n    return e(y)\nz = map(own, x)\nq = b\nz.train()", 6, "c e"),
        ("x = c.load()\ndef own(y):\n    return e(y)\nz = map(own, x)\nq = b\nz.train()", 5, "b"),
        (
            "answer = a.generate()\nprint(answer, b)\ndef told(row, answer=1):\n    return sep + row\n"
            "sep = c\nd.to_csv('rows.csv')\nrows = e('rows.csv').map(told)\nrows.save(f, 'other.csv')\n"
            "answer = g\ntrainer = h(rows, answer)\ntrainer.train()",
            11,
            "c d e f g h",
        ),
        ("x = a\nx.config.y = b\nz = words_of(x).to(c)\nx.add(d)\nwith e as w: pass\nx.train(w)", 6, "a b d e"),
    ],
)
def test_a_failure_rests_on_what_its_statement_reads(source: str, line: int, names: str) -> None:
    imports = "".join(f"import {name}\n" for name in "abcdefgh")
    assert rests_on(imports + source, line + 8) == set(names.split())


def test_what_does_nothing_can_be_computed_with_and_sent_to_other_processes() -> None:
    metric: Any = packages.Nothing()
    kind: Any = packages.Nothing
    for number in (metric, kind):
        assert f"{round(100 * (1 - number) / 2, 3):.2f}" == "rehearsal"
        assert (float(number), int(number), number < 1, number > 1) == (0.0, 0, True, True)
    of_package = packages.Missing(Log()).create_module(ModuleSpec("no_such_package_at_all", None)).Client
    assert issubclass(pickle.loads(pickle.dumps(of_package)), packages.Nothing)
    assert isinstance(pickle.loads(pickle.dumps(of_package())), packages.Nothing)
    assert isinstance(metric.column_names, packages.Nothing)  # of no package


def test_packages_without_which_there_is_no_training_stay_missing() -> None:
    assert packages.Missing(Log()).find_spec("trl", None) is None


@pytest.mark.parametrize("answer", [True, 2])
def test_libraries_see_no_gpu_where_the_script_does(answer: int) -> None:
    asked = [seen_by_script(lambda: answer, cast("Log", SimpleNamespace(is_asked=lambda by=by: by)))() for by in (1, 0)]
    assert asked == [answer, 0]
    assert type(asked[1]) is type(answer)


@pytest.mark.parametrize("engine", [True, False])
def test_only_a_model_with_an_engine_loads_adapters(engine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    peft = SimpleNamespace(LoraConfig=dict, get_peft_model=lambda model, config: model)
    monkeypatch.setitem(sys.modules, "peft", peft)
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(set_seed=print))
    own = {"vllm_engine": None} if engine else {}
    given = SimpleNamespace(
        config=None, named_modules=list, save_pretrained=None, generate=lambda **given: given, **own
    )
    model = Fast.get_peft_model(given)
    assert (hasattr(model, "load_lora"), hasattr(model, "vllm_engine")) == (engine, engine)
    if not engine:
        assert model.fast_generate(input_ids=[1]) == {"input_ids": [1]}


def test_a_library_that_is_not_known_is_named() -> None:
    with pytest.raises(UnknownError, match=r"does not know pytest [\d.]+: pytest.Nothing.that"):
        attribute(pytest, "Nothing.that")


@pytest.mark.parametrize(
    ("about", "small"),
    [
        ({"layer_types": ["conv", "conv", "full_attention", "conv"]}, {"layer_types": ["conv", "full_attention"]}),
        ({"attn_layer_indices": [1, 3]}, {"attn_layer_indices": [1]}),
        ({"attn_layer_period": 8, "attn_layer_offset": 4}, {"attn_layer_period": 2, "attn_layer_offset": 1}),
    ],
)
def test_two_layers_are_one_of_each_kind(about: dict[str, Any], small: dict[str, Any]) -> None:
    assert shrunk({"num_hidden_layers": 4, **about}) == {"num_hidden_layers": 2, **small}
