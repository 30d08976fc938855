"""Install cells of every style that public notebooks have, as requirements files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from packaging.requirements import Requirement

from nb2ddp.convert import convert_source
from nb2ddp.facts.program import Program
from nb2ddp.notebook.ipynb import parse_notebook
from nb2ddp.options import Options
from nb2ddp.script.packages import Requirements, install_command, requirements
from tests.notebooks import CELLS, text


@dataclass(frozen=True)
class Case:
    """Cells, the lines of the file without its comments, and what is installed after it."""

    cells: tuple[str, ...]
    full: str = ""
    apart: str = ""
    notes: tuple[str, ...] = ()


ROWS = "from datasets import load_dataset\nd = load_dataset('a/b', split = 'train')"

CASES = {
    "nothing": Case(("import json",)),
    "plain": Case(("!pip install unsloth",), "unsloth"),
    "quiet, upgraded, several": Case(
        ('%%capture\n!pip install -qU unsloth "trl>=0.20" peft[tests]==0.18.0 --no-cache-dir',),
        "unsloth trl>=0.20 peft[tests]==0.18.0",
    ),
    "an upgrade behind a pin": Case(
        ("!pip install --upgrade trl==0.15.0", "!pip install -U trl peft"),
        "trl peft",
        notes=("trl==0.15.0 is replaced by trl of cell 2",),
    ),
    "in a loop over a list": Case(
        ('for p in ["einops", "timm==1.0"]:\n    !pip install -q {p}',),
        notes=("not known before the notebook runs: {p}",),
    ),
    "Colab or not": Case(
        (
            'import os\nif "COLAB_" not in "".join(os.environ.keys()):\n    !pip install unsloth\nelse:\n'
            "    !pip install --no-deps bitsandbytes accelerate xformers==0.0.29\n    !pip install sentencepiece\n"
            "!pip install transformers==4.56.2\n!pip install --no-deps trl==0.22.2",
        ),
        "unsloth transformers==4.56.2 trl==0.22.2",
    ),
    "nothing of Colab's": Case(
        ("if 'COLAB_' in ''.join(os.environ):\n    !ls\nelse:\n    !nvidia-smi\n!pip list\n!pip install unsloth",),
        "unsloth",
    ),
    "no packages of Colab's": Case(
        (
            "import sys\nif 'google.colab' in sys.modules:\n    !pip install -U pip\n    !pip list\n"
            "    !apt-get install -y ffmpeg\n    !pip uninstall -y torchao\n    !pip install -r own.txt 'trl[vllm]'\n"
            "!pip install unsloth",
        ),
        "unsloth",
    ),
    "torch is missing or this is Colab": Case(
        (
            "import os, importlib.util\n!pip install --upgrade -qqq uv\n"
            'if importlib.util.find_spec("torch") is None or "COLAB_" in "".join(os.environ.keys()):\n'
            '    !uv pip install "torch==2.8.0" "unsloth[base] @ git+https://github.com/unslothai/unsloth"\n'
            'elif importlib.util.find_spec("unsloth") is None:\n    !uv pip install -qqq unsloth\n'
            '!uv pip install --upgrade --no-deps "tokenizers>=0.22,<=0.23" unsloth',
        ),
        "unsloth tokenizers>=0.22,<=0.23",
    ),
    "what Colab has": Case(
        (
            "!pip install unsloth Soundfile",
            "import soundfile as sf\nfrom sentence_transformers import util\nprint(sf, util)",
            "if False:\n    import librosa",
        ),
        "unsloth Soundfile sentence-transformers>=5.1",
        notes=("sentence-transformers is added: the code imports it, and Colab has it",),
    ),
    "Unsloth, beside what is installed": Case(
        ("!pip install trl", "from unsloth import FastLanguageModel"),
        "trl unsloth",
        notes=("unsloth is added: the code imports it",),
    ),
    "what decodes sounds": Case(
        ("!pip install trl 'datasets>=3.4'", "from datasets import Dataset, Audio\nd = d.cast_column('a', Audio())"),
        "trl datasets>=3.4 torchcodec",
        notes=("torchcodec is added: datasets 4 decodes sounds with it; it needs ffmpeg",),
    ),
    "what datasets 3 decodes sounds with": Case(
        ("!pip install 'datasets<4.0.0'", "import datasets\nd = d.cast_column('a', datasets.Audio())"),
        "datasets<4.0.0 librosa soundfile",
        notes=tuple(f"{name} is added: datasets 3 decodes sounds with it" for name in ("librosa", "soundfile")),
    ),
    "what decodes sounds of rows that are loaded": Case(
        ("!pip install trl", f"{ROWS}\nrate = d[0]['audio']['sampling_rate']"),
        "trl datasets>=3.4.1 torchcodec",
        notes=(
            "datasets is added: the code imports it",
            "torchcodec is added: datasets 4 decodes sounds with it; it needs ffmpeg",
        ),
    ),
    "no sounds: what the code itself makes a dictionary of": Case(
        ("!pip install datasets", f"{ROWS}\nsound = {{'array': 1}}\nif 'array' in sound:\n    print(sound['array'])"),
        "datasets",
    ),
    "a place that the notebook fixes, and one without an else": Case(
        (
            "place = 'kaggle'\nif place == 'kaggle':\n    !pip install einops\nelse:\n    !pip install timm",
            "where = find()\nif where == 'kaggle':\n    !pip install trl",
        ),
        "einops trl",
        notes=("left out, installed unless place == 'kaggle': pip install timm",),
    ),
    "a name for the test": Case(
        (
            'import sys\nIN_COLAB = "google.colab" in sys.modules\nif IN_COLAB:\n    !pip install a\n'
            "if not IN_COLAB:\n    !pip install b\n",
        ),
        "b",
    ),
    "a value of the notebook": Case(
        (
            'version = "4.56.2"\nextra = f"transformers=={version}"\nnames = ["datasets", "evaluate"]',
            '!pip install {extra} $version_free "peft==0.18.0"\n!pip install {" ".join(names)} xformers=={found}',
        ),
        "transformers==4.56.2 peft==0.18.0",
        notes=("not known before the notebook runs: $version_free", "not known before the notebook runs: { .join"),
    ),
    "a value known only when it runs": Case(
        (
            "import torch\nv = torch.__version__\nxformers = 'xformers==' + {'2.9': '0.0.33'}.get(v, '0.0.34')\n"
            "try:\n    import numpy; _numpy = f'numpy=={numpy.__version__}'\n"
            "except ImportError:\n    _numpy = 'numpy'\n"
            '!pip install unsloth {xformers} "{_numpy}"',
        ),
        "unsloth",
        notes=("not known before the notebook runs: {xformers}", "not known before the notebook runs: {_numpy}"),
    ),
    "a name that is bound to itself": Case(
        ('p = f"{p} trl"\n!pip install unsloth {p}',), "unsloth", notes=("not known before the notebook runs: {p}",)
    ),
    "a name of several values": Case(
        ("p = 'vllm==0.9'\nif fast:\n    p = 'vllm'\n!pip install {p}",),
        notes=("not known before the notebook runs: {p}",),
    ),
    "git": Case(
        (
            '!pip install "unsloth[colab-new] @ git+https://github.com/unslothai/unsloth.git"\n'
            "!pip install --upgrade --no-cache-dir --no-deps git+https://github.com/unslothai/unsloth-zoo.git@main\n"
            "!pip install -e git+https://github.com/x/y.git#egg=y",
        ),
        "unsloth[colab-new] @ git+https://github.com/unslothai/unsloth.git"
        "|git+https://github.com/unslothai/unsloth-zoo.git@main|-e git+https://github.com/x/y.git#egg=y",
    ),
    "a source behind a release": Case(
        (
            "!pip install 'unsloth[cu128-torch2100]==2026.9.1'\n"
            "!pip uninstall unsloth -y && pip install --no-deps git+https://github.com/unslothai/unsloth.git",
        ),
        "git+https://github.com/unslothai/unsloth.git",
        notes=(
            "unsloth[cu128-torch2100]==2026.9.1 is replaced by git+https://github.com/unslothai/unsloth.git of cell 1",
        ),
    ),
    "what is uninstalled, and installed again or not": Case(
        (
            "!pip install rich\n!pip uninstall -y rich einops\n!pip install einops",
            "!pip uninstall Einops -y && pip install --no-deps git+https://github.com/x/einops.git",
            "!pip uninstall -y rich -q\n!pip install -U rich",
        ),
        "rich git+https://github.com/x/einops.git",
    ),
    "what is uninstalled for good": Case(
        ("!pip install rich einops\n!pip uninstall -y rich\n!pip uninstall -y einops timm\n!pip install einops",),
        "rich einops",
    ),
    "Colab's packages that the files have too": Case(
        (
            "import sys\nif 'google.colab' in sys.modules:\n    !pip install --no-deps unsloth vllm trl==0.22.2\n    "
            "!pip install peft[x] timm Rich==14\nelse:\n    !pip install unsloth vllm>=0.9 trl peft\n"
            "!pip install Rich==14",
            "if 'google.colab' in sys.modules:\n    !pip install unsloth",
        ),
        "unsloth vllm>=0.9 trl peft Rich==14",
    ),
    "without dependencies": Case(
        (
            "!pip install --no-deps bitsandbytes xformers trl==1.1.0 unsloth_zoo timm\n"
            "!pip install --no-deps torchao --extra-index-url https://x.org\n!pip install unsloth",
        ),
        "--extra-index-url https://x.org|bitsandbytes|xformers|trl==1.1.0|unsloth_zoo|timm|torchao|unsloth",
    ),
    "a package in a folder of a repository": Case(
        ('!pip install "triton>=3.4" git+https://github.com/x/triton.git@main#subdirectory=python/triton_kernels',),
        "triton>=3.4|git+https://github.com/x/triton.git@main#subdirectory=python/triton_kernels",
    ),
    "another index for one package": Case(
        (
            "!pip install torch --index-url https://download.pytorch.org/whl/cu128\n!pip install unsloth\n"
            "!pip install -f https://x.org/wheels.html --extra-index-url=https://y.org/simple flash",
        ),
        "--extra-index-url https://download.pytorch.org/whl/cu128|--extra-index-url https://y.org/simple"
        "|--find-links https://x.org/wheels.html|torch|unsloth|flash",
    ),
    "an index that the shell works out": Case(
        (
            '%%bash\nBASE=https://x.org\nTAG=$(rocm-tag)\nPYTORCH_INDEX_URL="$BASE/whl/${TAG}"\n'
            'pip install torch rich --index-url "$PYTORCH_INDEX_URL"\n'
            'pip install "trl" --extra-index-url ${BASE}/simple',
        ),
        "torch rich trl",
        notes=(
            "not known before the notebook runs: --index-url $PYTORCH_INDEX_URL",
            "not known before the notebook runs: --extra-index-url ${BASE}/simple",
        ),
    ),
    "variables of the shell": Case(
        (
            "import os\nos.environ['MIRROR'] = 'https://x.org'\n%env WHEELS=https://y.org\nos.environ['NOW'] = now()",
            "%%bash\nexport VERSION=4.0 index=$MIRROR/simple A=$B B=$A\nif test -d /opt/rocm; then T=a; else T=b; fi\n"
            "pip install jiwer==$VERSION 'peft==${VERSION}' -i $index -f $WHEELS\n"
            "pip install rich -i https://z.org/$T -f $A",
            "%env PYPI_TOKEN=abc\n!pip install einops --index-url https://me:$PYPI_TOKEN@z.org",
            "!pip install tqdm --find-links {found} -c $NOW\n!pip install numpy --index-url `mirror`",
        ),
        "rich einops tqdm numpy",
        notes=(
            "not known before the notebook runs: --index-url $index",
            "not known before the notebook runs: --find-links $WHEELS",
            "not known before the notebook runs: jiwer==$VERSION",
            "not known before the notebook runs: peft==${VERSION}",
            "not known before the notebook runs: --index-url https://z.org/$T",
            "not known before the notebook runs: --find-links $A",
            "not known before the notebook runs: --index-url https://me:$PYPI_TOKEN@z.org",
            "not known before the notebook runs: --find-links {found}",
            "not known before the notebook runs: -c $NOW",
            "not known before the notebook runs: --index-url `mirror`",
        ),
    ),
    "another index for all": Case(
        ("%pip install -i https://mirror.org/simple unsloth\n%pip install --index-url=https://mirror.org/simple trl",),
        "--index-url https://mirror.org/simple|unsloth|trl",
    ),
    "pre-releases of one package": Case(
        ("!pip install --pre vllm\n!uv pip install --prerelease=allow 'trl>=1.0' peft==0.18.0\n!pip install unsloth",),
        "--pre|vllm|trl>=1.0|peft==0.18.0|unsloth",
        notes=("no requirements file has this option: --prerelease allow",),
    ),
    "blanks inside quotes": Case(
        ('!pip install " https://x.org/v-1.0-py3-none-any.whl " " rich "',), "https://x.org/v-1.0-py3-none-any.whl|rich"
    ),
    "pre-releases by their version": Case(("!pip install torch==2.9.0rc1",), "torch==2.9.0rc1"),
    "markers": Case(
        (
            "!pip install \"tomli; python_version < '3.11'\" 'triton==3.4; sys_platform==\"linux\"' "
            "\"tomli==2.0; python_version >= '3.11'\"",
        ),
        "tomli; python_version < '3.11'|triton==3.4; sys_platform==\"linux\"|tomli==2.0; python_version >= '3.11'",
    ),
    "other files": Case(
        ("!pip install -r https://x.org/r.txt\n!pip install -c https://x.org/constraints.txt unsloth",),
        "-c https://x.org/constraints.txt|-r https://x.org/r.txt|unsloth",
    ),
    "files of a clone": Case(
        ("!git clone https://github.com/x/llama.cpp\n!pip install -r llama.cpp/requirements.txt unsloth",),
        "unsloth",
        notes=("not a package of an index: -r llama.cpp/requirements.txt",),
    ),
    "lines of a text": Case(
        (
            "import os\nx = 'xformers==' + version()\nif not IN_COLAB:\n    pass\nelse:\n"
            '    os.system(f"""\n'
            '    uv pip install -q \\\\\n        torch {x} \\\\\n        "trl>=0.22" # newer\n    """)\n'
            'os.system("""\nuv pip install unsloth \\\n    rich\n""")',
        ),
        "unsloth rich",
    ),
    "what a branch installs, known or not": Case(
        (
            "x = 'trl==' + version()\nif IN_COLAB:\n    !pip install {x} peft\n    !pip install {x}\n"
            "    !pip install rich",
            "if IN_COLAB:\n    !pip install $x",
        ),
        "",
    ),
    "indexes of a package's extras": Case(
        (
            "!pip install modelscope rich -f https://x.org\n!pip install 'modelscope[nlp]' --extra-index-url https://y.org",
        ),
        "--extra-index-url https://y.org|--find-links https://x.org|modelscope[nlp]|rich",
    ),
    "folders and wheels": Case(
        (
            "!git clone https://github.com/x/y && cd y && pip install -e .\n"
            "!pip install ./z /tmp/w.whl https://x.org/v-1.0-py3-none-any.whl",
        ),
        "https://x.org/v-1.0-py3-none-any.whl",
        notes=(
            "not a package of an index: -e .",
            "not a package of an index: ./z",
            "not a package of an index: /tmp/w.whl",
        ),
    ),
    "an index of a newer torch": Case(
        ("!pip install torch --extra-index-url https://download.pytorch.org/whl/cu128",),
        "--extra-index-url https://download.pytorch.org/whl/cu128|torch",
    ),
    "built without isolation": Case(
        (
            "!pip install unsloth\n!pip install --no-build-isolation --no-deps mamba_ssm rich\n"
            "!pip install git+https://github.com/state-spaces/mamba.git@main --no-build-isolation",
        ),
        "unsloth rich",
        "mamba_ssm git+https://github.com/state-spaces/mamba.git@main",
    ),
    "what needs torch to be built": Case(
        ("!pip install unsloth flash-attn causal_conv1d==1.5.2",), "unsloth", "flash-attn causal_conv1d==1.5.2"
    ),
    "what asks for a version that Unsloth does not take": Case(
        ("!pip install unsloth llama-index-packs-raft-dataset\n!pip install --no-deps xcodec2==0.1.5",),
        "unsloth",
        "llama-index-packs-raft-dataset xcodec2==0.1.5",
    ),
    "two pins": Case(
        ("!pip install transformers==4.55.4 trl==0.22.2", "!pip install transformers==4.56.2 trl"),
        "transformers==4.56.2 trl==0.22.2",
        notes=("transformers==4.55.4 is replaced by transformers==4.56.2 of cell 2",),
    ),
    "a pin, then any or a newer one": Case(
        ("!pip install trl==1.0.0 peft==0.18.0 datasets==4.3.0\n!pip install trl 'peft>=0.17' 'datasets>=4.4'",),
        "trl==1.0.0 peft>=0.17 datasets>=4.4",
        notes=(
            "peft==0.18.0 is replaced by peft>=0.17 of cell 1",
            "datasets==4.3.0 is replaced by datasets>=4.4 of cell 1",
        ),
    ),
    "a pin, and another without dependencies": Case(
        ("!pip install Transformers==4.55.4\n!pip install --no-deps transformers==4.56.2",),
        "transformers==4.56.2",
        notes=("Transformers==4.55.4 is replaced by transformers==4.56.2 of cell 1",),
    ),
    "without dependencies, then with": Case(
        ("!pip install --no-deps trl==1.0.0", "!pip install trl==1.1.0"),
        "trl==1.1.0",
        notes=("trl==1.0.0 is replaced by trl==1.1.0 of cell 2",),
    ),
    "tokenizers beside a fixed transformers": Case(
        ("!pip install --no-deps 'tokenizers>=0.22,<=0.23'\n!pip install transformers==4.55.4",),
        "transformers==4.55.4",
    ),
    "extras add up": Case(
        ("!pip install unsloth\n!pip install 'unsloth[base]'\n!pip install unsloth",), "unsloth[base]"
    ),
    "what is no Python package": Case(
        (
            "!apt-get update && apt-get install -y ffmpeg\n!npm install -g x\n%conda install -y numpy\n"
            "!pip-autoremove torch -y\n"
            "!pip uninstall -y torchcodec && pip install av 2>&1 | tail -n 1\n!pip list | grep torch",
        ),
        "av",
        notes=(
            "not a Python package: apt-get update",
            "not a Python package: apt-get install -y ffmpeg",
            "not a Python package: npm install -g x",
            "not a Python package: conda install -y numpy",
        ),
    ),
    "scripts, modules and processes": Case(
        (
            "%%bash\nset -e\npip install -q unsloth \\\n  trl  # the newest\npython -m pip install peft > /dev/null",
            "import os, subprocess, sys\nos.system('pip3 install einops')\n"
            "subprocess.check_call([sys.executable, '-m', 'pip', 'install', 'datasets>=4', package])\n"
            "subprocess.run('uv pip install --system snac'.split())\n!{sys.executable} -m pip install jiwer\n"
            "!CMAKE_ARGS='-DX=on' pip install llama-cpp-python\n!uv add timm",
        ),
        "unsloth trl peft einops datasets>=4 snac jiwer llama-cpp-python timm",
    ),
    "where it is missing": Case(
        (
            "try:\n    import einops\nexcept ImportError:\n    !pip install einops\n"
            "try:\n    !pip install tabulate\nexcept Exception:\n    !pip install xformers\n"
            "import importlib.util\nif importlib.util.find_spec('timm') is None:\n    !pip install timm",
        ),
        "einops tabulate timm",
        notes=("left out, a fallback if another install fails: pip install xformers",),
    ),
    "where a GPU can": Case(
        ("import torch\nif torch.cuda.is_available():\n    !pip install tilelang\nelse:\n    !pip install other",),
        "tilelang",
        notes=("left out, installed unless torch.cuda.is_available(): pip install other",),
    ),
    "a test of two branches, of which Unsloth brings the most": Case(
        (
            "!pip install unsloth",
            "if generation > 7:\n    !pip install --no-deps einops tilelang\nelse:\n"
            "    !pip install --no-deps peft bitsandbytes",
            "if generation > 8:\n    !pip install --no-deps accelerate\nelse:\n    !pip install --no-deps trl timm",
        ),
        "unsloth einops tilelang accelerate",
        notes=(
            "left out, installed unless generation > 7: pip install --no-deps peft bitsandbytes",
            "left out, installed unless generation > 8: pip install --no-deps trl timm",
        ),
    ),
    "a test of two branches without Unsloth": Case(
        (
            "if generation > 7:\n    !pip install peft==0.17.0 {package} /a/b.whl\nelse:\n"
            "    !pip install peft==0.17.0 trl==0.24.0 bitsandbytes /a/b.whl",
        ),
        "peft==0.17.0",
        notes=(
            "not known before the notebook runs: {package}",
            "not a package of an index: /a/b.whl",
            "left out, installed unless generation > 7: pip install peft==0.17.0 trl==0.24.0 bitsandbytes /a/b.whl",
        ),
    ),
    "never": Case(("if False:\n    !pip install never\n# !pip install never\nprint('pip install never')",)),
    "options no file has": Case(
        ("!uv pip install --torch-backend=auto unsloth\n!pip install --target /x y",),
        "unsloth y",
        notes=(
            "no requirements file has this option: --torch-backend auto",
            "no requirements file has this option: --target /x",
        ),
    ),
    "more than one line in one word": Case(
        ("%%bash\npip install 'https://x.org/a\n--index-url https://y.org' -r 'a\nb' -f 'c\nd' 'e\x1b' trl",),
        "trl",
        notes=(
            "no requirements file has this option: --find-links c d",
            "not a package of an index: https://x.org/a --index-url https://y.org",
            "not a package of an index: e\\x1b",
            "not a package of an index: -r a b",
        ),
    ),
    "no quotes": Case(("!pip install transformers>=4.50 numpy<3 > log.txt",), "transformers>=4.50 numpy<3"),
    "no requirement": Case(
        ("!pip install un==sloth== --quiet",), "", notes=("not a package of an index: un==sloth==",)
    ),
}


