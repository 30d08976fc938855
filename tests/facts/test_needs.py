"""What a job needs: one list, made from the whole notebook."""

from __future__ import annotations

import pytest

from nb2ddp.facts.needs import Kind
from nb2ddp.facts.program import Program
from nb2ddp.options import Options
from tests.notebooks import CELL_BREAK, example_notebook

MOUNTED = 'from google.colab import drive\ndrive.mount("/content/drive")\n'
TRAIN = f"{CELL_BREAK}from trl import SFTTrainer\ntrainer = SFTTrainer(model)\ntrainer.train()\n"


def needs(code: str) -> list[str]:
    """The needs of a notebook; those that it stops without end in `!`."""
    found = Program(example_notebook(code + TRAIN), Options()).needs
    return [f"{need}{'!' if need.required else ''}" for need in found]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('from google.colab import userdata\nt = userdata.get("HF_TOKEN")', ["HF_TOKEN (cell 1)!"]),
        (
            'from kaggle_secrets import UserSecretsClient\ns = UserSecretsClient()\nt = s.get_secret("wandb")',
            ["wandb (cell 1)!"],
        ),
        ('import os\nkey = os.environ["OPENAI_API_KEY"]', ["OPENAI_API_KEY (cell 1)!"]),
        ('import os\nfrom dotenv import load_dotenv\nload_dotenv()\nkey = os.environ["A_KEY"]', ["A_KEY (cell 1)"]),
        ('import os\nkey = os.environ.get("OPENAI_API_KEY")', ["OPENAI_API_KEY (cell 1)"]),
        ('import os\ntry:\n    key = os.environ["A_KEY"]\nexcept KeyError:\n    key = None', ["A_KEY (cell 1)"]),
        ('import os\nif "A_KEY" in os.environ:\n    key = os.environ["A_KEY"]', ["A_KEY (cell 1)"]),
        ('import os\nkey = os.environ.get("A_KEY", "")', []),
        ('import os\nos.environ["A_KEY"] = "a"\nkey = os.environ["A_KEY"]', []),
        ('import os\nkey = os.environ["A_KEY"]\nos.environ["A_KEY"] = "a"', ["A_KEY (cell 1)!"]),
        ('import os\nfrom huggingface_hub import login\nlogin(os.environ.get("MY_HUB"))\nos.environ["MY_HUB"] = "a"',
         ["MY_HUB (cell 1)!"]),
        ('import os\nos.environ["A_KEY"] = os.environ["A_KEY"].strip()', ["A_KEY (cell 1)!"]),
        ('import os\ndef key():\n    return os.environ["A_KEY"]\nos.environ["A_KEY"] = "a"\nkey()', []),
        ('import os\ndef key():\n    return os.environ["A_KEY"]\nkey()\nos.environ["A_KEY"] = "a"', ["A_KEY (cell 1)"]),
        ('import os\ndef key():\n    os.environ["A_KEY"] = "a"\nk = os.environ["A_KEY"]\nkey()', ["A_KEY (cell 1)!"]),
        ('import os\ndef key():\n    os.environ["A_KEY"] = "a"\nkey()\nk = os.environ["A_KEY"]', []),
        ('import os\nkey = os.environ.get("A_KEY")\nif not key:\n    os.environ["A_KEY"] = "a"', []),
        ('import os\nif not os.environ.get("A_KEY"):\n    os.environ["A_KEY"] = "a"', []),
        ('import os\nfor each in names:\n    print(os.environ["A_KEY"])\n    os.environ["A_KEY"] = each', []),
        ('args = SFTConfig(push_to_hub = True)\nimport os\nos.environ["HF_TOKEN"] = "a" * 9', []),
        ('import os\nhome, rank = os.environ["HOME"], os.environ["RANK"]', []),
        (
            'import os\nfrom google.colab import userdata\nos.environ["HF_TOKEN"] = userdata.get("HF_TOKEN")',
            ["HF_TOKEN (cell 1)"],
        ),
        (
            'import os\nfrom google.colab import userdata\nos.environ["HF_TOKEN"] = userdata.get("HF_TOKEN")\n'
            'api = HfApi(token = os.environ["HF_TOKEN"])',
            ["HF_TOKEN (cell 1)!"],
        ),
        (
            'import os\nfrom getpass import getpass\nos.environ["A_KEY"] = getpass()\nkey = os.environ["A_KEY"]',
            ["A_KEY (cell 1)!"],
        ),
        ('from getpass import getpass\nkey = getpass("Key: ")\nif not key:\n    key = None',
         ["KEY (optional, cell 1)"]),
        ('from getpass import getpass\nkey = getpass("Key: ").strip() or None', ["KEY (optional, cell 1)"]),
        ('from getpass import getpass\nkey = getpass("Key: ")\nother = key if key else None',
         ["KEY (optional, cell 1)"]),
        ('from getpass import getpass\nif key := getpass("Key: ").strip():\n    use(key)', ["KEY (optional, cell 1)"]),
        ('from getpass import getpass\nkey = getpass("Key: ")\nif key:\n    use(key)\nassert key', ["KEY (cell 1)!"]),
        ('from getpass import getpass\nkey = getpass("Key: ")\nif ready(key):\n    use(key)', ["KEY (cell 1)!"]),
        ('from getpass import getpass\nkey = getpass("Key: ")\nif not key:\n    raise SystemExit', ["KEY (cell 1)!"]),
        ("from huggingface_hub import login\nlogin(add_to_git_credential = True)", ["HF_TOKEN (cell 1)"]),
        (
            'from trl import SFTConfig\nargs = SFTConfig(push_to_hub = True, hub_model_id = "me/x")',
            ["HF_TOKEN (cell 1)!"],
        ),
        ('import os\nfrom huggingface_hub import login\nlogin(os.getenv("MY_HUB"))', ["MY_HUB (cell 1)!"]),
        ('import os\nfrom getpass import getpass\nif "A_KEY" not in os.environ:\n    os.environ["A_KEY"] = getpass()',
         ["A_KEY (cell 1)"]),
        ('import os\nfrom getpass import getpass\nif "A_KEY" not in os.environ:\n    k = getpass()',
         ["A_KEY (cell 1)!"]),
        (
            'from transformers import AutoModel\nmodel = AutoModel.from_pretrained("x/y", token = "YOUR_HF_TOKEN")',
            ["HF_TOKEN (optional, cell 1)"],
        ),
        (
            'from transformers import AutoModel\n'
            'model = AutoModel.from_pretrained("x/y", token = "x/Qwen2.5-0.5B-Instruct")',
            ["HF_TOKEN (optional, cell 1)"],
        ),
        (
            'from transformers import AutoModel\nsettings = {"token": "hf_xxx"}\n'
            'model = AutoModel.from_pretrained("x/y", token = settings["token"])',
            ["HF_TOKEN (optional, cell 1)"],
        ),
        ('from transformers import AutoModel\nmodel = AutoModel.from_pretrained("x/y", token = "")',
         ["HF_TOKEN (optional, cell 1)"]),
        ('import boto3\ns3 = boto3.client("s3")', ["credentials of AWS (cell 1)"]),
        ('import boto3\ns3 = boto3.client("s3", aws_access_key_id = k, aws_secret_access_key = s)', []),
        ('import pandas as pd\nrows = pd.read_csv("s3://me/rows.csv")', ["credentials of AWS (cell 1)"]),
        (
            'import boto3, os\nos.environ["AWS_ACCESS_KEY_ID"] = "A"\ns3 = boto3.client("s3")\nt = "s3://me/rows.csv"',
            [],
        ),
        ('rows = read("s3://me/rows.csv", storage_options = {"anon": True})', []),
        (
            'from google.cloud import storage\nbucket = storage.Client().bucket("me")',
            ["credentials of Google (cell 1)"],
        ),
        ("!wandb login", ["WANDB_API_KEY (cell 1)"]),
        ('import wandb\nwandb.init(project = "a")', ["WANDB_API_KEY (cell 1)!"]),
        ('import wandb\nwandb.init(mode = MODE)', ["WANDB_API_KEY (cell 1)"]),
        ('!wandb offline\nimport wandb\nwandb.init()', ["WANDB_API_KEY (cell 1)"]),
        ('import wandb\ntry:\n    wandb.init()\nexcept OSError:\n    pass', ["WANDB_API_KEY (cell 1)"]),
        ('args = SFTConfig(report_to = ["wandb"])', ["WANDB_API_KEY (cell 1)!"]),
        ('TRACKER = "wandb"\nargs = SFTConfig(report_to = TRACKER)', ["WANDB_API_KEY (cell 1)!"]),
        ('args = SFTConfig(report_to = "wandb" if LOGS else "none")', ["WANDB_API_KEY (cell 1)"]),
        ('if LOGS:\n    args = SFTConfig(report_to = "wandb")', ["WANDB_API_KEY (cell 1)"]),
        ('from dotenv import load_dotenv\nload_dotenv()\nargs = SFTConfig(report_to = "wandb")',
         ["WANDB_API_KEY (cell 1)"]),
        ('from dotenv import load_dotenv\nfrom trl import SFTConfig, SFTTrainer\n'
         'args = SFTConfig(report_to = "wandb")\n'
         'load_dotenv()\ntrainer = SFTTrainer(model, args = args)\ntrainer.train()', ["WANDB_API_KEY (cell 1)"]),
        ('from dotenv import load_dotenv\nfrom trl import SFTConfig, SFTTrainer\n'
         'args = SFTConfig(report_to = "wandb")\n'
         'trainer = SFTTrainer(model, args = args)\ntrainer.train()\nload_dotenv()', ["WANDB_API_KEY (cell 1)!"]),
        ('import os\nos.environ["WANDB_MODE"] = "offline"\nimport wandb\nwandb.init(project = "a")', []),
        ('import wandb\nwandb.login(key = "0123456789abcdefA123456789abcdef")\nwandb.init(project = "a")', []),
        ("!wandb login abcdef", []),
        ('from getpass import getpass\nkey = getpass("Your GROQ_API_KEY: ")', ["GROQ_API_KEY (cell 1)!"]),
        ('from getpass import getpass\nkey = getpass("Key (Enter to skip): ")', ["KEY (optional, cell 1)"]),
        (
            'import os\nfrom getpass import getpass\ntyped = getpass()\nos.environ["A_KEY"] = typed',
            ["A_KEY (cell 1)!"],
        ),
        ('import openai\nclient = openai.OpenAI(base_url = "http://localhost:8000/v1")',
         ["a server at http://localhost:8000 (cell 1)"]),
        ('import openai\nclient = openai.OpenAI()\nclient.models.list()', ["the service of openai (cell 1)"]),
        ('from openai import OpenAI\nclient = OpenAI(base_url = "https://api.rows.org/v1")',
         ["the service at https://api.rows.org (cell 1)"]),
        ('import requests\nrows = requests.get("https://rows.org/a").json()',
         ["the service at https://rows.org (cell 1)"]),
        ('client = Rows(base_url = "https://rows.hf.space")', ["the service at https://rows.hf.space (cell 1)"]),
        ('from huggingface_hub import login\nlogin("hf_aBcD1234eFgH5678iJkL")',
         ["the token hf_...JkL, which the notebook holds (cell 1)"]),
        ('model.push_to_hub("a/b", token = "hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH")',
         ["the token hf_...FgH, which the notebook holds (cell 1)"]),
        ('model.push_to_hub("a/b", token = "hf_your_token_goes_in_here")', ["HF_TOKEN (cell 1)!"]),
        ('from google import genai\nclient = genai.Client(api_key = "API-KEY")', ["GOOGLE_API_KEY (cell 1)!"]),
        ('model.push_to_hub("a/b")', ["HF_TOKEN (cell 1)!"]),
        ('if SAVES:\n    model.push_to_hub("a/b")', ["HF_TOKEN (cell 1)"]),
        ('args = SFTConfig(push_to_hub = True, hub_model_id = "a/b")', ["HF_TOKEN (cell 1)!"]),
        ('args = SFTConfig(push_to_hub = False)', []),
        ('from huggingface_hub import upload_folder\nupload_folder(repo_id = "a/b", folder_path = OUT)',
         ["HF_TOKEN (cell 1)!"]),
        ('from huggingface_hub import HfApi\napi = HfApi()\napi.upload_folder(repo_id = "a/b", folder_path = OUT)',
         ["HF_TOKEN (cell 1)!"]),
        ('import os\nfrom huggingface_hub import HfApi\napi = HfApi(token = os.environ["A_KEY"])\n'
         'api.upload_file(repo_id = "a/b")', ["A_KEY (cell 1)!"]),
        ('from huggingface_hub import HfApi\nHfApi().list_models()', []),
        ('model.push_to_hub("your_name/lora", token = read())', ['a name in place of "your_name" (cell 1)']),
        ('USER = "your-username"\nmodel.push_to_hub_merged(f"{USER}/lora", tokenizer, token = read())',
         ['a name in place of "your-username" (cell 1)']),
        ('args = SFTConfig(hub_model_id = "<username>/lora")', ['a name in place of "<username>" (cell 1)']),
        ('import os\nUSER = os.getenv("USERNAME")\nmodel.push_to_hub(f"{USER}/lora", token = read())',
         ["USERNAME (cell 1)"]),
        ('model.push_to_hub("someone/lora", token = read())', []),
        ('trainer.push_to_hub("your_name", token = read())', []),
        ('trainer.push_to_hub("your/name", token = read())', []),
        ('model.push_to_hub("your_repo", token = read())', ['a name in place of "your_repo" (cell 1)']),
        ('model.push_to_hub("lora", token = read())\nmodel.push_to_hub("mine/not-your-name", token = read())', []),
        ('from peft import PeftModel\nmodel = PeftModel.from_pretrained(base, "PUT YOUR MODEL")',
         ['a name in place of "PUT YOUR MODEL" (cell 1)']),
        ('from datasets import load_dataset\nrows = load_dataset("<user>/rows")\nmore = load_dataset("rows go here")',
         ['a name in place of "<user>" (cell 1)', 'a name in place of "rows go here" (cell 1)']),
        ('from peft import PeftModel\nmodel.save_pretrained("Your LoRA")\n'
         'model = PeftModel.from_pretrained(base, "Your LoRA")', []),
        ('from unsloth import FastModel\nmodel = FastModel.from_pretrained("your_lora")',
         ["your_lora beside the script (cell 1)!"]),
        ('model.save_pretrained("your_name/lora")', []),
        ('import os\nargs = SFTConfig(push_to_hub = True, hub_token = os.environ["A_KEY"])', ["A_KEY (cell 1)!"]),
        ('from huggingface_hub import notebook_login\nnotebook_login()\nmodel.push_to_hub_merged("a/b", tokenizer)',
         ["HF_TOKEN (cell 1)!"]),
        ('import os\nt = os.environ.get("HF_TOKEN")\nmodel.push_to_hub("a/b", token = t)', ["HF_TOKEN (cell 1)!"]),
        ('model.push_to_hub("a/b", token = "")', ["HF_TOKEN (cell 1)!"]),
        ('ARGS = {"token": ""}\nclass Own:\n    def push(self, token):\n        model.push_to_hub("a/b", token = token)'
         '\nown = Own()\nown.push(token = ARGS["token"])', ["HF_TOKEN (cell 1)!"]),
        ('class Own:\n    def push(self, name):\n        model.push_to_hub(name, token = read())\nown = Own()\n'
         'own.push("your_name/lora")', ['a name in place of "your_name" (cell 1)']),
        ('if True:\n    model.push_to_hub("a/b", token = "")', ["HF_TOKEN (cell 1)!"]),
        ('if True:\n    model.push_to_hub("a/b")', ["HF_TOKEN (cell 1)!"]),
        ('if SAVES:\n    model.push_to_hub("a/b", token = "")', []),
        ('from huggingface_hub import login\nlogin("")\nmodel.push_to_hub("a/b")', ["HF_TOKEN (cell 1)!"]),
        ('from huggingface_hub import login\ntry:\n    login("hf_x")\nexcept OSError:\n    pass\n'
         'model.push_to_hub("a/b")', ["HF_TOKEN (cell 1)!"]),
        ('from huggingface_hub import HfApi\nKEY = "put your token"\nHfApi(token = KEY).upload_file("a", "b")',
         ["HF_TOKEN (cell 1)!"]),
        ('import os\nos.environ["HF_TOKEN"] = "YOUR TOKEN"', ["HF_TOKEN (cell 1)"]),
        ('import os\nos.environ["HF_TOKEN"] = ""\nmodel.push_to_hub("a/b")', ["HF_TOKEN (cell 1)!"]),
        ('import os, wandb\nos.environ["WANDB_API_KEY"] = "xxxx"\nwandb.init()', ["WANDB_API_KEY (cell 1)"]),
        ('while True:\n    q = input()\n    if q.lower() == "quit": break', []),
        ('while True:\n    q = input()\n    if q == "x" or q in ("y", "z"):\n        break', []),
        ('while True:\n    q = input()\n    if not q:\n        break', []),
        ('while True:\n    q = input()\n    print(q)', ["Q (cell 1)!"]),
        ('while True:\n    q = input()\n    if q in ("y", "n"):\n        break\nuse(q)', ["Q (cell 1)!"]),
        ('while True:\n    q = input()\n    for each in rows:\n        if q == "x": break', ["Q (cell 1)!"]),
        ('from google.colab import drive\ndrive.mount("/content/drive")\n'
         'model.save_pretrained("/content/drive/MyDrive/lora")', ["/content/drive to write into (cell 1)"]),
        ('import os\nos.environ["HF_TOKEN"] = read()\nmodel.push_to_hub("a/b")\n!hf auth login', []),
        ('from kaggle_secrets import UserSecretsClient\n'
         't = UserSecretsClient().get_secret("hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH")',
         ["HF_TOKEN (cell 1)!"]),
        ('import os, requests\nURL = os.environ.get("ENV", "https://rows.hf.space")\nrequests.post(f"{URL}/reset")',
         ["the service at https://rows.hf.space (cell 1)"]),
        ('!hf auth login --token hf_aBcD1234eFgH5678iJkL', ["the token hf_...JkL, which the notebook holds (cell 1)"]),
        ('import wandb\nwandb.login(key = "0123456789abcdef0123456789abcdef01234567")',
         ["the token ...567, which the notebook holds (cell 1)"]),
        *((code.replace("KEY", '"0123456789abcdef0123456789abcdef01234567"'),
           ["the token ...567, which the notebook holds (cell 1)"])
          for code in ('import os\nos.environ["WNB_TOKEN"] = KEY', "api_key = KEY", "WB = KEY", "wbKey = KEY",
                       'settings = {"key": KEY}', "use(token = KEY)", "wb_id: str = KEY",
                       "import wandb\nmine = KEY\nwandb.login(key = mine)")),
        *((code.replace("KEY", '"0123456789abcdef0123456789abcdef01234567"'), [])
          for code in ("COMMIT = KEY", "model = load(revision = KEY)", "sha1 = KEY", "commit_key = KEY", "monkey = KEY",
                       "tokenizer_version = KEY", 'sums = {"a.zip": KEY}', "sums = {KEY: 'token'}", "cache_key = KEY")),
        ('token = "hf_xxxxxxxxxxxxxxxxxxxxxxxx"', []),
        ("from transformers import TrainingArguments\nargs = TrainingArguments(warmup_ratio = 0.1)",
         ["transformers 5.14.1 or older (cell 1)"]),
        ("!pip install transformers==4.56.2\nfrom transformers import TrainingArguments\n"
         "args = TrainingArguments(warmup_ratio = 0.1)", []),
        ('commit = "0123456789abcdef0123456789abcdef01234567"', []),
        ("%env HF_TOKEN=hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456",
         ["the token hf_...456, which the notebook holds (cell 1)"]),
        ("%env WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567",
         ["the token ...567, which the notebook holds (cell 1)"]),
        ('%env HF_TOKEN="hf_xxx"\n%env OMP_NUM_THREADS=8', ["HF_TOKEN (cell 1)"]),
        ("%env WANDB_API_KEY=YOUR_KEY\n%env WANDB_MODE=disabled", []),
        ('!vllm serve model &\nurl = "http://localhost:8000/v1"', []),
        ('model.save_pretrained_gguf("m", tokenizer)\n!python llama.cpp/convert_hf_to_gguf.py m --outfile m.gguf',
         ["llama.cpp/convert_hf_to_gguf.py beside the script (cell 1)"]),
        ('import subprocess\nsubprocess.run(["./llama.cpp/build/bin/llama-quantize", "a.gguf", "b.gguf", "q8_0"])',
         ["llama.cpp/build/bin/llama-quantize beside the script (cell 1)"]),
        ("!git clone https://github.com/ggml-org/llama.cpp\n!python llama.cpp/convert_hf_to_gguf.py m", []),
        ("!ls llama.cpp/build\n!python other/llama.cpp/convert.py m", []),
        ('push = False\nif push:\n    import os\n    key = os.getenv("HF_TOKEN")', []),
        ('import os\nlocal = True\nif local:\n    key = ""\nelse:\n    key = os.getenv("HF_TOKEN")', []),
        ('import os\nif True:\n    key = ""\nelse:\n    key = os.environ["A_KEY"]', []),
        ('import os\nlocal = True\nkey = os.environ["A_KEY"] if not local else ""', []),
        ('import os\npush = False\ndef key():\n    return os.environ["A_KEY"]\nif push:\n    key()', []),
        ('import os\npush = False\ndef key():\n    return os.environ["A_KEY"]\nif push:\n    key()\nkey()',
         ["A_KEY (cell 1)"]),
        ('import os\npush = False\nif ready():\n    push = True\nif push:\n    key = os.environ["A_KEY"]',
         ["A_KEY (cell 1)"]),
        ('import os\npush = True\nif not push:\n    key = ""\nelse:\n    key = os.getenv("HF_TOKEN")',
         ["HF_TOKEN (cell 1)"]),
        ('push = False\nif push:\n    login("hf_aBcD1234eFgH5678iJkL")',
         ["the token hf_...JkL, which the notebook holds (cell 1)"]),
    ],
)  # fmt: skip
def test_variables_and_services(code: str, expected: list[str]) -> None:
    assert needs(code) == expected


