"""The comment on a pull request: against a stand-in of GitHub's API, and with a repository of a project's own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import git
from tests.notebooks import CELLS, markdown, write
from tests.test_action import Runner, pytestmark, runner

__all__ = ["pytestmark", "runner"]
COMMENT = 2  #: the step
SHOWN = "## nb2ddp\n\n<details><summary>\n\na\n\n</details>\n"


@dataclass
class Api:
    """The part of GitHub's API that is about comments; `refuses` is the code that it answers everything with."""

    address: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    refuses: int = 0

    def answer(self, method: str, path: str, token: str, body: bytes) -> tuple[int, Any]:
        self.asked.append(f"{method} {path.partition('?')[0]}")
        self.tokens.add(token)
        if self.refuses:
            return self.refuses, {"message": "Resource not accessible by integration"}
        if method == "GET":
            page = int(path.rpartition("page=")[2])
            return 200, self.comments[100 * (page - 1) : 100 * page]
        if method == "POST":
            self.comments.append({"id": 1000 + len(self.comments), **json.loads(body)})
            return 201, self.comments[-1]
        (found,) = [each for each in self.comments if str(each["id"]) == path.rpartition("/")[2]]
        found |= json.loads(body)
        return 200, found


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            code, answer = made.answer(self.command, self.path, self.headers["Authorization"], body)
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_POST = do_PATCH = do_GET  # noqa: N815 - names of http.server

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    made.address = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield made
    server.shutdown()
    server.server_close()


@pytest.fixture
def pull_request(runner: Runner, api: Api, tmp_path: Path) -> Runner:
    """A runner of a job for pull request 7."""
    (tmp_path / "event.json").write_text('{"pull_request": {"number": 7}}')
    runner.variables = {
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_REPOSITORY": "some/project",
        "GITHUB_API_URL": api.address,
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_RUN_ID": "42",
        "GITHUB_WORKFLOW": "notebooks",
        "GITHUB_JOB": "check",
    }
    return runner


def comment(runner: Runner, summary: str) -> str:
    """Run the last step with a summary; what it prints."""
    (runner.temp / "nb2ddp-summary.md").write_text(summary, encoding="utf-8")
    done = runner.step(COMMENT, token="secret")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_comment_is_written_and_brought_up_to_date(pull_request: Runner, api: Api) -> None:
    api.comments = [{"id": number, "body": "looks good"} for number in range(150)]
    assert comment(pull_request, SHOWN) == ""
    assert api.comments[-1]["body"].endswith(f"-->\n{SHOWN}")
    comment(pull_request, "## nb2ddp\n\nall is up to date\n")
    assert len(api.comments) == 151
    assert api.comments[-1]["body"].endswith("all is up to date\n")
    before = len(api.asked)
    comment(pull_request, "## nb2ddp\n\nall is up to date\n")
    assert {each.split()[0] for each in api.asked[before:]} == {"GET"}
    assert api.tokens == {"Bearer secret"}
    pull_request.variables["GITHUB_JOB"] = "another"
    comment(pull_request, SHOWN)
    assert len(api.comments) == 152


def test_nothing_to_show_begins_no_comment(pull_request: Runner, api: Api) -> None:
    comment(pull_request, "## nb2ddp\n\nall is up to date\n")
    assert api.comments == []
    comment(pull_request, "| a.ipynb | a.py | failed | 1 | 0 | 0 |\n")
    assert len(api.comments) == 1


@pytest.mark.parametrize("code", [401, 403, 404, 500])
def test_a_token_that_may_not_write_leaves_the_jobs_page(pull_request: Runner, api: Api, code: int) -> None:
    api.refuses = code
    said = comment(pull_request, SHOWN)
    assert said.startswith(f"nb2ddp: no comment on the pull request (HTTP Error {code}")
    assert said.endswith("the summary is in the job's page.\n")


def test_no_network_leaves_the_jobs_page(pull_request: Runner) -> None:
    pull_request.variables["GITHUB_API_URL"] = "http://127.0.0.1:1"
    assert "no comment on the pull request" in comment(pull_request, SHOWN)


@pytest.mark.parametrize("event", ["{}", '{"pull_request": {}}'])
def test_outside_a_pull_request_nothing_is_asked(pull_request: Runner, api: Api, event: str) -> None:
    Path(pull_request.variables["GITHUB_EVENT_PATH"]).write_text(event)
    assert comment(pull_request, SHOWN) == ""
    (pull_request.temp / "nb2ddp-summary.md").unlink()
    assert pull_request.step(COMMENT).returncode == 0
    assert api.asked == []


@pytest.mark.parametrize("long", [0, 1, 40])
def test_a_long_summary_fits_into_a_comment(pull_request: Runner, api: Api, long: int) -> None:
    part = "\n<details><summary>\n" + "é" * 30_000 + "\n</details>\n"
    comment(pull_request, "head\n" + ("| x |\n" * 20_000 if long == 1 else "") + part * (2 + long))
    body = api.comments[0]["body"]
    assert len(body) <= 65536
    assert ("More in [the job's summary](https://github.com/some/project/actions/runs/42)" in body) == (long > 0)
    assert body.count("<details>") == body.count("</details>") == (0 if long == 1 else 2)


def test_what_changed_stands_beside_the_script(pull_request: Runner, api: Api) -> None:
    folder = pull_request.workspace
    git(folder, "init", "--quiet")
    notebook = write(folder / "nb/a.ipynb", *CELLS)
    write(folder / "nb/b.ipynb", *CELLS)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")
    pull_request.base = git(folder, "rev-parse", "HEAD").stdout.strip()
    pull_request.step(1, paths="nb", output_dir="scripts", mode="convert")
    write(notebook, *CELLS, markdown("@someone look"), "print('```')\n# <b>@someone</b>")
    write(folder / "nb/c.ipynb", *CELLS)
    done = pull_request.step(1, paths="nb", output_dir="scripts")
    assert done.returncode == 1, done.stderr
    summary = pull_request.summary.read_text()
    shown = summary.split("What changed in nb/a.ipynb, and in what it converts to")[1]
    script = shown.split("</td><td>")[1]
    assert "\n````diff\n--- nb/a.ipynb\n+++ nb/a.ipynb\n" in shown
    assert "+# %% Cell 5 (markdown)\n+@someone look\n" in shown
    assert "\n````diff\n--- scripts/a.py\n+++ scripts/a.py\n" in script
    assert "+# @someone look\n" in script
    assert summary.count("What changed in") == 1
    comment(pull_request, (pull_request.temp / "nb2ddp-summary.md").read_text())
    assert "What changed in nb/a.ipynb" in api.comments[0]["body"]


def test_a_base_that_cannot_be_had_leaves_out_what_changed(pull_request: Runner) -> None:
    write(pull_request.workspace / "a.ipynb")
    git(pull_request.workspace, "init", "--quiet")
    pull_request.base = "0" * 40
    done = pull_request.step(1, paths="a.ipynb", output_dir="scripts", mode="convert")
    assert done.returncode == 0, done.stderr
    assert "1 notebook: 1 converted" in pull_request.summary.read_text()
