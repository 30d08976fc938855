"""Names of modules: those that no script must have, because it would be imported instead, and the packages of some."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

#: What the setup block of every script imports.
IN_SETUP: Final = frozenset({"logging", "os", "sys", "torch"})
#: Modules that training with Unsloth may import, whether a notebook names them or not: of what unsloth, unsloth_zoo,
#: trl and sentence-transformers require, and of the trackers, engines and kernels that transformers looks for.
_PACKAGES: Final = frozenset(
    """
    absl accelerate aiohappyeyeballs aiohttp aiosignal annotated_doc annotated_types anyio attr bitsandbytes
    causal_conv1d certifi charset_normalizer click cloudpickle codecarbon comet_ml cut_cross_entropy cv2 datasets
    dateutil deepspeed diffusers dill einops evaluate fastapi filelock flash_attn frozenlist fsspec functorch gguf
    google gradio h11 hf_transfer hf_xet httpcore httpx huggingface_hub idna IPython ipywidgets jinja2 joblib
    kernels langchain librosa liger_kernel llama_cpp lm_eval mamba_ssm markdown_it markupsafe matplotlib mdurl
    mlflow mpl_toolkits mpmath
    msgspec multidict multiprocess narwhals neptune networkx numpy nvidia ollama openai optimum packaging
    pandas peft PIL pkg_resources propcache protobuf psutil pyarrow pydantic pydantic_core pygments pynvml ray
    regex requests rich safetensors scipy sentence_transformers sentencepiece setuptools sklearn soundfile
    swanlab sympy tensorboard tensorboardX threadpoolctl tiktoken timm tokenizers torch torchao torchaudio
    torchcodec torchgen torchvision tqdm trackio transformers triton trl typer typing_extensions
    typing_inspection tyro unsloth unsloth_zoo urllib3 uvicorn vllm wandb xformers xxhash yaml yarl zmq
    """.split()
)

#: Modules that Colab has and Unsloth does not bring (github.com/googlecolab/backend-info, pip-freeze.txt): notebooks
#: import them without installing them. `gather_across_devices`, which scripts set, is of sentence-transformers 5.1.
ON_COLAB: Final = {
    "albumentations": "albumentations",
    "altair": "altair",
    "bokeh": "bokeh",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "cvxpy": "cvxpy",
    "dask": "dask",
    "dotenv": "python-dotenv",
    "duckdb": "duckdb",
    "folium": "folium",
    "gdown": "gdown",
    "geopandas": "geopandas",
    "google.cloud.aiplatform": "google-cloud-aiplatform",
    "google.cloud.bigquery": "google-cloud-bigquery",
    "google.cloud.storage": "google-cloud-storage",
    "google.genai": "google-genai",
    "google.generativeai": "google-generativeai",
    "gradio": "gradio",
    "graphviz": "graphviz",
    "gspread": "gspread",
    "imageio": "imageio",
    "jsonschema": "jsonschema",
    "kagglehub": "kagglehub",
    "keras": "keras",
    "librosa": "librosa",
    "lightgbm": "lightgbm",
    "lxml": "lxml",
    "matplotlib": "matplotlib",
    "missingno": "missingno",
    "mlxtend": "mlxtend",
    "moviepy": "moviepy",
    "nbformat": "nbformat",
    "nltk": "nltk",
    "numba": "numba",
    "openai": "openai",
    "plotly": "plotly",
    "polars": "polars",
    "psycopg2": "psycopg2-binary",
    "pycocotools": "pycocotools",
    "scipy": "scipy",
    "seaborn": "seaborn",
    "sentence_transformers": "sentence-transformers>=5.1",
    "shap": "shap",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "soundfile": "soundfile",
    "spacy": "spacy",
    "sqlalchemy": "sqlalchemy",
    "statsmodels": "statsmodels",
    "tabulate": "tabulate",
    "tenacity": "tenacity",
    "termcolor": "termcolor",
    "textblob": "textblob",
    "torchaudio": "torchaudio",
    "umap": "umap-learn",
    "wandb": "wandb",
    "wordcloud": "wordcloud",
    "yfinance": "yfinance",
}
#: Modules of packages that notebooks import without installing them, and that neither Colab nor Unsloth brings: where
#: the names differ, the package behind a colon.
ON_INDEX: Final = {
    module: package or module
    for module, _, package in (
        words.partition(":")
        for words in (
            "anthropic bert_score:bert-score boto3 captum chromadb codecarbon comet_ml:comet-ml"
            " dac:descript-audio-codec decord deepspeed docx:python-docx einops evaluate faiss:faiss-cpu"
            " fastapi fitz:pymupdf flask ftfy gensim gguf inflection jieba jiwer jsonlines keras_ocr:keras-ocr"
            " langchain langdetect langid Levenshtein llama_cpp:llama-cpp-python lm_eval:lm-eval"
            " math_verify:math-verify mlflow neptune ollama openpyxl optimum optuna pynvml:nvidia-ml-py pypdf"
            " pytz qwen_vl_utils:qwen-vl-utils rapidfuzz ray rouge_score:rouge-score sacrebleu snac swanlab tensorboard"
            " tensorboardX tensorflow textstat tiktoken timm trackio unidecode uvicorn vllm whisper:openai-whisper"
            " xgboost zmq:pyzmq"
        ).split()
    )
}


def on_index(module: str) -> str:
    """Return the name of a module's package on the index, if it is known to differ; else the module's."""
    known = (ON_COLAB | ON_INDEX).get(module)
    return module if known is None else Requirement(known).name


def hidden(name: str, sources: Iterable[str] = ()) -> str:
    """Return the module or package that a file of this name would hide; empty if none.

    Args:
        name: the file's name without `.py`.
        sources: the notebook's code cells.
    """
    if not name.isidentifier():
        return ""
    if name in sys.stdlib_module_names:
        return f"Python's own module {name}"
    if is_published(name, sources) or any(names_module(source, name) for source in sources):
        return f"the package {name}"
    return ""


def names_module(source: str, name: str) -> bool:
    """True if code imports a module of that name, or installs a package of that name."""
    imports = rf"^[ \t]*(?:from[ \t]+{name}[ \t.][\w. \t]*import\b|import[ \t]+(?:[^#\n]*,[ \t]*)?{name}\b)"
    return bool(re.search(imports, source, re.MULTILINE)) or is_published(name, [source])


def is_published(name: str, sources: Iterable[str]) -> bool:
    """True for a module of Python's, of a package that training may import, or of one that code installs by name."""
    installs = re.compile(
        rf"^[^#\n]*\binstall\b(?:(?![ \t]#)[^\n])*(?<![\w./-]){re.escape(name).replace('_', '[-_]')}(?![\w./-])",
        re.MULTILINE,
    )
    return name in sys.stdlib_module_names or name in _PACKAGES or any(map(installs.search, sources))


def other_name(name: str) -> str:
    """Return another name for a script whose name hides a module."""
    return f"{name}_ddp.py"


def hiding(folder: Path) -> list[Path]:
    """Return the modules of a folder that hide a standard module, or a package that training needs."""
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return []
    files = [path for path in paths if path.suffix == ".py" and hidden(path.stem)]
    return files + [path / "__init__.py" for path in paths if hidden(path.name) and (path / "__init__.py").exists()]
