"""The script saves an image, even if only the notebook's saved outputs show that it is one."""

import json
from typing import Any

import pytest

from nb2ddp.convert import convert_source

_TRAINING = "from trl import SFTTrainer\ntrainer = SFTTrainer(model)\ntrainer.train()\n"


def _script(last: str, shown: str) -> str:
    saved = {"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": {"text/plain": [shown]}}
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "metadata": {}, "execution_count": 1, "outputs": outputs, "source": source}
        for source, outputs in ((last, [saved]), (_TRAINING, []))
    ]
    text = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4})
    return convert_source(text, "notebook", "notebook.py").files["notebook.py"]


@pytest.mark.parametrize("last", ['rows["decoded"][5]', 'rows[2]["image_path"]'])
def test_an_image_of_a_column_is_saved(last: str) -> None:
    script = _script(last, "<PIL.PngImagePlugin.PngImageFile image mode=RGB size=320x50>")
    assert f'if is_main_process:\n    {last}.save("image_1.png")' in script


def test_a_row_that_holds_an_image_is_printed() -> None:
    assert "print(rows[0])" in _script("rows[0]", "{'image': <PIL.PngImagePlugin.PngImageFile image mode=RGB>}")


def test_a_path_of_a_column_is_printed() -> None:
    assert 'print(rows[2]["image_path"])' in _script('rows[2]["image_path"]', "'pages/2.png'")