READ = 'import pandas as pd\nrows = pd.read_csv("/content/drive/MyDrive/rows.csv")'
DRIVE = "/content/drive/MyDrive/rows.csv (cell 1)!"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (READ, [DRIVE]),
        (f'{READ}\nrows.to_csv("/content/drive/MyDrive/out.csv")',
         [DRIVE, "/content/drive to write into (cell 1)"]),
        (f'import os\nos.makedirs("/content/drive/MyDrive", exist_ok = True)\n{READ}', [DRIVE]),
        ('path = "/kaggle/input/a/b.csv"\nrows = open(path).read()', ["/kaggle/input/a/b.csv (cell 1)!"]),
        ('import os\nroot = "/kaggle/input/a"\nfiles = [os.path.join(root, n) for n in names]',
         ["/kaggle/input/a (cell 1)"]),
        ('import os\nif not os.path.exists("/kaggle/input"):\n    raise OSError("attach it")',
         ["/kaggle/input (cell 1)"]),
        ('import os\nassert os.path.isdir("/kaggle/input/a")', ["/kaggle/input/a (cell 1)"]),
        ('import os\nif os.path.exists("/kaggle/input"):\n    root = "a"', []),
        ('import os\nkaggle = os.getcwd() == "/kaggle/working"', []),
        ('import os\nroot = next(p for p in ["/content/a", "a"] if os.path.exists(p))', []),
        ('rows = load_dataset("json", data_files = ["/content/a.json", "/content/b.json"])',
         ["/content/a.json (cell 1)!", "/content/b.json (cell 1)!"]),
        ('try:\n    rows = open("/content/a.json").read()\nexcept OSError:\n    rows = ""', []),
        ('print("/content/a.json")', []),
        ('args = SFTConfig(output_dir = "/content/drive/MyDrive/x")\n'
         'rows = load_dataset("json", data_files = "/content/drive/MyDrive/x/a.jsonl")',
         ["/content/drive to write into (cell 1)", "/content/drive/MyDrive/x/a.jsonl (cell 1)"]),
        ('args = SFTConfig(output_dir = "/content/drive/MyDrive/x")\ntrainer.train()\n'
         'rows = open("/content/drive/MyDrive/x/a.jsonl")\nmodel.save_pretrained("/content/drive/MyDrive/x")',
         ["/content/drive to write into (cell 1)", "/content/drive/MyDrive/x/a.jsonl (cell 1)"]),
        ('args = SFTConfig(output_dir = "/content/drive/MyDrive/x")\ntrainer = SFTTrainer(args = args)\n'
         'trainer.train()\nsaid = open("/content/drive/MyDrive/x/trainer_state.json").read()',
         ["/content/drive to write into (cell 1)"]),
        ('args = SFTConfig(output_dir = "/content/drive/MyDrive/x")\n'
         'model = FastModel.from_pretrained("/content/drive/MyDrive/x/checkpoint-60")',
         ["/content/drive to write into (cell 1)"]),
        ('rows = open("/content/a.csv").read()\nopen("/content/a.csv", "w")',
         ["/content/a.csv (cell 1)", "/content to write into (cell 1)"]),
        ('def rows():\n    return open("/content/a.csv").read()\nopen("/content/a.csv", "w")\nrows()',
         ["/content to write into (cell 1)"]),
        ('for step in steps:\n    rows = open("/content/a.csv").read()\n    open("/content/a.csv", "w")',
         ["/content to write into (cell 1)"]),
        ('from pathlib import Path\nPATHS = {"out": Path("/kaggle/working/o")}\nPATHS["out"].mkdir(parents = True)',
         ["/kaggle/working to write into (cell 1)"]),
        ('import os\nPATHS = {"out": "/kaggle/working/o"}\nOUT = PATHS["out"]\nos.makedirs(OUT)',
         ["/kaggle/working to write into (cell 1)"]),
        ('from pathlib import Path\nPATHS = {"rows": Path("/kaggle/input/a")}\nrows = open(PATHS["rows"] / "a.csv")',
         ["/kaggle/input/a (cell 1)"]),
        ('!git clone https://github.com/unsloth/rows /content/rows\nrows = open("/content/rows/a").read()',
         ["/content to write into (cell 1)"]),
        ('ROWS = "/content/rows"\n!git clone https://github.com/unsloth/rows {ROWS}',
         ["/content to write into (cell 1)"]),
        ('DIR = "/content/drive/MyDrive/a"\nmodel.save_pretrained(f"{DIR}/lora")\n',
         ["/content/drive to write into (cell 1)"]),
        ('OUT = "/kaggle/working"\nmodel.save_pretrained(f"{OUT}/lora")', ["/kaggle/working to write into (cell 1)"]),
        ('import os\nOUT = "/kaggle/working"\nargs = SFTConfig(output_dir = os.path.join(OUT, "lora"))',
         ["/kaggle/working to write into (cell 1)"]),
        ('from pathlib import Path\nOUT = Path("/content")\nrows.to_csv(OUT / "rows.csv")',
         ["/content to write into (cell 1)"]),
        ('ROOT = "/kaggle/working"\nprint(ROOT)', []),
        ('import os\nROOT = "/content/drive/MyDrive/a"\nrows = open(os.path.join(ROOT, "rows.csv"))\n'
         'open(os.path.join(ROOT, "out.csv"), "w")',
         ["/content/drive/MyDrive/a (cell 1)", "/content/drive to write into (cell 1)"]),
        ('DRIVE = "/content/drive/MyDrive"\nOUT = DRIVE + "/lora"\nmodel.save_pretrained(OUT)',
         ["/content/drive to write into (cell 1)"]),
        ('!./llama-quantize a.gguf /content/b.gguf Q4_K_M\n!cp -r o /content/c\n!mv a.gguf /content/d',
         ["/content to write into (cell 1)"]),
        ('!git clone https://github.com/unsloth/rows.git\nrows = open("/content/rows/a").read()',
         ["/content as the current folder (cell 1)"]),
        ('!wget -q https://x.org/rows.csv\nrows = open("/content/rows.csv").read()',
         ["/content as the current folder (cell 1)"]),
        ('import pathlib, subprocess\nroot = pathlib.Path("/content/repo")\nif not root.exists():\n'
         '    subprocess.run(["git", "clone", url, str(root)])', ["/content to write into (cell 1)"]),
        ('import pathlib, subprocess\nroot = pathlib.Path("/content/repo")\n'
         'subprocess.run(["git", "clone", url, str(root)])\nrows = open(root / "a")',
         ["/content to write into (cell 1)"]),
        ('import pathlib, subprocess\nroot = pathlib.Path("/content/repo")\n'
         'subprocess.run(f"git clone {url} {root}", shell=True)', ["/content to write into (cell 1)"]),
        ('import os\nroot = os.path.join("/content", "repo")\n!git clone {url} {root}\nrows = open(f"{root}/a").read()',
         ["/content to write into (cell 1)"]),
        ('import os\npath = "/content/b.zip"\nroot = "/content/b"\nos.system(f\'unzip -o "{path}" -d "{root}"\')',
         ["/content/b.zip (cell 1)", "/content to write into (cell 1)"]),
        ('!unzip -o /content/b.zip -d /content/b', ["/content/b.zip (cell 1)", "/content to write into (cell 1)"]),
        ('import subprocess\nroot = "/content/repo"\nsubprocess.run(["ls", root])', ["/content/repo (cell 1)"]),
        ('import subprocess\nsubprocess.run(["sh", "a.sh"], cwd = "/content/repo")', ["/content/repo (cell 1)"]),
        ('# /kaggle/working/ is kept\nmodel.save_pretrained("lora")\nrows = load("../working/lora")',
         ["/kaggle/working as the current folder (cell 1)"]),
        ('model.save_pretrained("lora")\nrows = load("../working/lora")', []),
        ('# /kaggle/working/ is kept\nrows = open("../input/a/b.csv").read()', ["../input/a/b.csv (cell 1)!"]),
        ('rows = open("../input/a/b.csv").read()', ["../input/a/b.csv from the current folder (cell 1)!"]),
        ('from dotenv import load_dotenv\nargs = SFTConfig(push_to_hub = True)\nload_dotenv()',
         ["HF_TOKEN (cell 1)"]),
        ('import os\nfrom dotenv import load_dotenv\na = os.environ["A_KEY"]\nload_dotenv()\nb = os.environ["A_KEY"]',
         ["A_KEY (cell 1)!"]),
        ('import os\nfrom dotenv import load_dotenv\na = os.environ["HF_TOKEN"]\nload_dotenv()',
         ["HF_TOKEN (cell 1)!"]),
        ('from dotenv import load_dotenv\nload_dotenv("/content/.env")', ["/content/.env (cell 1)"]),
        ('!python convert.py --outfile /content/a.gguf\nrows = open("/content/a.gguf").read()',
         ["/content to write into (cell 1)"]),
        ('!zip -r /content/all.zip outputs\nrows = open("/content/all.zip").read()',
         ["/content to write into (cell 1)"]),
        ('!kaggle datasets download -d me/rows -p /content/rows --unzip\nrows = open("/content/rows/a.csv")',
         ["/content to write into (cell 1)"]),
        ('!hf download me/rows --repo-type dataset --local-dir=/content/rows\nrows = open("/content/rows/a.csv")',
         ["/content to write into (cell 1)"]),
        ('!kaggle competitions download -c rows\n!unzip /content/rows.zip',
         ["/content as the current folder (cell 1)"]),
        ('!kaggle datasets download me/rows --unzip\n!unzip /content/rows.zip',
         ["/content as the current folder (cell 1)"]),
        ('!zip -r /content/a.zip /content/a', ["/content/a (cell 1)", "/content to write into (cell 1)"]),
        ('!unzip data.zip\nrows = open("/content/data/a.csv").read()', ["/content/data/a.csv (cell 1)"]),
        ('model.save_pretrained("lora")\nrows = load("/content/lora")', ["/content as the current folder (cell 1)"]),
        ('%%writefile /content/a.py\nprint(1)\n# %%\nrows = open("/content/a.py").read()',
         ["/content to write into (cell 2)"]),
        ('%cd /content/drive/MyDrive/sub\nmodel.save_pretrained("x")\nrows = load("/content/drive/MyDrive/sub/x/a")',
         ["/content/drive/MyDrive/sub (cell 1)"]),
        ('import os\nDIR = "/content/drive/MyDrive/sub"\nos.chdir(DIR)\nmodel.save_pretrained("./x")\n'
         'rows = load("/content/drive/MyDrive/sub/x")', ["/content/drive/MyDrive/sub (cell 1)"]),
        ('def save():\n    model.save_pretrained("x")\n%cd /content/drive/MyDrive\n%cd sub\nsave()\n'
         'rows = load("/content/drive/MyDrive/sub/x")', ["/content/drive/MyDrive (cell 1)"]),
        ('%cd /content/drive/MyDrive/sub\nrows = load("/content/drive/MyDrive/sub/x")',
         ["/content/drive/MyDrive/sub (cell 1)", "/content/drive/MyDrive/sub/x (cell 1)!"]),
        ('model.save_pretrained("x")\n%cd /content/drive/MyDrive/sub\nrows = load("/content/drive/MyDrive/sub/x")',
         ["/content/drive/MyDrive/sub (cell 1)", "/content/drive/MyDrive/sub/x (cell 1)!"]),
        ('%cd /content/drive/MyDrive/sub\n%cd /content\nmodel.save_pretrained("x")\n'
         'rows = load("/content/drive/MyDrive/sub/x")',
         ["/content/drive/MyDrive/sub (cell 1)", "/content (cell 1)", "/content/drive/MyDrive/sub/x (cell 1)!"]),
        ('%cd /content/drive/MyDrive/sub\n%cd {folder()}\nmodel.save_pretrained("x")\n'
         'rows = load("/content/drive/MyDrive/sub/x")',
         ["/content/drive/MyDrive/sub (cell 1)", "/content/drive/MyDrive/sub/x (cell 1)"]),
        ('try:\n    model.save_pretrained("/kaggle/working/lora")\nexcept OSError:\n    pass\n'
         'rows = load("/kaggle/working/lora/a")', ["/kaggle/working to write into (cell 1)"]),
        ('from google.colab import drive\ndrive.mount("/content/drive")', []),
        (
            'from huggingface_hub import HfApi\nHfApi().upload_folder(folder_path = "/content/out")',
            ["HF_TOKEN (cell 1)!", "/content/out (cell 1)"],
        ),
        ('import shutil\nshutil.make_archive("/content/out", "zip", "lora")', ["/content to write into (cell 1)"]),
        (
            "import os\nfor folder, _, names in os.walk('/kaggle/input'):\n    for name in names:\n"
            "        print(os.path.join(folder, name))",
            [],
        ),
        ('rows = open("/home/me/rows.json").read()', ["/home/me/rows.json (cell 1)!"]),
        ('from datasets import load_from_disk\nrows = load_from_disk(r"D:\\data\\rows")',
         ["D:\\data\\rows (a Windows path, cell 1)!"]),
        ('with open("/data/a.txt", "w") as f:\n    f.write("")\nrows = open("/data/a.txt").read()',
         ["/data to write into (cell 1)!"]),
        (
            'def save(to):\n    model.save(to)\nsave("/data/out")\nrows = open("/data/out/a.txt").read()',
            ["/data/out to write into (cell 1)"],
        ),
        ('print("/home/me is mine")\nroot = "/mnt/x"', []),
        ('!cp -r outputs /content/drive/My\\ Drive/', ["/content/drive to write into (cell 1)"]),
        ('!cp outputs/a /content/drive/My\\ Drive/a\\ b\nrows = open("/content/drive/My Drive/a b")',
         ["/content/drive to write into (cell 1)"]),
        ('!cp "/content/drive/MyDrive/a b/rows.csv" .', ["/content/drive/MyDrive/a b/rows.csv (cell 1)"]),
        ("!head '/content/drive/MyDrive/a b/rows.csv'", []),
        ("rows = !cat /content/rows.csv", ["/content/rows.csv (cell 1)"]),
        ('PATH = "/content/a.json"\ntry:\n    rows = open(PATH).read()\nexcept OSError:\n    rows = ""', []),
        ('PATH = "/content/a.json"\ntry:\n    rows = open(PATH).read()\nexcept OSError:\n    rows = ""\n'
         "more = open(PATH)",
         ["/content/a.json (cell 1)!"]),
        ('model.save_pretrained("/content/drive/MyDrive/Po\u0301s")\n'
         'rows = load_from_disk("/content/drive/MyDrive/P\u00f3s")',
         ["/content/drive to write into (cell 1)", "/content/drive/MyDrive/P\u00f3s (cell 1)"]),
        (MOUNTED + 'rows = open("drive/MyDrive/rows.csv")', ["drive/MyDrive/rows.csv (cell 1)!"]),
        (MOUNTED + 'import os\nos.chdir("./drive/My Drive/a")', ["./drive/My Drive/a (cell 1)"]),
        (MOUNTED + "%cd drive/MyDrive/a", ["drive/MyDrive/a (cell 1)"]),
        (MOUNTED + '!unzip "drive/My Drive/a b.zip"', ["drive/My Drive/a b.zip (cell 1)"]),
        (MOUNTED + '!ls drive/MyDrive\n!cat "a/drive/MyDrive/b"', []),
        (MOUNTED + 'model.save_pretrained("drive/MyDrive/m")\nm = AutoModel.from_pretrained("drive/MyDrive/m")', []),
        (MOUNTED + '!mkdir -p drive/MyDrive/a\n%cd drive/MyDrive/a\nx = open("drive/MyDrive/a/x.csv")', []),
        ('rows = open("drive/MyDrive/rows.csv")', ["drive/MyDrive/rows.csv beside the script (cell 1)!"]),
    ],
)  # fmt: skip
def test_paths(code: str, expected: list[str]) -> None:
    assert needs(code) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('model = FastModel.from_pretrained(model_name = "/dev/shm/m")', ["/dev/shm/m (cell 1)!"]),
        ('rows = load_from_disk("/tmp/rows")', []),
        ('rows = load_from_disk("/mnt/d/rows")', ["/mnt/d/rows (cell 1)!"]),
        ('import json\nrows = json.load(open("/home/me/rows.json"))', ["/home/me/rows.json (cell 1)!"]),
        ('model = FastModel.from_pretrained(model_name = "/mnt/models/m", cache_dir = "/mnt/cache")',
         ["/mnt/cache to write into (cell 1)", "/mnt/models/m (cell 1)!"]),
        ('import os\nROOT = "/home/me/rows"\nrows = open(os.path.join(ROOT, name))', ["/home/me/rows (cell 1)"]),
        ('import pandas as pd\nrows = pd.read_csv(r"D:\\rows.csv")', ["D:\\rows.csv (a Windows path, cell 1)!"]),
        ('rows = load_from_disk("~/rows")', ["~/rows (cell 1)"]),
        ('try:\n    rows = open("/home/me/a.json")\nexcept OSError:\n    rows = None', []),
        ('import os\nif os.path.exists("/home/me/a.json"):\n    rows = open("/home/me/a.json")', []),
        ('model.save_pretrained("/mnt/m")\nmodel = FastModel.from_pretrained("/mnt/m")',
         ["/mnt/m to write into (cell 1)!"]),
        ('write(rows, "/mnt/rows.json")\nrows = open("/mnt/rows.json")', ["/mnt/rows.json (cell 1)"]),
        ('model.save_pretrained("o/lora")\nmodel = FastModel.from_pretrained("/home/joe/o/lora")',
         ["/home/joe/o/lora (cell 1)"]),
        ('model.save_pretrained("o/lora")\nif True:\n    model = FastModel.from_pretrained("/home/joe/o/lora")',
         ["/home/joe/o/lora (cell 1)"]),
        ('if LOADS:\n    other = FastModel.from_pretrained("/home/joe/o/lora")', []),
        ('model.save_pretrained(f"{HOME}/o/lora")\nmodel = FastModel.from_pretrained("/home/joe/o/lora")', []),
        ('!cp -r o/lora ~/o/lora\nmodel = FastModel.from_pretrained("/home/joe/o/lora")', []),
        ('args = SFTConfig(output_dir = "/mnt/x")\nrows = open("/mnt/x/a.jsonl")',
         ["/mnt/x to write into (cell 1)!", "/mnt/x/a.jsonl (cell 1)"]),
        ('!git clone https://x.org/a/rows /data/rows\nrows = open("/data/rows/a.json")', []),
        ('mode = talk("/reset")\nhost = open("/proc/cpuinfo")', []),
        ('from pypdf import PdfReader\npages = PdfReader("/data/a.pdf")', ["/data/a.pdf (cell 1)!"]),
        ('model.save_pretrained("/my-lora-v0.3")\nopen("/mnt/disk1/a.txt", "w")\nimport os\nos.remove("/srv/b")',
         ["/my-lora-v0.3 to write into (cell 1)!", "/mnt/disk1 to write into (cell 1)!"]),
        ('from trl import SFTConfig\nOUT = "/workspace/run"\nargs = SFTConfig(output_dir = f"{OUT}/{now()}")\n'
         'model.save_pretrained(OUT + "/lora")', ["/workspace/run to write into (cell 1)"]),
        ('from pathlib import Path\nPath("/home/me/x").mkdir(parents = True)\nopen("/tmp/a", "w")',
         ["/home/me/x to write into (cell 1)"]),
        ('try:\n    model.save_pretrained("/data/x")\nexcept OSError:\n    pass', []),
        ("from unsloth import FastModel\nmodel, tokenizer = FastModel.from_pretrained(model_name = '/data/unsloth/m')\n"
         'model = FastModel.get_peft_model(model, bias = "none", use_gradient_checkpointing = "unsloth")',
         ["/data/unsloth/m (cell 1)!"]),
        ("from trl import SFTConfig\nmodel = AutoModel.from_pretrained('/data/run/m')\n"
         'args = SFTConfig(run_name = "run", output_dir = "out")', ["/data/run/m (cell 1)!"]),
        ('data = "/home/me/rows/"\nrows = open(data + "a.json")\nmore = open(data + rows[0])',
         ["/home/me/rows/ (cell 1)", "/home/me/rows/a.json (cell 1)!"]),
        ('data = "C:/rows/"\nname = data + "a.json"\nrows = open(name)',
         ["C:/rows/ (a Windows path, cell 1)", "C:/rows/a.json (a Windows path, cell 1)!"]),
        ('data = "/home/me/rows/"\nopen(data + "a.json", "w")\nrows = open(data + "a.json")',
         ["/home/me/rows to write into (cell 1)!"]),
        ('data = "/home/me/rows/"\ntry:\n    rows = open(data + "a.json")\nexcept OSError:\n    rows = []', []),
        ('data = "/home/me/rows/"\nif use_them:\n    rows = open(data + "a.json")', []),
    ],
)  # fmt: skip
def test_paths_of_the_own_machine(code: str, expected: list[str]) -> None:
    assert needs(code) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('import pandas as pd\nrows = pd.read_csv("rows.csv")\nrows.to_csv("rows.csv")', ["rows.csv"]),
        ('rows = load_dataset("json", data_files = {"train": "a.jsonl", "test": "b.jsonl"})', ["a.jsonl", "b.jsonl"]),
        ('rows = load_dataset("imagefolder", data_dir = "pictures")', ["pictures"]),
        ('rows = load_from_disk("rows")', ["rows"]),
        ('import glob\nfiles = glob.glob("rows/*.json")', ["rows/*.json"]),
        ('import glob\nfiles = glob.glob("rows/*")', ["rows/*"]),
        ('from pathlib import Path\ntext = Path("a.txt").read_text()', ["a.txt"]),
        ('from pathlib import Path\nrows = Path("rows")\nfor row in rows.iterdir():\n    open(row)', ["rows"]),
        ('from pathlib import Path\nfiles = sorted(Path("my rows (9)").glob("*.csv"))', ["my rows (9)"]),
        ('from pathlib import Path\nroot = Path("rows")\nfiles = list((root / name / "a").rglob("*"))', ["rows"]),
        ('from pathlib import Path\ntext = open(Path("rows") / "a.json").read()', ["rows"]),
        ('root = "rows"\ntext = open(f"{root}/a.json").read()', ["rows/a.json"]),
        ('root = "rows"\nif small:\n    root = "few"\ntext = open(f"{root}/a.json").read()', []),
        ('a = "b"\ntext = open(f"rows/{{{a}}}.json").read()', ["rows/{b}.json"]),
        ('root = make()\ntext = open(f"{root}/a.json").read()', []),
        ('root = "rows"\nopen(f"{root}/a.json", "w")\ntext = open(f"{root}/a.json").read()', []),
        ('root = "rows"\ntext = open(f"{root}/{name}.json").read()', []),
        ('from pathlib import Path\nimport pandas as pd\nroot = Path("rows")\npath = root / name\n'
         'table = pd.read_csv(path)', ["rows"]),
        ('model.load_adapter("lora")', ["lora"]),
        ('model.load_adapter("lora", "default")', ["lora"]),
        ('PATH = "a.txt"\nwith open(PATH) as file:\n    text = file.read()', ["a.txt"]),
        ('def rows():\n    return open("a.txt").read()\nrows()', ["a.txt"]),
        ('rows = open("a.txt")\n!python make.py', ["a.txt"]),
        ('def process(path):\n    with open(path) as f:\n        return f.read()\nprocess("a.txt")', ["a.txt"]),
        ('def read(path = "a.txt"):\n    return open(path)\nread()', ["a.txt"]),
        ('class Rows:\n    def __init__(self, path = "a.txt"):\n        self.rows = open(path)\nRows()', ["a.txt"]),
        ('def process(rows, *, path):\n    return open(path)\nprocess(1, path = "a.txt")', ["a.txt"]),
        ('def process(path):\n    open("b.txt", "w").write(open(path).read())\nprocess("a.txt")', ["a.txt"]),
        ('class Rows:\n    def __init__(self, path):\n        self.rows = open(path)\nrows = Rows("a.txt")', ["a.txt"]),
        ('class Rows:\n    def read(self, path):\n        return open(path)\nr = Rows()\nr.read("a.txt")', ["a.txt"]),
        ('class Log:\n    def __init__(self, log_file):\n        self.log_file = log_file\n    def write(self, x):\n'
         '        open(self.log_file, "a").write(x)\nlog = Log(log_file = "b.txt")\nrows = open("a.txt")', ["a.txt"]),
        ('class Log:\n    def __init__(self, log_file = "b.txt"):\n        self.log_file = log_file\n'
         '    def write(self, x):\n        open(self.log_file, "a")\nlog = Log()\nrows = open("a.txt")', ["a.txt"]),
        ('def write(path = "b.txt"):\n    open(path, "w")\nwrite()\nrows = open("a.txt")', ["a.txt"]),
        ('def write(name):\n    open(name, "w")\nrows = open("a.txt")\nfor each in names:\n    write(each)', ["a.txt"]),
        ('model = FastModel.from_pretrained("./m")', ["./m"]),
        ('get(f"out/{name}")\nrows = open("a.txt")', ["a.txt"]),
        ('table = table.copy()\nclass Saver(Base, output_dir = "a"):\n    pass\nrows = open("a.txt")', ["a.txt"]),
        ('model = FastModel.from_pretrained("outputs/checkpoint-60")', ["outputs/checkpoint-60"]),
        ('def write(path):\n    open(path, "w")\nwrite("a.txt")\nrows = open("b.txt")', ["b.txt"]),
        ('from datasets import Dataset\nrows = Dataset.from_json("a.jsonl")', ["a.jsonl"]),
        ('from datasets import Dataset\nPATH = "data/a.csv"\nrows = Dataset.from_csv(PATH)', ["data/a.csv"]),
        ('import docx\nrows = docx.Document("a.docx")', ["a.docx"]),
        ('from langchain_community.document_loaders import TextLoader\nrows = TextLoader("a.txt").load()', ["a.txt"]),
        ('!grep -c x b.txt\n!cat b.txt | sort\nrows = open("a.txt")', ["a.txt"]),
        ('import subprocess\nsubprocess.run("env | grep proxy", shell = True)\nrows = open("a.txt")', ["a.txt"]),
        ('import subprocess\nsubprocess.run(\'bash -c "source /etc/x && env | grep y"\', shell = True)\n'
         'rows = open("a.txt")', ["a.txt"]),
        ('%matplotlib inline\n%load_ext autoreload\nrows = open("a.txt")', ["a.txt"]),
        ('from transformers import AutoModel\nmodel = AutoModel.from_pretrained("my-own-model")', ["my-own-model"]),
    ],
)  # fmt: skip
def test_files_beside_the_script(code: str, expected: list[str]) -> None:
    assert [need.rstrip("!") for need in needs(code)] == [f"{name} beside the script (cell 1)" for name in expected]


