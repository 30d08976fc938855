"""Findings in formats for programs, and comments of the notebook that suppress findings."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from nb2ddp.notebook.ipynb import file_lines
from nb2ddp.rules.index import RULES
from tests.command import Command, read
from tests.notebooks import CELLS, code, document, markdown, write

SCHEMA = Path(__file__).parents[2] / "fixtures" / "sarif" / "sarif-2.1.0.json"
#: Line 2 of cell 3 causes a warning.
WARNING = (
    markdown("# Title"),
    CELLS[1],
    "from trl import SFTTrainer\ntrainer = SFTTrainer(model = model)\ntrainer.train()",
)


class TestFileLine:
    @pytest.mark.parametrize("indent", [None, 0, 1, 4])
    @pytest.mark.parametrize("as_list", [True, False])
    def test_leads_to_the_line_of_the_file(self, indent: int | None, as_list: bool) -> None:
        sources = ["a = 1\nb = 2\n\nc = '\"\\n'", "", "d = 'é'\n", "\n\ne = 5"]
        cells = [code(s.splitlines(keepends=True) if as_list else s) for s in sources]
        content = json.dumps(document(*cells, metadata={"cells": [{"source": "no"}]}), indent=indent)
        lines = content.split("\n")
        for source, found in zip(sources, file_lines(content, sources), strict=True):
            assert len(found) == source.count("\n") + 1
            for wanted, number in zip(source.split("\n"), found, strict=True):
                assert json.dumps(wanted)[1:-1] in lines[number - 1]
        if as_list and indent:
            starts = [number for found in file_lines(content, sources) for number in found[:-1]]
            assert len(set(starts)) == len(starts), "each line of code has a line of the file"

    def test_of_an_old_notebook(self) -> None:
        old = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["a\n", "b"]}]}], "nbformat": 3}
        assert file_lines(json.dumps(old, indent=1), ["a\nb"]) == [[8, 9]]


class TestJson:
    def test_says_everything(self, command: Command) -> None:
        write("a.ipynb", *WARNING)
        result = command("a.ipynb", "out/t.py", "--format", "json")
        document = json.loads(result.stdout)
        assert document["version"] == 1
        (notebook,) = document["notebooks"]
        assert notebook["notebook"] == "a.ipynb"
        assert notebook["script"] == "out/t.py"
        assert notebook["status"] == "converted"
        assert notebook["written"][:2] == ["out/t.py", "out/accelerate_config.yaml"]
        (warning,) = [f for f in notebook["findings"] if f["severity"] == "warning"]
        where = (warning["code"], warning["cell"], warning["line"], warning["column"], warning["fixed"])
        assert where == ("DDP201", 3, 2, 11, False)
        assert warning["text"] == "trainer = SFTTrainer(model = model)"
        assert "trainer = SFTTrainer" in read("a.ipynb").split("\n")[warning["file_line"] - 1]
        assert document["summary"]["warnings"] == 1
        assert document["summary"]["converted"] == 1

    def test_is_one_document_of_failures_too(self, command: Command) -> None:
        write("n/a.ipynb", "x = = 1")
        write("n/b.ipynb")
        result = command("n", "-o", "out", "--format", "json")
        assert result.exit_code == 2
        first, second = json.loads(result.stdout)["notebooks"]
        assert (first["status"], second["status"]) == ("failed", "converted")
        (finding,) = first["findings"]
        assert (finding["code"], finding["severity"], finding["cell"], finding["line"]) == ("DDP001", "error", 1, 1)

    @pytest.mark.parametrize("cells", [WARNING, ("x = = 1",), ("print(1)",)])
    def test_a_finding_is_the_same_alone_and_in_a_folder(self, command: Command, cells: tuple[str, ...]) -> None:
        write("n/a.ipynb", *cells)
        found = []
        for words in (("n/a.ipynb", "a.py"), ("n", "-o", "out"), ("n", "-o", "out", "--check")):
            (notebook,) = json.loads(command(*words, "--format", "json").stdout)["notebooks"]
            found.append({(f["code"], f["severity"], f["message"]) for f in notebook["findings"] if f["cell"]})
        assert found[0] == found[1] == found[2] != set()


class TestGithub:
    def test_annotates_the_line_of_the_file(self, command: Command) -> None:
        write("n/a,b:c.ipynb", *WARNING)
        (line,) = command("n", "-o", "out", "--format", "github").stdout.splitlines()
        content = read("n/a,b:c.ipynb").split("\n")
        number = next(n for n, text in enumerate(content, start=1) if "trainer = SFTTrainer" in text)
        start = f"::warning file=n/a%2Cb%3Ac.ipynb,line={number},title=DDP201 "
        assert line.startswith(start)
        assert "::cell 3:2:11: the batch of this training is unknown" in line

    def test_nothing_in_a_notebook_makes_a_command_of_its_own(self, command: Command) -> None:
        write("a.ipynb", metadata={"language_info": {"name": "x%\r\n::error::gone"}})
        result = command("a.ipynb", "t.py", "--format", "github")
        assert len(result.stdout.splitlines()) == 1
        assert result.stdout.count("::error") == 1 or "\n::error" not in result.stdout


class TestSarif:
    @pytest.fixture
    def validator(self) -> jsonschema.protocols.Validator:
        schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
        kind = jsonschema.validators.validator_for(schema)
        return kind(schema, format_checker=kind.FORMAT_CHECKER)

    def test_fits_the_schema(self, command: Command, validator: jsonschema.protocols.Validator) -> None:
        write("n/a b.ipynb", *WARNING)
        write("n/b.ipynb", "x = = 1")
        write("n/c.ipynb")
        result = command("n", "-o", "out", "--check", "--format", "sarif")
        log = json.loads(result.stdout)
        validator.validate(log)
        (run,) = log["runs"]
        rules = run["tool"]["driver"]["rules"]
        assert {rule["id"] for rule in rules} > {rule.code for rule in RULES}
        for found in run["results"]:
            assert rules[found["ruleIndex"]]["id"] == found["ruleId"]
        (warning,) = [found for found in run["results"] if found["level"] == "warning"]
        place = warning["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "n/a%20b.ipynb"
        line = read("n/a b.ipynb").split("\n")[place["region"]["startLine"] - 1]
        assert "trainer = SFTTrainer" in line
        assert warning["locations"][0]["logicalLocations"][0]["name"] == "cell 3"
        levels = {found["ruleId"]: found["level"] for found in run["results"]}
        assert (levels["DDP001"], levels["DDP901"], levels["DDP101"]) == ("error", "error", "note")

    def test_fingerprints_outlive_a_new_cell_above(self, command: Command) -> None:
        def fingerprints() -> dict[str, str]:
            log = json.loads(command("a.ipynb", "t.py", "--format", "sarif").stdout)
            return {f["ruleId"]: f["partialFingerprints"]["nb2ddp/v1"] for f in log["runs"][0]["results"]}

        write("a.ipynb", *WARNING)
        before = fingerprints()
        write("a.ipynb", markdown("new"), *WARNING)
        assert fingerprints() == before


class TestSummaryFile:
    def test_is_a_table(self, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        write("n/a|b.ipynb", *WARNING)
        write("n/c.ipynb", "x = = '<img src=x>`'")
        Path("summary.md").write_text("before\n")
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
        command("n", "-o", "out", "--format", "github")
        lines = read("summary.md").splitlines()
        assert lines[:3] == ["before", "## nb2ddp", ""]
        assert "| n/a\\|b.ipynb | out/a\\|b.py | converted | 0 | 1 | " in "\n".join(lines)
        assert any(line.startswith("| n/c.ipynb, cell 1:1:5 | DDP001 | ") for line in lines)
        assert not any("<img" in line for line in lines)


class TestSuppression:
    def test_of_a_line(self, command: Command) -> None:
        loads = CELLS[1].replace('1B")', '1B")  # nb2ddp: ignore[DDP101]')
        write("a.ipynb", loads, *CELLS[2:])
        result = command("a.ipynb", "t.py", "--verbose")
        assert "DDP101" not in result.stdout.replace("ignore[DDP101]", "")
        assert "device_map" not in read("t.py")
        assert "DDP902" not in result.stdout

    def test_above_a_line(self, command: Command) -> None:
        loads = CELLS[1].replace("model, tok", "# nb2ddp: ignore[ DDP101 ,DDP999] why\n\n# more\nmodel, tok")
        write("a.ipynb", loads, *CELLS[2:])
        result = command("a.ipynb", "t.py")
        assert "device_map" not in read("t.py")
        assert result.stdout.splitlines()[0] == (
            "a.ipynb:cell 1:2:1: DDP902 warning: unused suppression: no rule has the code 'DDP999'"
        )

    def test_of_a_refusal(self, command: Command) -> None:
        other = "from accelerate import notebook_launcher\nnotebook_launcher(f)"
        write("a.ipynb", *CELLS, other)
        refused = command("a.ipynb", "t.py")
        assert refused.exit_code == 2
        (code,) = re.findall(r"DDP00\d", refused.stdout)
        write("a.ipynb", *CELLS, f"{other}  # nb2ddp: ignore[{code}]")
        assert command("a.ipynb", "t.py").exit_code == 0

    @pytest.mark.parametrize(
        ("comment", "message"),
        [
            ("# nb2ddp: ignore[DDP101]", "DDP101 finds nothing on line 1"),
            ("# nb2ddp: ignore[E501]", "no rule has the code 'E501'"),
            ("# nb2ddp: ignore", "it names no code: ignore[DDP101]"),
            ("# nb2ddp: ignore[]", "it names no code: ignore[DDP101]"),
        ],
    )
    def test_unused(self, command: Command, comment: str, message: str) -> None:
        write("a.ipynb", *CELLS, f"x = 1  {comment}")
        result = command("a.ipynb", "t.py")
        assert result.stdout.splitlines()[0] == f"a.ipynb:cell 5:1:8: DDP902 warning: unused suppression: {message}"

    def test_of_a_rule_that_is_left_out_is_not_called_unused(self, command: Command) -> None:
        write("a.ipynb", *CELLS, "x = 1  # nb2ddp: ignore[DDP101]")
        assert "DDP902" not in command("a.ipynb", "t.py", "--ignore", "DDP101").stdout

    def test_that_leaves_no_python_is_refused(self, command: Command) -> None:
        write("a.ipynb", *CELLS, "%env A=1 # nb2ddp: ignore[DDP303]")
        result = command("a.ipynb", "t.py")
        assert result.exit_code == 2
        assert result.stdout.startswith("a.ipynb:cell 5:1:1: DDP001 error: without the rules that were left out")
