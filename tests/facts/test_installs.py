"""What leaves a notebook with its installs: the rest must run as it did."""

from __future__ import annotations

import contextlib
import io

import pytest

from nb2ddp.convert import convert_source
from nb2ddp.options import Options
from nb2ddp.rules.hosted import package_install
from tests.notebooks import CELLS, apply_rule, text

TRAIN = "from trl import SFTTrainer\ntrainer = SFTTrainer()\ntrainer.train()"
#: Cells that run, with an install among them that does nothing here.
RUNNING = [
    "import datetime\n# %%\nfrom datetime import datetime\n# %%\n!pip install x\nimport datetime\n# %%\n"
    "print(datetime.datetime(2026, 1, 1))\n",
    "import json\njson = {'a': 1}\n# %%\n!pip install x\nimport json\n# %%\nprint(json.dumps([1]))\n",
    "!pip install x\nMAX_SEQ_LEN = 2048\n# %%\nprint(MAX_SEQ_LEN)\n",
    "import os, re\nif 'COLAB_' not in ''.join(os.environ):\n    !pip install x\nelse:\n"
    "    version = re.match('[0-9]', '1').group(0)\n    !pip install x=={version}\n# %%\nprint(os.path.sep)\n",
    "found = '1'\nfor name in ['a', 'b']:\n    %pip install {name}\n    found += name\n# %%\nprint(found)\n",
    "names = ['a']\nnames.append('b')\n!pip install {names[0]}\n# %%\nprint(names)\n",
    "def chosen():\n    return 'a'\nname = chosen()\n!pip install $name\n# %%\nother = chosen()\nprint(other)\n",
    "try:\n    import json\n    fast = True\nexcept ImportError:\n    !pip install json\n    fast = False\n"
    "# %%\nprint(fast)\n",
]


@pytest.mark.parametrize("cells", RUNNING)
def test_what_stays_runs_as_before(cells: str) -> None:
    before = "".join(
        "pass\n".rjust(len(line) - len(line.lstrip()) + 5) if line.strip()[0] in "!%" else line
        for line in cells.splitlines(keepends=True)
    )
    after = apply_rule(package_install, cells, Options())
    assert "pip" not in after
    assert _printed(after) == _printed(before) != ""


def _printed(code: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {})
    return out.getvalue()


@pytest.mark.parametrize(
    ("cells", "left"),
    [
        (
            'import os\ndef run(line):\n    print(line)\n    os.system(line)\nrun("git clone rows")\n'
            'for name in "ab":\n    run(f"pip install {name}")\nrun("pip install uv && uv pip install x")\n',
            'import os\ndef run(line):\n    print(line)\n    os.system(line)\nrun("git clone rows")\n',
        ),
        (
            'import subprocess\ndef run(*words):\n    subprocess.run(list(words))\nrun("pip", "install", "x")\n'
            "!pip install -r rows.txt 2>/dev/null || true\nprint(1)\n",
            "print(1)\n",
        ),
        ("import re\nversion = re.match('a', 'a')\n!pip install {version}\n", ""),
        ("version = '1'\nprint(version)\n!pip install x=={version}\n", "version = '1'\nprint(version)\n"),
        ("def setup():\n    !pip install x\nsetup()\n", ""),
        ("with open('log', 'w') as log:\n    subprocess.run(['pip', 'install', 'x'], stdout=log)\n", ""),
        ("try:\n    !pip install x\nexcept Exception:\n    print('failed')\n", ""),
        ("!npm install -g x\n!apt-get -y autoremove torch\n!conda remove -y x\n!pip-autoremove torch -y\n", ""),
        (
            'import os\nx = f"a=={v}"\n'
            'os.system(f"""\n    uv pip install -q \\\\\n        {x} "b>=1" # newer\n    """)\n'
            "os.system('\\npip install c\\nllama-server &')\nprint(1)\n",
            "import os\nos.system('\\npip install c\\nllama-server &')\nprint(1)\n",
        ),
        ("import os\nos.system('pip install x')\n!{sys.executable} -m pip install y\n", ""),
    ],
)
def test_what_serves_installs_alone_goes(cells: str, left: str) -> None:
    assert apply_rule(package_install, cells, Options()) == left


@pytest.mark.parametrize(
    ("cell", "files"),
    [
        ("!pip install -q -r clone/requirements.txt", "clone/requirements.txt"),
        ("!uv pip install --requirement=a.txt -r b.txt", "a.txt -r b.txt"),
        ("%pip install -r b.txt", "b.txt"),
        ("subprocess.run([sys.executable, '-m', 'pip', 'install', '-r', 'c.txt'])", "c.txt"),
        ("!find /usr/lib/python3/dist-packages -name '__pycache__' | xargs -r rm -rf", ""),
        ("%%bash\n[ -r /opt/version ] && echo yes\npip install x\npip install -r \"$(python -c 'print(1)')\"", ""),
    ],
)
def test_files_that_list_packages_are_named(cell: str, files: str) -> None:
    messages = [each.message for each in convert_source(text(cell, *CELLS[1:])).diagnostics if each.code == "DDP306"]
    assert [files in message for message in messages if "pip install -r" in message] == [True] * bool(files)


@pytest.mark.parametrize(
    ("cell", "kept"),
    [
        ('print("Installing packages...")\n!pip install unsloth\nprint("Installation complete!")', ""),
        ("from google.colab import files\nfiles.download('a.gguf')\nprint('Download started.')", ""),
        ('!pip install unsloth\nprint("Ready")', 'print("Ready")'),
        ('!pip install unsloth\nprint(f"installed {name}")', 'print(f"installed {name}")'),
    ],
)
def test_what_announces_a_line_that_leaves_leaves_with_it(cell: str, kept: str) -> None:
    script = convert_source(text(cell, TRAIN)).files["train.py"]
    assert [line for line in script[script.index("# %% Cell") :].splitlines() if line.startswith("print(")] == (
        [kept] if kept else []
    )