READS = 'import pandas as pd\nrows = pd.read_csv("a.csv")'
LOADS = 'from transformers import AutoModel\nlora = AutoModel.from_pretrained("my_lora")'


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (READS, "a.csv"),
        (LOADS, "my_lora"),
        (f'model.save_pretrained("other")\n{LOADS}', "my_lora"),
        (f"from trl import SFTTrainer\nSFTTrainer(model).train()\n{LOADS}", "my_lora"),
        ('from datasets import load_dataset\nrows = load_dataset("json", data_files = {"train": "a.json"})', "a.json"),
        ('def rows(path):\n    with open(path) as file:\n        return file.read()\na = rows("a.txt")', "a.txt"),
        ("import os\nFOLDER = 'rows'\nfor name in os.listdir(FOLDER):\n    print(name)", "rows"),
        ('FLAG = True\nif FLAG:\n    rows = open("a.txt")', "a.txt"),
        (f"!pip install a\n!git clone https://x.org/someone/other\n{READS}", "a.csv"),
        (f'print("reading a.csv")\n{READS}', "a.csv"),
        (f"{READS}\n%cd rows", "a.csv"),
        (f'{READS}\nrows.to_csv("a.csv")', "a.csv"),
        (f'from google.colab import files\nfiles.upload()\n{READS}', "a.csv"),
        ('def rows(path = "a.txt"):\n    with open(path) as file:\n        return file.read()\na = rows()', "a.txt"),
        ('def rows(of, path = "a.txt"):\n    return open(path)\nrows(1, "b.txt".lower())\na = rows(2)', "a.txt"),
        ('import os\nPATH = "a.txt"\nif os.path.exists(PATH):\n    rows = open(PATH)\nprint(rows)', "a.txt"),
        ('import os\nPATH = "a.txt"\nif not os.path.exists(PATH):\n    print("none")\nelse:\n    rows = open(PATH)\n'
         "print(rows)", "a.txt"),
    ],
)  # fmt: skip
def test_files_beside_the_script_are_tested_at_its_start(code: str, expected: str) -> None:
    assert needs(code) == [f"{expected} beside the script (cell 1)!"]