def read(*cells: str, minimums: Iterable[tuple[str, str]] = ()) -> Requirements:
    return requirements(Program(parse_notebook(text(*cells), "notebook"), Options()), minimums)


def lines(content: str) -> list[str]:
    return [line for line in content.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_style(case: Case) -> None:
    found = read(*case.cells)
    files = found.files("train.py")
    expected = case.full
    wanted = expected.split("|") if "|" in expected or ";" in expected or " @ " in expected else expected.split()
    assert lines(files.get("train.requirements.txt", "")) == (
        [expected] if expected[:2] in ("-c", "--") and "|" not in expected else wanted
    )
    assert [package.line for package in found.packages if package.is_apart] == case.apart.split()
    assert [note for _, note in found.notes] == list(case.notes)
    assert bool(files) == bool(case.full or case.apart or case.notes)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_line_is_one_that_pip_reads(case: Case) -> None:
    for content in read(*case.cells).files("train.py").values():
        for line in lines(content):
            if not line.startswith(("-", "git+", "https:")):
                Requirement(line)


def test_one_file_and_one_line_install_all() -> None:
    found = read("!pip install unsloth flash-attn\n!pip install --no-deps trl==1.0.0\n!apt install ffmpeg")
    ((name, content),) = found.files("my train.py", "alpaca").items()
    assert (name, content) == (
        "my train.requirements.txt",
        """\
# The packages of alpaca.
#   pip install -r 'my train.requirements.txt' && pip install --no-deps --no-build-isolation flash-attn
# Notes:
#   cell 1: not a Python package: apt install ffmpeg
unsloth
trl==1.0.0
""",
    )
    line = "pip install -r 'a b.txt' && pip install --no-deps --no-build-isolation flash-attn"
    assert install_command("a b.txt", content) == line


def test_the_versions_that_a_script_asks_for_are_installed_however_the_notebook_names_them() -> None:
    notebook = text("!pip install unsloth unsloth_zoo", *CELLS[1:])
    files = convert_source(notebook, options=Options()).files
    assert lines(files["train.requirements.txt"]) == ["unsloth>=2026.7.1", "unsloth_zoo>=2026.9.9"]
    notebook = text("!pip install unsloth==2026.8.1", *CELLS[1:])
    files = convert_source(notebook, options=Options()).files
    assert lines(files["train.requirements.txt"]) == ["unsloth==2026.8.1"]


def test_a_notebook_that_installs_nothing_needs_what_it_trains_with() -> None:
    files = convert_source(text(*CELLS[1:]), options=Options()).files
    assert lines(files["train.requirements.txt"]) == ["unsloth>=2026.7.1", "unsloth_zoo>=2026.9.9"]
    without = 'from trl import SFTTrainer\ntrainer = SFTTrainer("Qwen/Qwen3-0.6B")\ntrainer.train()'
    files = convert_source(text(without), options=Options()).files
    assert [line[:3] for line in lines(files["train.requirements.txt"])] == ["trl"]


HUB = "https://github.com/huggingface"
FLOORS = (("unsloth", "2026.7.1"), ("unsloth_zoo", "2026.9.9"))


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("unsloth==2025.4.7", "unsloth>=2026.7.1"),
        ("'unsloth[base]<2025.6'", "unsloth[base]>=2026.7.1"),
        ("peft==0.16.0", "peft"),
        ("datasets==4.0.0", "datasets"),
        (f"git+{HUB}/trl.git@e95f9fb74a3c", "trl"),
        (f"'trl[peft] @ git+{HUB}/trl@main'", "trl[peft]"),
        (f"git+{HUB}/transformers", "transformers"),
        (f"git+{HUB}/peft@main", "peft"),
        (f"git+{HUB}/transformers@v4.56.2", "transformers==4.56.2"),
    ],
)
def test_versions_that_the_script_does_not_take_are_raised(asked: str, given: str) -> None:
    found = read(f"!pip install {asked}", minimums=FLOORS)
    assert [package.line for package in found.packages if package.name not in ("unsloth-zoo",)] == [given]
    assert found.notes == ((1, f"{asked.strip(chr(39))} is replaced by {given}: the script needs another version"),)


