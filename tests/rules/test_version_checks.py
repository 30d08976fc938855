"""A check of versions that ends the job before it loads anything is said."""

import pytest

from nb2ddp.convert import convert_source
from tests.notebooks import text

_TRAINING = "from trl import SFTTrainer\ntrainer = SFTTrainer(model)\ntrainer.train()\n"


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ('assert transformers.__version__ == "5.15.0"', 'ends the job unless transformers.__version__ == "5.15.0"'),
        (
            'if transformers.__version__ > "5":\n    raise RuntimeError("too new")',
            'ends the job if transformers.__version__ > "5"',
        ),
    ],
)
def test_a_check_beside_an_install_is_said(check: str, said: str) -> None:
    install = f"!pip install transformers\nimport transformers\n{check}\n"
    done = convert_source(text(install, _TRAINING), "notebook", "notebook.py")
    assert check in dict(done.files)["notebook.py"]
    assert [found.message for found in done.diagnostics if found.code == "DDP306" and "ends" in found.message] == [
        f"{said}: install the notebook's versions"
    ]