@pytest.mark.parametrize(
    "code",
    [
        f"import utils\nutils.prepare()\n{READS}",
        f"!wget -q {{URL}}\n{READS}",
        f"!bash setup.sh\n{READS}",
        f"!curl -s https://x.org/a.sh | sh\n{READS}",
        f"%pushd rows\n{READS}",
        f"exec(open(name).read())\n{READS}",
        f'import os\nif not os.path.exists("a.csv"):\n    make()\n{READS}',
        f"import huggingface_hub\nhuggingface_hub.snapshot_download(**SETTINGS)\n{READS}",
        f'import huggingface_hub\nhuggingface_hub.hf_hub_download("a/b", name, local_dir = ".")\n{READS}',
        f"model.save_pretrained(OUT)\n{LOADS}",
        f'model.save_pretrained_gguf("my", tokenizer)\n{LOADS}',
        f'args.output_dir = "my_lora"\ntrainer.train()\n{LOADS}',
        f"from trl import SFTConfig\nargs = SFTConfig(**SETTINGS)\n{LOADS}",
        'from trl import SFTConfig\nargs = SFTConfig(output_dir = "./")\nstate = open("trainer_state.json")',
        "from transformers import TrainerCallback\nclass Own(TrainerCallback):\n    def on_save(self, *rest):\n"
        f'        open(f"{{NAME}}.csv", "w")\n{READS}',
        f"from trl import SFTConfig\nargs = SFTConfig(OUT)\n{LOADS}",
        f"!uv run make.py\n{READS}",
        LOADS.replace("my_lora", "outputs"),
        'rows = open("a.txt", MODE)',
        'import zipfile\nrows = zipfile.ZipFile(FILE).open("a.txt")',
        'import nltk\nrows = nltk.data.load("punkt/english.pickle")',
        'import contextlib\nwith contextlib.suppress(OSError):\n    rows = open("a.txt")',
        'from datasets import load_dataset\nrows = load_dataset("json", data_files = "rows/*.json")',
        'from datasets import load_dataset\nrows = load_dataset("json", data_dir = ROWS, data_files = "a.json")',
        'def rows(path):\n    if READY:\n        return []\n    return open(path)\na = rows("a.txt")',
        'FLAG = True\nif FLAG:\n    rows = []\nelse:\n    rows = open("a.txt")',
        'def rows(path = "a.txt"):\n    return open(path)\nif READS:\n    a = rows()\nb = rows(OTHER)\nc = rows(*MORE)',
        'def rows(path = "a.txt"):\n    if path in OTHERS:\n        return []\n    return open(path)\na = rows()',
    ],
)
def test_a_file_that_may_come_while_the_job_runs_is_only_named(code: str) -> None:
    assert [need for need in needs(code) if "beside" in need and need.endswith("!")] == []