#: The set that most notebooks pin.
PINNED = {"datasets==4.3.0", "huggingface-hub==0.36.2", "transformers==4.56.2", "trl==0.22.2"}


@pytest.mark.parametrize(
    "asked",
    [
        "'trl<0.9.0'",
        "trl==0.8.6 datasets",
        "trl transformers==4.44.2",
        "trl transformers==4.57.0",
        "'trl @ git+https://github.com/huggingface/trl.git@v0.15.2'",
        "git+https://github.com/huggingface/transformers@v4.49.0-Gemma-3",
        "'trl<0.9' git+https://github.com/huggingface/transformers",
    ],
)
def test_a_notebook_that_asks_for_an_older_trl_or_transformers_takes_what_most_notebooks_pin(asked: str) -> None:
    found = read(f"!pip install {asked}", minimums=FLOORS)
    assert {package.line for package in found.packages} == PINNED


@pytest.mark.parametrize(
    ("asked", "code", "given"),
    [
        ("'trl<0.9' 'datasets<4'", "", (PINNED - {"datasets==4.3.0"}) | {"datasets<4"}),
        (
            "'trl<0.9'",
            "from trl import DataCollatorForCompletionOnlyLM",
            (PINNED - {"trl==0.22.2"}) | {"trl<=0.19.1"},
        ),
        ("trl==0.15.2 transformers==4.56.1", "", (PINNED - {"transformers==4.56.2"}) | {"transformers==4.56.1"}),
        ("'trl>=0.28' 'transformers>=5.5.0'", "", {"trl>=0.28", "transformers>=5.5.0"}),
        ("'transformers~=4.40' 'trl!=0.19.0,<1'", "", {"transformers~=4.40", "trl!=0.19.0,<1"}),
    ],
)
def test_what_the_notebook_bounds_or_the_code_takes_decides_before_that_set(
    asked: str, code: str, given: set[str]
) -> None:
    found = read(f"!pip install {asked}", f"import unsloth\n{code}", minimums=FLOORS)
    assert {package.line for package in found.packages if "unsloth" not in package.name} == given


