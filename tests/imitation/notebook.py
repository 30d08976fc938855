"""The code of a notebook as Python, as IPython reads it."""

from __future__ import annotations

import json
import re

from IPython.core.inputtransformer2 import TransformerManager

#: Cell magics whose body is Python, which IPython would transform when it runs it.
TRANSPARENT = re.compile(r"\s*%%(capture|time|timeit|prun)\b.*\n")


def cells(text: str) -> list[str]:
    """The code cells of the text of an .ipynb file."""
    manager = TransformerManager()  # type: ignore[no-untyped-call]
    sources = ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return [manager.transform_cell(TRANSPARENT.sub("", source, count=1)) for source in sources]