@pytest.mark.parametrize(
    "code",
    [
        "rows = None\nif os.path.exists(PATH):\n    rows = open(PATH)\nprint(rows)",
        "if os.path.exists(PATH):\n    rows = open(PATH)\nelse:\n    rows = []\nprint(rows)",
        "if os.path.exists(PATH):\n    rows = open(PATH)\n    print(rows)",
        "if os.path.exists(PATH):\n    rows = open(PATH)\nif SHOWS:\n    print(rows)",
        "if os.path.exists(PATH):\n    rows = open(PATH)\ntry:\n    print(rows)\nexcept NameError:\n    pass",
    ],
)
def test_a_file_that_the_notebook_does_without_is_no_need(code: str) -> None:
    assert needs(f'import os\nPATH = "/data/a.txt"\n{code}') == []


DRIVEN = "/content/drive/MyDrive/rows.zip"


@pytest.mark.parametrize(
    ("test", "is_kaggle"),
    [
        ('os.path.exists("/kaggle")', True),
        ('not Path("/kaggle/input").exists()', False),
        ('"KAGGLE_KERNEL_RUN_TYPE" in os.environ', True),
        ('os.environ.get("KAGGLE_URL_BASE") is None', False),
        ('"google.colab" not in sys.modules', False),
        ('"google.colab" in str(get_ipython()) or "kaggle_secrets" in sys.modules', True),
        ("not is_kaggle()", False),
        ('importlib.util.find_spec("google.colab") is not None and FLAG', True),
    ],
)
def test_what_an_ordinary_machine_runs_is_needed_and_what_colab_or_kaggle_runs_is_not(
    test: str, is_kaggle: bool
) -> None:
    paths = ["/kaggle/input/rows.zip", DRIVEN][:: 1 if is_kaggle else -1]
    switch = (
        f"import importlib, os, sys\nfrom pathlib import Path\nTHERE = {test}\nif THERE:\n    path = {paths[0]!r}\n"
    )
    assert needs(f"{switch}else:\n    path = {paths[1]!r}\nrows = open(path)") == [f"{DRIVEN} (cell 1)!"]
    assert needs(f"{switch}    rows = open(path)") == ([] if is_kaggle else [f"{DRIVEN} (cell 1)"])


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('KAGGLE = os.path.exists("/kaggle")\nout = "/kaggle/working/m" if KAGGLE else "/content/drive/MyDrive/m"\n'
         "model.save_pretrained(out)", ["/content/drive to write into (cell 1)"]),
        ("try:\n    import google.colab\n    IN_COLAB = True\nexcept ImportError:\n    IN_COLAB = False\n"
         'if not IN_COLAB:\n    rows = open("/content/a.json")\nelse:\n    rows = open("/content/b.json")\nprint(rows)',
         ["/content/a.json (cell 1)"]),
        ('IN_COLAB = True\nroot = "/content/a" if IN_COLAB else "/kaggle/input/a"\nrows = load_from_disk(root)',
         ["/content/a (cell 1)"]),
        ('if "KAGGLE_USERNAME" in os.environ:\n    rows = open("/content/a.json")\nelse:\n'
         '    rows = open("/content/b.json")', []),
        ('there = not there\nif there:\n    rows = open("/content/a.json")', ["/content/a.json (cell 1)"]),
    ],
)  # fmt: skip
def test_the_branch_that_an_ordinary_machine_takes(code: str, expected: list[str]) -> None:
    assert needs(f"import os\n{code}") == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print(error)\nrows = rows.map(f)", "a.jsonl beside the script (cell 1)!"),
        ("raise\nrows.map(f)", "a.jsonl beside the script (cell 1)!"),
        ("rows = None\nprint(rows)", ""),
        ("print(error)\nif READY:\n    rows.map(f)", ""),
        ("print(error)\ntry:\n    rows.map(f)\nexcept NameError:\n    pass", ""),
        ("print(error)\nprint(path)", ""),
        ("print(error)\nrows = []\nprint(rows)", ""),
    ],
)
def test_a_file_that_is_tried_is_needed_where_nothing_else_binds_what_is_read_later(code: str, expected: str) -> None:
    handler, _, later = code.partition("\n")
    tried = 'import datasets\ntry:\n    path = "a.jsonl"\n    rows = datasets.load_dataset("json", data_files = path)'
    assert needs(f"{tried}\nexcept Exception as error:\n    {handler}\n{later}") == [expected] * bool(expected)