@pytest.mark.parametrize(
    "asked",
    [
        "unsloth==2026.10.9",
        "'unsloth>=2025.1'",
        "transformers==4.56.2",
        "'transformers>=4.51'",
        "'trl!=0.19.0'",
        "transformers==5.20.0",
        "datasets==4.3.*",
        "'peft<1'",
        "git+https://github.com/unslothai/unsloth",
        "git+https://github.com/x/transformers@0123456789abcdef0123456789abcdef01234567",
        f"git+{HUB}/evaluate@0123456789abcdef0123456789abcdef01234567",
        "torch==2.6.0 torchvision==0.21.0",
    ],
)
def test_versions_that_it_takes_and_newer_ones_stay(asked: str) -> None:
    found = read(f"!pip install {asked}", minimums=FLOORS)
    lines = [package.line for package in found.packages if package.name != "unsloth-zoo"]
    assert lines == asked.replace("'", "").split()
    assert found.notes == ()


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("xformers==0.0.28.post3", "xformers"),
        ("torch torchvision==0.20.1", "torch torchvision"),
        ("torch==2.7.1 xformers==0.0.31", "torch==2.7.1 xformers==0.0.31"),
        ("torch<2.8 xformers==0.0.31", "torch<2.8 xformers==0.0.31"),
        ("xformers>=0.0.33 torchvision>=0.24.0", "xformers>=0.0.33 torchvision>=0.24.0"),
        ("torch==2.2.2 torchvision==0.17.2 xformers", "torch torchvision xformers"),
        ("torch==2.5.1 torchao==0.13.0", "torch==2.5.1 torchao==0.13.0"),
        ("torch~=2.5", "torch~=2.5"),
        ("vllm==0.10.2 trl==0.22.2", "vllm==0.10.2 trl==0.22.2"),
        ("vllm==0.25.1", "vllm==0.25.1"),
        ("vllm", "vllm"),
    ],
)
def test_an_old_torch_gives_way_or_takes_what_is_of_its_age(asked: str, given: str) -> None:
    found = read(f"!pip install {asked}", "import unsloth", minimums=FLOORS)
    lines = [package.line for package in found.packages if not package.name.startswith(("unsloth", "transformers"))]
    assert lines == given.split()


