"""Findings as SARIF 2.1.0, which code scanning reads.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nb2ddp.cli.report import placed, relative
from nb2ddp.results import Diagnostic, Result
from nb2ddp.rules.index import KNOWN


def as_sarif(results: Sequence[Result], version: str) -> str:
    """Return all findings as one SARIF document.

    Args:
        results: the results of the notebooks.
        version: nb2ddp's own.

    Returns:
        JSON text. Regions are lines of the file; cell, line and column are a logical location and properties.
    """
    index = {code: number for number, code in enumerate(KNOWN)}
    rules = [
        {
            "id": code,
            "name": each.name,
            "shortDescription": {"text": each.summary},
            "fullDescription": {"text": each.why},
            "help": {"text": f"nb2ddp --explain {code}"},
        }
        for code, each in KNOWN.items()
    ]
    run = {
        "tool": {"driver": {"name": "nb2ddp", "version": version, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(result, each, index) for result in results for each in result.diagnostics],
    }
    document = {"version": "2.1.0", "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "runs": [run]}
    return json.dumps(document, indent=2)


def _uri(path: Path) -> str:
    """Return a path relative to the current folder if it lies below, else a file URI."""
    name = relative(path)
    return f"file://{quote(name)}" if name.startswith("/") else quote(name)


def _result(result: Result, each: Diagnostic, index: dict[str, int]) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": each.file_line or 1}
    if each.file_column is not None:
        region["startColumn"] = each.file_column
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": {"uri": _uri(result.notebook)}, "region": region}
    }
    properties: dict[str, Any] = {"fixed": each.fixed}
    if each.location:
        location["logicalLocations"] = [
            {"name": f"cell {each.location.cell}", "fullyQualifiedName": str(each.location), "kind": "module"}
        ]
        properties |= {"cell": each.location.cell, "line": each.location.line, "column": each.location.column}
    identity = f"{each.code}\n{relative(result.notebook)}\n{each.line_text.strip()}\n{each.message}"
    entry = {
        "ruleId": each.code,
        "level": each.severity.value,
        "message": {"text": placed(each)},
        "locations": [location],
        "partialFingerprints": {"nb2ddp/v1": sha256(identity.encode("utf-8", "backslashreplace")).hexdigest()},
        "properties": properties,
    }
    return entry | ({"ruleIndex": index[each.code]} if each.code in index else {})