@pytest.mark.parametrize(
    "code",
    [
        'files = ["a.csv", "d/b.csv"]\nfor file in files:\n    rows = pd.read_csv(file)',
        'rows = pd.concat(pd.read_csv(file) for file in ("a.csv", "d/b.csv"))',
        'for number, file in enumerate(["a.csv", "d/b.csv"]):\n    with open(file) as rows:\n        print(rows)',
        'files = {"x": "a.csv", "y": "d/b.csv"}\nfor name, file in files.items():\n    rows = pd.read_csv(file)',
        'files = {"train": "a.csv", "test": "d/b.csv"}\nrows = datasets.load_dataset("csv", data_files = files)',
        'def read(path):\n    return pd.read_csv(path)\nrows = [read(file) for file in ["a.csv", "d/b.csv"]]',
    ],
)
def test_files_that_a_loop_reads_are_tested(code: str) -> None:
    found = needs(f"import datasets\nimport pandas as pd\n{code}")
    assert found == ["a.csv beside the script (cell 1)!", "d/b.csv beside the script (cell 1)!"]


@pytest.mark.parametrize(
    "loop",
    [
        "if os.path.exists(file):\n        pd.read_csv(file)",
        "try:\n        pd.read_csv(file)\n    except OSError:\n        pass",
        "pd.read_csv(file)\n    break",
        "file = os.path.join(ROOT, file)\n    pd.read_csv(file)",
        "print(file)",
        "rows.to_csv(file)\nfor file in files:\n    pd.read_csv(file)",
    ],
)
def test_files_that_a_loop_tries_or_writes_are_no_need(loop: str) -> None:
    assert needs(f'import os\nimport pandas as pd\nfiles = ["a.csv", "d/b.csv"]\nfor file in files:\n    {loop}') == []


