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

from nb2ddp import __version__
from nb2ddp.cli.report import placed, relative
from nb2ddp.results import Diagnostic, Result
from nb2ddp.rules.index import KNOWN


def as_sarif(results: Sequence[Result]) -> str:
    """Return all findings as one SARIF document.

    Args:
        results: the results of the notebooks.

    Returns:
        JSON text. Regions are lines of the file; cell, line and column are a logical location and properties.
    """
    rules = [
        {
            "id": code,
            "name": rule.name,
            "shortDescription": {"text": rule.summary},
            "fullDescription": {"text": "\n\n".join(rule.paragraphs[1:])},
            "help": {"text": f"nb2ddp explain {code}"},
        }
        for code, rule in KNOWN.items()
    ]
    run = {
        "tool": {"driver": {"name": "nb2ddp", "version": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(result, finding) for result in results for finding in result.diagnostics],
    }
    document = {"version": "2.1.0", "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "runs": [run]}
    return json.dumps(document, indent=2)


def _uri(path: Path) -> str:
    """Return a path relative to the current folder if it lies below, else a file URI."""
    name = relative(path)
    return f"file://{quote(name)}" if name.startswith("/") else quote(name)


def _result(result: Result, finding: Diagnostic) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": finding.file_line or 1}
    if finding.file_column is not None:
        region["startColumn"] = finding.file_column
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": {"uri": _uri(result.notebook)}, "region": region}
    }
    properties: dict[str, Any] = {"fixed": finding.fixed}
    if finding.location:
        location["logicalLocations"] = [
            {"name": f"cell {finding.location.cell}", "fullyQualifiedName": str(finding.location), "kind": "module"}
        ]
        properties |= {"cell": finding.location.cell, "line": finding.location.line, "column": finding.location.column}
    identity = f"{finding.code}\n{relative(result.notebook)}\n{finding.line_text.strip()}\n{finding.message}"
    entry = {
        "ruleId": finding.code,
        "level": finding.severity.value,
        "message": {"text": placed(finding)},
        "locations": [location],
        "partialFingerprints": {"nb2ddp/v1": sha256(identity.encode("utf-8", "backslashreplace")).hexdigest()},
        "properties": properties,
    }
    return entry | ({"ruleIndex": list(KNOWN).index(finding.code)} if finding.code in KNOWN else {})
