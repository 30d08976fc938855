"""Let the hub's client find in its cache what it is asked for, and send nothing."""

from __future__ import annotations

import functools
import os
import re
import shutil
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from . import events
from .hooks import after_import, wrap
from .log import Log

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_USER = {"type": "user", "id": "0", "name": "rehearsal", "fullname": "rehearsal", "email": "", "orgs": []}
_TOKEN = {"auth": {"type": "access_token", "accessToken": {"displayName": "rehearsal", "role": "write"}}}
#: Methods with which the hub's client sends something.
_SENDING = "create_repo create_branch create_commit upload_file upload_folder upload_large_folder".split()


@functools.cache
def repository(kind: str, name: str) -> str:
    """Return the folder of a repository, once the rehearsal has built it; "" if there is no such repository.

    Args:
        kind: "model", "dataset" or "space".
        name: its id.
    """
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        return ""
    cache, folder = os.environ["HF_HUB_CACHE"], f"{kind}s--{name.replace('/', '--')}"
    asked, made = Path(cache, "asked", folder), os.path.join(cache, folder, "snapshots", COMMIT)
    asked.touch()
    while asked.exists():
        time.sleep(0.02)
    return made if os.path.isdir(made) else ""


def _find(original: Any, repo_id: str, *args: Any, **given: Any) -> Any:
    """Let a function that downloads find everything in the cache, under any revision."""
    made = repository(given.get("repo_type") or "model", repo_id)
    if made and given.get("local_dir"):
        shutil.copytree(made, given["local_dir"], dirs_exist_ok=True)
        file = () if original.__name__ == "snapshot_download" else args[:1] or (given["filename"],)
        return os.path.join(given["local_dir"], *file)
    kept = {key: value for key, value in given.items() if key not in ("revision", "cache_dir", "force_download")}
    return original(repo_id, *args, **kept)


def _take(api: ModuleType, log: Log) -> None:
    """Answer in place of the hub if its client asks for more than files."""

    def files(repo_id: str, repo_type: str | None) -> list[str]:
        made = repository(repo_type or "model", repo_id)
        return [path.relative_to(made).as_posix() for path in Path(made).rglob("*") if path.is_file()] if made else []

    def send(name: str, _: Any, *args: Any, **given: Any) -> Any:
        target = given.get("repo_id") or next((value for value in args if isinstance(value, str)), "")
        log.write(events.Upload(target))
        kind = f"{given['repo_type']}s/" if given.get("repo_type") in ("dataset", "space") else ""
        url = f"https://huggingface.co/{kind}{target if '/' in target else f'rehearsal/{target}'}"
        about = {"commit_message": "", "commit_description": "", "oid": COMMIT}
        return api.RepoUrl(url) if name == "create_repo" else api.CommitInfo(commit_url=f"{url}/commit/x", **about)

    answers: dict[str, Any] = {
        "whoami": lambda *_, **__: _USER | _TOKEN,
        "repo_exists": lambda _, repo_id, *, repo_type=None, **__: bool(repository(repo_type or "model", repo_id)),
        "file_exists": lambda _, repo_id, filename, *, repo_type=None, **__: filename in files(repo_id, repo_type),
        "list_repo_files": lambda _, repo_id, *, repo_type=None, **__: files(repo_id, repo_type),
    }
    for name, answer in (answers | {name: functools.partial(send, name) for name in _SENDING}).items():
        wrap(api, f"HfApi.{name}", _instead, answer)
        setattr(api, name, getattr(api.api, name))  # the module's functions were bound before


def _instead(answer: Any, _: Any, *args: Any, **given: Any) -> Any:
    return answer(*args, **given)


def lay(log: Log) -> None:
    """Install these hooks once the libraries have been imported."""
    wrap("huggingface_hub.file_download", "hf_hub_download", _find)
    wrap("huggingface_hub._snapshot_download", "snapshot_download", _find)
    after_import("huggingface_hub.hf_api", lambda module: _take(module, log))
    for module, owner in (("datasets.arrow_dataset", "Dataset"), ("datasets.dataset_dict", "DatasetDict")):
        wrap(module, f"{owner}.push_to_hub", lambda _, __, name, *args, **given: log.write(events.Upload(name)))