@pytest.mark.parametrize(
    ("folder", "file", "expected"),
    [
        ("out", "out/rows.csv", ["out/rows.csv beside the script (cell 1)!"]),
        ("outputs", "outputs/a/rows.jsonl", ["outputs/a/rows.jsonl beside the script (cell 1)!"]),
        ("/mnt/x", "/mnt/x/rows.csv", ["/mnt/x to write into (cell 1)!", "/mnt/x/rows.csv (cell 1)!"]),
        ("out", "out/trainer_state.json", []),
        ("out", "out/vocab.txt", []),
    ],
)
def test_a_table_in_the_output_folder_is_none_that_a_trainer_writes(
    folder: str, file: str, expected: list[str]
) -> None:
    assert (
        needs(f"from trl import SFTConfig\nargs = SFTConfig(output_dir = {folder!r})\nrows = open({file!r})")
        == expected
    )
    made = f"args = make(output_dir = {folder!r})\nrows = open({file!r})"
    assert not any(need.endswith("script (cell 1)!") for need in needs(made))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("uploaded = files.upload()\nname = list(uploaded)[0]", ["a file in place of files.upload() (cell 1)"]),
        ("for name in files.upload():\n    print(name)", ["a file in place of files.upload() (cell 1)"]),
        ("uploaded = files.upload()", []),
        ("files.upload()", []),
        ("if IN_COLAB:\n    uploaded = files.upload()\n    name = list(uploaded)[0]", []),
        ("try:\n    uploaded = files.upload()\n    name = list(uploaded)[0]\nexcept OSError:\n    name = None", []),
    ],
)
def test_a_file_that_a_person_chooses(code: str, expected: list[str]) -> None:
    assert needs(f"from google.colab import files\n{code}") == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('if key:\n    wandb.login(key = key)\nelse:\n    os.environ["WANDB_DISABLED"] = "true"',
         ["(optional, cell 1)"]),
        ('if not key:\n    os.environ["WANDB_MODE"] = "disabled"\nelse:\n    wandb.login(key = key)',
         ["(optional, cell 1)"]),
        ("if key:\n    wandb.login(key = key)\nwandb.init()", ["(cell 1)!"]),
        ('if not key:\n    raise ValueError("set it")\nwandb.login(key = key)', ["(cell 1)!"]),
    ],
)  # fmt: skip
def test_a_key_that_the_notebook_goes_on_without(code: str, expected: list[str]) -> None:
    read = 'import os, wandb\nkey = os.environ.get("WANDB_API_KEY")\n'
    assert needs(read + code) == [f"WANDB_API_KEY {each}" for each in expected]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("wandb.login(key = key)", Kind.TRACKER),
        ('wandb.login(key = key, anonymous = "allow")', Kind.VARIABLE),
        ('wandb.login(key = os.environ["WANDB_API_KEY"])', Kind.VARIABLE),
        ('if not key:\n    raise ValueError("set it")\nwandb.login(key = key)', Kind.VARIABLE),
    ],
)
def test_a_login_of_the_machine_stands_for_a_key_that_may_be_none(code: str, kind: Kind) -> None:
    read = 'import os, wandb\nkey = os.environ.get("WANDB_API_KEY")\n'
    (need,) = Program(example_notebook(read + code + TRAIN), Options()).needs
    assert (need.kind, need.required) == (kind, "anonymous" not in code)


FROM_COLAB = "from google.colab import userdata\ndef get(name):\n    value = None\n    try:\n"
FROM_COLAB += (
    "        value = userdata.get(name)\n    except Exception:\n        value = os.getenv(name)\n    return value\n"
)
ON_MACHINES = 'if "COLAB_GPU" in os.environ:\n    place = "colab"\nelse:\n    place = "local"\n'


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (FROM_COLAB + 'os.environ["A_KEY"] = get("A_KEY")', "A_KEY (cell 1)!"),  # None raises a TypeError there
        (FROM_COLAB + 'os.environ["A_KEY"] = key = get("A_KEY")', "A_KEY (cell 1)!"),
        (FROM_COLAB + 'key = get("A_KEY")\nos.environ["A_KEY"] = key', "A_KEY (cell 1)!"),
        (FROM_COLAB + 'key = get("A_KEY")\nif key:\n    os.environ["A_KEY"] = key', "A_KEY (cell 1)"),
        (FROM_COLAB + 'os.environ["A_KEY"] = get("A_KEY") or ""', "A_KEY (cell 1)"),
        (FROM_COLAB + 'key = get("A_KEY")', "A_KEY (cell 1)"),
        (FROM_COLAB.replace("os.getenv(name)", '""') + 'os.environ["A_KEY"] = get("A_KEY")', "A_KEY (cell 1)"),
        (FROM_COLAB + ON_MACHINES + 'if place != "colab":\n    os.environ["A_KEY"] = get("A_KEY")', "A_KEY (cell 1)!"),
        (FROM_COLAB + ON_MACHINES + 'if place == "colab":\n    os.environ["A_KEY"] = get("A_KEY")', "A_KEY (cell 1)"),
        ('def get(name):\n    return os.environ[name]\nrun = get("RUN_NAME")', "RUN_NAME (cell 1)!"),
        (FROM_COLAB + 'os.environ["A_KEY"] = get("a-key")', "a-key (cell 1)!"),  # the function reads it by this name
        ('def get(name="A_KEY"):\n    return os.environ[name]\nkey = get()', "A_KEY (cell 1)"),
        (
            "def get(name):\n    value = os.getenv(name)\n    if not value:\n        raise ValueError(name)\n"
            '    return value\nkey = get("A_KEY")',
            "A_KEY (cell 1)!",
        ),
        (
            'def get(name):\n    if name == "B_KEY":\n        return "b"\n    return os.environ[name]\n'
            'key = get("A_KEY")',
            "A_KEY (cell 1)",
        ),
        (
            "def get(name, must = False):\n    value = os.getenv(name)\n    if must and not value:\n"
            '        raise ValueError(name)\n    return value\nkey = get("A_KEY")',
            "A_KEY (cell 1)",
        ),
        ('def get(name):\n    return os.getenv(name)\nrun = get("RUN_NAME")', ""),
        ('def get(name, other = ""):\n    return os.getenv(name, other)\nos.environ["A_KEY"] = get("A_KEY")', ""),
        ('os.environ["A_KEY"] = "a" * 9\ndef get(name):\n    return os.getenv(name)\nkey = get("A_KEY")', ""),
    ],
)
def test_a_key_that_a_function_of_the_notebook_reads(code: str, expected: str) -> None:
    assert needs(f"import os\n{code}") == [expected] * bool(expected)


@pytest.mark.parametrize("name", ["/data/*.json", "/content/*.json"])
def test_a_pattern_is_not_tested_as_a_path(name: str) -> None:
    assert needs(f'rows = load_dataset("json", data_files = "{name}")') == [f"{name} (cell 1)"]


