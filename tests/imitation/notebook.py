"""The code of a notebook as Python, as IPython reads it."""

from __future__ import annotations

import re

from IPython.core.inputtransformer2 import TransformerManager

from nb2ddp.notebook.reader import read_notebook

#: Cell magics whose body is Python, which IPython would transform when it runs it.
TRANSPARENT = re.compile(r"\s*%%(capture|time|timeit|prun)\b.*\n")


def cells(text: str) -> list[str]:
    """The code cells of the text of a notebook, in the order in which they run."""
    manager = TransformerManager()  # type: ignore[no-untyped-call]
    sources = [cell.source for cell in read_notebook(text, "notebook").cells if cell.kind == "code"]
    return [manager.transform_cell(TRANSPARENT.sub("", source, count=1)) for source in sources]