#: What is asked for beside an old TRL.
OLD = "transformers<5"


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("unsloth", ["unsloth>=2026.7.1", "unsloth-zoo>=2026.9.9", "trl<=0.19.1", OLD]),
        ("unsloth 'trl>=0.18.2'", ["unsloth>=2026.7.1", "unsloth-zoo>=2026.9.9", "trl<=0.19.1,>=0.18.2", OLD]),
        ("unsloth 'trl<1,>=0.18.2'", ["unsloth>=2026.7.1", "unsloth-zoo>=2026.9.9", "trl<1,<=0.19.1,>=0.18.2", OLD]),
        ("unsloth trl==0.22.2", ["unsloth>=2026.7.1", "unsloth-zoo>=2026.9.9", "trl==0.22.2", OLD]),
        ("unsloth trl==1.0.0", ["unsloth>=2026.7.1", "unsloth-zoo>=2026.9.9", "trl==1.0.0"]),
        (
            "unsloth trl==0.22.2 transformers==4.56.2",
            ["unsloth>=2026.7.1", "unsloth-zoo>=2026.9.9", "trl==0.22.2", "transformers==4.56.2"],
        ),
    ],
)
def test_the_last_version_that_has_what_the_code_takes_is_asked_for(asked: str, given: list[str]) -> None:
    code = "from unsloth import FastLanguageModel\nfrom trl import DataCollatorForCompletionOnlyLM"
    found = read(f"!pip install {asked}", code, minimums=FLOORS)
    assert sorted(package.line.replace("_", "-") for package in found.packages) == sorted(given)
    noted = [f"{given[2]}: no later version has DataCollatorForCompletionOnlyLM"] if "<=" in given[2] else []
    version = "0.19.1" if "0.19.1" in given[2] else given[2].removeprefix("trl==")
    noted += [f"{OLD}: TRL {version} knows no later one"] if OLD in given else []
    assert [note for _, note in found.notes] == noted


