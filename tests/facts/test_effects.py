"""What calls do, known by their names, or as they are named and what they are given."""

import pytest

from nb2ddp.facts.effects import Does
from nb2ddp.facts.program import Program
from nb2ddp.options import Options
from tests.notebooks import example_notebook


def _does(code: str) -> Does:
    """What the last call of some code does."""
    program = Program(example_notebook(code), Options())
    return program.execution.does(program.execution.calls()[-1])


@pytest.mark.parametrize(
    "code",
    [
        'import imageio\nimageio.mimsave("steps.gif", frames)\n',
        'import imageio\nname = "steps.gif"\nimageio.get_writer(name)\n',
        'import graphviz\ndot = graphviz.Digraph()\ndot.render("model", format = "png")\n',
        'import torch\ntorch.onnx.export(model, row, "model.onnx")\n',
        'figure.write_html(f"figure_{1}.html")\n',
        'voice.tts_to_file(text = "a.b", file_path = "answer.wav")\n',
        'from reports import save_report\nsave_report(rows, "report.md")\n',
    ],
)
def test_what_is_named_like_a_writer_and_given_a_file_writes(code: str) -> None:
    assert _does(code) & Does.WRITE


@pytest.mark.parametrize(
    "code",
    [
        "import json\njson.dumps(rows)\n",
        'env.render(mode = "human")\n',
        'template.render(name = "a")\n',
        'def save_rows(path):\n    return path\nsave_rows("rows.json")\n',
        'class Store:\n    def export(self, path):\n        return path\nstore = Store()\nstore.export("rows.json")\n',
        'rows = table.to_dict("records")\n',
        'handle.write("see rows.json")\n',
    ],
)
def test_what_is_named_so_and_given_no_file_does_not(code: str) -> None:
    assert not _does(code) & Does.WRITE
