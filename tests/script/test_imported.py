"""Modules that a script imports and that nothing brings are among its needs."""

from __future__ import annotations

import pytest

from nb2ddp.convert import convert_source
from tests.notebooks import text

TRAIN = "from trl import SFTTrainer\ntrainer = SFTTrainer()\ntrainer.train()"
INSTALL = "!pip install unsloth\nimport sys"


@pytest.mark.parametrize(
    ("cells", "needs"),
    [
        ((INSTALL, "from utils import grade\nimport my_package.rewards as r, json, torch"), ("utils", "my_package")),
        ((INSTALL, "from langchain_chroma import Chroma"), ("langchain_chroma",)),
        ((INSTALL, "sys.path.append('..')\nfrom lib.rows import rows"), ("lib",)),
        ((INSTALL, "def reward(x):\n    from grading import grade\n    return grade(x)"), ("grading",)),
        (("!pip install -r requirements.txt", "import omegaconf"), ("omegaconf",)),
        (("!pip install git+https://github.com/unslothai/unsloth", "import utils"), ("utils",)),
        (("!pip install git+https://github.com/x/environments", "import textarena_env"), ()),
        (("!pip install openai-whisper langchain descript-audio-codec", "import whisper, langchain_core, dac"), ()),
        ((INSTALL, "import seaborn, flask, wordcloud, skimage, mpl_toolkits.mplot3d, unsloth_zoo"), ()),
        ((INSTALL, "if find_spec('apex'):\n    import apex\nif kind == 1:\n    import rows_1"), ("rows_1",)),
        (("!pip install trl\n%load_ext autoreload\n%autoreload 2\n%matplotlib inline", "import utils"), ("utils",)),
        ((INSTALL, "try:\n    import utils\nexcept ImportError:\n    pass\nif False:\n    import other"), ()),
        ((INSTALL, "from google.colab import userdata\nfrom kaggle_secrets import UserSecretsClient"), ()),
        ((INSTALL, "%%writefile rewards.py\ndef grade(x): ...", "from rewards import grade"), ()),
        ((INSTALL, "!git clone https://github.com/x/Spark-TTS", "sys.path.append('Spark-TTS')\nimport sparktts"), ()),
        ((INSTALL, "!git clone https://github.com/x/own\n%cd own", "import utils"), ()),
        ((INSTALL, "snapshot_download('x/y', local_dir = 'ocr_model')\nfrom ocr_model.encoder import encode"), ()),
    ],
)  # fmt: skip
def test_modules(cells: tuple[str, ...], needs: tuple[str, ...]) -> None:
    assert convert_source(text(*cells, TRAIN)).needs == tuple(f"the module {name} (cell 2)" for name in needs)


def test_a_module_is_named_once_and_is_no_requirement() -> None:
    done = convert_source(text(INSTALL, "import utils", TRAIN, "from utils import show"))
    assert done.needs == ("the module utils (cells 2, 4)",)
    assert "#   needs:         the module utils (cells 2, 4)\n" in done.files["train.py"]