@pytest.mark.parametrize(
    ("asked", "bounds"),
    [("transformers==4.53.2", ["trl<=0.19.1"]), ("transformers==4.52.4 trl", ["trl<=0.19.1"])],
)
def test_an_old_transformers_takes_no_trl_that_lacks_what_the_code_takes(asked: str, bounds: list[str]) -> None:
    code = "from unsloth import FastLanguageModel\nfrom trl import DataCollatorForCompletionOnlyLM"
    found = read(f"!pip install unsloth {asked}", code, minimums=FLOORS)
    assert [package.line for package in found.packages if package.name == "trl"] == bounds


def test_what_is_imported_counts_and_not_what_unsloth_leaves_out() -> None:
    for config, asked in (("ORPOConfig", ["trl<=0.28.0"]), ("GRPOConfig", [])):
        code = (
            f"from unsloth import FastLanguageModel\nfrom trl import {config}\nargs = {config}(max_prompt_length = 9)"
        )
        assert [each.line for each in read(code).packages] == ["unsloth", *asked]


@pytest.mark.parametrize(
    ("extra", "kept"),
    [
        ("colab", ""),
        ("cu121", ""),
        ("cu118-ampere-torch240", ""),
        ("cu124-torch260", "[cu124-torch260]"),
        ("cu128-torch2100", "[cu128-torch2100]"),
        ("colab-new", "[colab-new]"),
        ("amd", "[amd]"),
    ],
)
def test_an_extra_of_unsloth_for_an_old_torch_is_left_out(extra: str, kept: str) -> None:
    found = read(f"!pip install 'unsloth[{extra}] @ git+{HUB}/unsloth.git'")
    assert [package.line for package in found.packages] == [f"unsloth{kept} @ git+{HUB}/unsloth.git"]
    assert bool(found.notes) == (not kept)