def test_a_captured_cell_makes_nothing() -> None:
    assert needs('%%capture caught\n!pip install unsloth\n# %%\nrows = open("a.txt")') == [
        "a.txt beside the script (cell 2)!"
    ]


@pytest.mark.parametrize(
    "code",
    [
        'rows = load_dataset("someone/rows", data_files = "a.jsonl")',
        'model = FastModel.from_pretrained("lora_model")',
        'model = FastModel.from_pretrained("someone/model", cache_dir = "./m")',
        'args = SFTConfig(output_dir = "outputs")\nmodel = FastModel.from_pretrained("outputs/checkpoint-60")',
        'model.save_pretrained("./m")\nmodel = FastModel.from_pretrained("./m")',
        'rows.to_csv("a.csv")\nrows = read_csv("a.csv")',
        'for name in names:\n    rows.to_csv(f"{name}.csv")\nrows = read_csv("a.csv")',
        'def write(path):\n    open(path, "w")\nwrite("a.txt")\nrows = open("a.txt")',
        'def write(path):\n    open(path, "w")\nfor name in names:\n    write(name)\nrows = open("a.txt")',
        'make("a.txt")\nrows = open("a.txt")',
        'def process(path):\n    return path.upper()\nprocess("a.txt")',
        'def read(path = "a.txt"):\n    return open(path)\nread(name())',
        'def write(path = "a.txt"):\n    open(path, "w")\nwrite()',
        'def read(path = "a.txt"):\n    return open(path)\nopen("a.txt", "w")\nread()',
        'def process(path):\n    return open(path, "w")\nprocess("a.txt")',
        'def process(path):\n    try:\n        return open(path)\n    except OSError:\n        pass\nprocess("a.txt")',
        'import os\ndef process(path):\n    if os.path.exists(path):\n        return open(path)\nprocess("a.txt")',
        'def process(path):\n    return open(path)\nif LOADS:\n    process("a.txt")',
        'def process(path):\n    process(path)\nprocess("a.txt")',
        'def process(name, path):\n    return open(path)\nprocess("a.txt", read())',
        "class Log:\n    def __init__(self, name):\n        self.name = name\n    def write(self):\n"
        '        open(self.name, "a")\nlog = Log("a.txt")\nlog.write()\nrows = open("a.txt")',
        'class Log:\n    def __init__(self, name):\n        self.name = name\n        open(self.name, "a")\n'
        'log = Log(read())\nrows = open("a.txt")',
        'class Log:\n    def __init__(self, name):\n        self.name = name\n        open(self.name, "a")\n'
        'class Own(Log):\n    pass\nlog = Own("a.txt")\nrows = open("a.txt")',
        'class Log:\n    def __init__(self, name):\n        self.name = name\n        open(self.name, "a")\n'
        'log = Log("b.txt")\nlog.name = read()\nrows = open("a.txt")',
        'def rows():\n    return open("a.txt").read()\nopen("a.txt", "w").write("")\nrows()',
        '!wget -q https://x.org/a.json\nrows = open("a.json")',
        '!unzip rows.zip\nrows = open("a.json")',
        '!git clone https://x.org/someone/rows.git\nrows = open("rows/a.json")',
        '!python make.py\nrows = open("a.json")',
        '%%bash\n# the rows\nhf download a/b \\\n  --local-dir "rows"\n# %%\nrows = open("rows/a.json")',
        'import subprocess\nsubprocess.run(["make", "rows"])\nrows = open("a.json")',
        "%cd rows\nrows = open('a.json')",
        '!bash -c "python make.py"\nrows = open("a.json")',
        '!sed -i s/a/b/ a.json\nrows = open("a.json")',
        '!sort b.json -o a.json\nrows = open("a.json")',
        '%run make.py\nrows = open("a.json")',
        '%%sql\ncopy rows\n# %%\nrows = open("a.json")',
        'from transformers import AutoModel\nmodel = AutoModel.from_pretrained("bert-base-uncased")',
        'from transformers import AutoModel\nmodel.save_pretrained("m")\nmodel = AutoModel.from_pretrained("m")',
        'from pypdf import PdfWriter\nout = PdfWriter("a.pdf")',
        '%%writefile a.json\n[]\n# %%\nrows = open("a.json")',
        'import os\nif os.path.exists("a.json"):\n    rows = open("a.json")',
        'import zipfile\nzipfile.ZipFile(name).extractall()\nrows = open("a.json")',
        'rows = read("a.json", names = {"b.json": 1})\nprint("c.json")',
        'import glob\nopen("rows/a.csv", "w")\nfiles = glob.glob("rows/*")',
        'from pathlib import Path\nopen("rows/a.csv", "w")\nfiles = sorted(Path("rows").glob("*.csv"))',
        'from pathlib import Path\nroot = Path("rows")\n(root / "a").mkdir()\nfiles = list((root / "a").iterdir())',
        'from pathlib import Path\nroot = Path("rows")\nopen(root / "a.csv", "w")\nrows = open(root / "a.csv")',
        'from pathlib import Path\npath = Path("rows") / "a.csv"\nif path.exists():\n    rows = open(path)',
        'from pathlib import Path\nprint(Path("rows") / "a.csv")',
        'model.load_adapter("someone/lora")',
        'model.load_adapter(path, "default")',
        'model.save_lora("lora")\nmodel.load_lora("lora")',
    ],
)
def test_files_that_something_may_make_are_no_need(code: str) -> None:
    assert needs(code) == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('from trl import SFTConfig\nargs = SFTConfig(output_dir = "/out/")', ["/out to write into (cell 1)!"]),
        ('OUT = "/data/lora"\nmodel.save_pretrained(OUT)', ["/data/lora to write into (cell 1)!"]),
        ('open("/data/log.txt", "w")', ["/data to write into (cell 1)!"]),
        ('if SAVES:\n    model.save_pretrained("/data/lora")', ["/data/lora to write into (cell 1)"]),
        ('import os\nos.makedirs("/data/lora", exist_ok = True)', ["/data/lora to write into (cell 1)"]),
        ('!sudo mkdir -p /data/lora\nmodel.save_pretrained("/data/lora")', ["/data/lora to write into (cell 1)"]),
        ('from transformers import AutoModel\nmodel = AutoModel.from_pretrained("a/b", cache_dir = "/models")',
         ["/models to write into (cell 1)"]),
        ('from huggingface_hub import snapshot_download\nsnapshot_download("a/b", local_dir = "/data/b")',
         ["/data/b to write into (cell 1)"]),
    ],
)  # fmt: skip
def test_folders_to_write_into(code: str, expected: list[str]) -> None:
    assert needs(code) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('args = SFTConfig(output_dir = "out")\ntrainer.train(resume_from_checkpoint = True)',
         ["a checkpoint in out (cell 1)"]),
        ("trainer.train(True)", ["a checkpoint in the output folder (cell 1)"]),
        ('trainer.train(resume_from_checkpoint = "o/checkpoint-60")', ["o/checkpoint-60 beside the script (cell 1)!"]),
        ('from trl import SFTConfig\nargs = SFTConfig(output_dir = "out")\ntrainer.train("out/checkpoint-60")',
         ["out/checkpoint-60 beside the script (cell 1)!"]),
        ('trainer.train(resume_from_checkpoint = "/data/checkpoint-60")', ["/data/checkpoint-60 (cell 1)!"]),
        ('snapshot_download("a/b", local_dir = "out")\ntrainer.train("out/checkpoint-60")',
         ["out/checkpoint-60 beside the script (cell 1)"]),
        ('trainer.train()\ntrainer.train(resume_from_checkpoint = "/PATH/TO/CHECKPOINT")',
         ["/PATH/TO/CHECKPOINT (cell 1)"]),
        ('trainer.train()\ntrainer.train(resume_from_checkpoint = "out/checkpoint-60")', []),
        ("trainer.train()\ntrainer.train(resume_from_checkpoint = True)", []),
        ("if RESUMES:\n    trainer.train(resume_from_checkpoint = True)", []),
        ('snapshot_download("a/b", local_dir = "out")\ntrainer.train(resume_from_checkpoint = True)', []),
        ("trainer.train(resume_from_checkpoint = RESUMES)", []),
    ],
)  # fmt: skip
def test_checkpoints(code: str, expected: list[str]) -> None:
    code = f"from trl import SFTTrainer\ntrainer = SFTTrainer(model)\n{code}"
    assert needs(code) == expected


def test_a_job_that_looks_for_its_checkpoints_needs_none() -> None:
    code = "from trl import SFTTrainer\ntrainer = SFTTrainer(model)\ntrainer.train(resume_from_checkpoint = True)\n"
    assert Program(example_notebook(code), Options(resume=True)).needs == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            'for each in ["a/{}-1.txt", "a/{}-2.txt"]:\n    print(open(each.format("q")), open(each.format("r")))',
            [f"a/{name}.txt beside the script (cell 1)!" for name in ("q-1", "r-1", "q-2", "r-2")],
        ),
        ('name = "a/{}-{}.csv"\nfile = open(name.format("b", 1))', ["a/b-1.csv beside the script (cell 1)!"]),
        ('def read(name):\n    return open("a/{}.csv".format(name))\nread("b")', []),
        ('open("{}.csv".format("a"), "w").write("1")\nfile = open("{}.csv".format("a"))', []),
        ('file = open("a/{x}{}.csv".format("a", x=1))', []),
        ('file = open("a/{}{}.csv".format("a"))', []),
        ('file = open("a/{}.csv".format(*names))', []),
    ],
)
def test_the_files_that_a_pattern_names(code: str, expected: list[str]) -> None:
    assert needs(code) == expected