UNSLOTH = "!pip install unsloth"
LOAD = 'from unsloth import FastModel\nmodel, t = FastModel.from_pretrained("unsloth/gemma-3-4b-it"{})'
SOUND = "import unsloth\nparts = [{'type': 'audio', 'audio': path}, {'type': 'text', 'text': 'Listen.'}]"
PARTLY_PINNED = (
    "!pip install --no-deps bitsandbytes xformers==0.0.29.post3 trl unsloth_zoo\n"
    "!pip install sentencepiece\n!pip install --no-deps unsloth"
)
#: Cells, and the lines of all files, in order.
ADDED = {
    "imports": ((UNSLOTH, "from bert_score import score\nimport Levenshtein, own"), "unsloth bert-score Levenshtein"),
    "a module of its own": ((UNSLOTH, "%%writefile evaluate.py\nx = 1", "import evaluate, flask"), "unsloth flask"),
    "Google": ((UNSLOTH, "from google import genai\nfrom google.colab import drive"), "unsloth google-genai"),
    "a tracker": ((UNSLOTH, 'a = SFTConfig(report_to = "wandb", output_dir = "trackio")'), "unsloth wandb"),
    "an engine": ((UNSLOTH, LOAD.format(", fast_inference = True")), "unsloth vllm"),
    "no engine": ((UNSLOTH, LOAD.format(", fast_inference = False")), "unsloth"),
    "Gemma 3n": ((UNSLOTH, LOAD.replace("3-4b", "3n-E2B").format("")), "unsloth timm"),
    "sounds": ((UNSLOTH, SOUND), "unsloth librosa"),
    "sounds that torchcodec reads": ((f"{UNSLOTH} torchcodec", SOUND), "unsloth torchcodec"),
    "no floor": (("!pip install transformers==4.44.2",), "transformers==4.44.2"),
    "no install": (("import unsloth\nfrom trl import SFTTrainer",), "unsloth"),
    "what an old TRL has": (
        ("import unsloth\nfrom trl import DataCollatorForCompletionOnlyLM",),
        "unsloth trl<=0.19.1 transformers<5",
    ),
    "an argument of an old TRL": (
        ("!pip install trl", "from trl import SFTConfig\nargs = SFTConfig(max_seq_length = 512)"),
        "trl<=0.19.1 transformers<5",
    ),
    "a source that lacks an argument": (
        (
            "!pip install unsloth git+https://github.com/huggingface/transformers.git",
            "import unsloth\nfrom transformers import TrainingArguments\nTrainingArguments(warmup_ratio = 0.1)\n",
        ),
        "unsloth transformers<=5.14.1",
    ),
}
#: The same where the script asks for versions.
RAISED = {
    "Colab's torch": (
        (PARTLY_PINNED,),
        "bitsandbytes xformers trl unsloth_zoo>=2026.9.9 sentencepiece unsloth>=2026.7.1",
    ),
    "Unsloth's zoo": (("!pip install unsloth==2025.3.19 vllm",), "unsloth>=2026.7.1 vllm unsloth_zoo>=2026.9.9"),
}


@pytest.mark.parametrize(("cells", "given"), ADDED.values(), ids=ADDED)
def test_what_is_added(cells: tuple[str, ...], given: str) -> None:
    found = read(*cells)
    assert [package.line for package in found.packages] == given.split()


@pytest.mark.parametrize(("cells", "given"), RAISED.values(), ids=RAISED)
def test_what_is_raised(cells: tuple[str, ...], given: str) -> None:
    assert [package.line for package in read(*cells, minimums=FLOORS).packages] == given.split()
