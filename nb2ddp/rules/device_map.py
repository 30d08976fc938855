"""DDP101: Every model load gets `device_map = local_rank`.

Under DDP each process owns one GPU and needs a whole copy of the model there. Without a device map, all processes may
load onto GPU 0. With `"auto"` or `"balanced"`, each spreads over all GPUs, and transformers refuses to train such a
model in a distributed launch (transformers issue 31557, Unsloth issues 3459 and 3914).

Beside a model that Unsloth loads, a plain load of transformers' (a judge, a scorer) takes the CPU, where the notebook's
inputs lie too: it stays. So does every load after the last training. A vLLM engine that the notebook starts itself
before it gets a `TODO`.

A model that the notebook splits over its GPUs stays split if only one process runs; `split-model = true` in
pyproject.toml splits every model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.execution import Phase
from nb2ddp.facts.loading import SPLITTING, is_partial, loaders_handed_on, unknown_loads
from nb2ddp.facts.program import Program
from nb2ddp.options import Options
from nb2ddp.rules.rule import Example, Finding, Rule
from nb2ddp.syntax.arguments import Passed, entry, passed, set_argument
from nb2ddp.syntax.edits import Replace

_ENGINE = re.compile(r"vllm(\.\w+)*\.(LLM|LLMEngine|AsyncLLMEngine|AsyncLLM)(\.from_\w+)?")
_CPU = re.compile(r"""["']cpu["']""")
_PLACED = "processes would load onto each other's GPUs; in the script each loads onto its own"

_SPREAD = "the model would lie on one GPU; the script's one process spreads it over all"
_HANDED_ON = "this function loads a model when it is called, in all processes onto one GPU"
_UNKNOWN = "nothing shows which class loads here; all processes may load onto one GPU"

_ENGINES = (
    "every process would start this vLLM engine, and all may take the first GPU: start one with `vllm serve` and ask"
    " that, or make what it gives, before the job"
)


def find(program: Program) -> Iterator[Finding]:
    tree = program.tree
    for call in program.loads:
        if program.training.last is not None and program.execution.phase(call) is Phase.AFTER:
            continue
        given = passed(tree, call, "device_map")
        text = tree.text(given.value) if given is not None else ""
        if text.startswith("local_rank") or _CPU.search(text):
            continue
        if program.options.split_model and given is not None and tree.literal(given.value) in SPLITTING:
            continue
        if given is None and (is_partial(tree, tree.value(call.func)) or _is_on_cpu(program, call)):
            continue  # passed where the call is prepared; or loaded for the CPU, with its inputs
        said = f"device_map = {text}" if given else "no device_map"
        edit = set_argument(tree, call, "device_map", _place(program, given))
        yield Finding(call, f"{said}: {_SPREAD if program.options.split_model else _PLACED}", (edit,))
    for call in program.training.arguments:
        kwargs = passed(tree, call, "model_init_kwargs")
        given = entry(tree, kwargs.value, "device_map") if kwargs is not None else None
        if given is not None and not tree.text(given.value).startswith("local_rank"):
            said = f"device_map = {tree.text(given.value)}: {_PLACED}"
            yield Finding(given.value, said, (Replace(given.value, _place(program, given)),))
    for node in loaders_handed_on(tree):
        yield Finding(node, f"{_HANDED_ON}: pass device_map = local_rank there", todo=True)
    for call in program.execution.calls(_ENGINE, phase=Phase.TOGETHER):
        if not program.placement.runs_alone(call):
            yield Finding(call, _ENGINES, todo=True)
    for call in unknown_loads(tree):
        yield Finding(call, f"{_UNKNOWN}: if it is a model's, pass device_map = local_rank", todo=True)


def _is_on_cpu(program: Program, load: cst.Call) -> bool:
    """True for a plain load of transformers', which takes the CPU, where another package loads what is trained."""
    packages = {each: program.tree.qualified(each.func).partition(".")[0] for each in program.loads}
    return packages[load] == "transformers" and set(packages.values()) != {"transformers"}


def _place(program: Program, given: Passed | None) -> str:
    """This process's GPU, as code; where one process splits the model over all GPUs, it goes on to."""
    if program.options.split_model:
        return '"balanced"'
    if given is None or program.tree.literal(given.value) not in SPLITTING:
        return "local_rank"
    return f"local_rank if world_size > 1 else {program.tree.text(given.value)}"


RULE = Rule(
    name="model-not-on-local-gpu",
    find=find,
    examples=(
        Example(
            """\
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name = "unsloth/Llama-3.2-1B",
    load_in_4bit = True,
    # token = "...", # for gated models
)
""",
            """\
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name = "unsloth/Llama-3.2-1B",
    load_in_4bit = True,
    device_map = local_rank,
    # token = "...", # for gated models
)
""",
        ),
        Example(
            'from unsloth import FastModel\nmodel, t = FastModel.from_pretrained("unsloth/gemma-4-31B")\n',
            'from unsloth import FastModel\nmodel, t = FastModel.from_pretrained("unsloth/gemma-4-31B", device_map='
            '"balanced")\n',
            options=Options(split_model=True),
        ),
        Example(
            'from unsloth import FastModel\nmodel, t = FastModel.from_pretrained("m", device_map = "sequential")\n',
            options=Options(split_model=True),
        ),
        Example(
            """\
from functools import partial
from unsloth import FastLanguageModel, FastModel
load = partial(FastLanguageModel.from_pretrained, load_in_4bit=True)
model, tokenizer = load("unsloth/Llama-3.2-1B")
Loader = FastModel if len("gemma") else FastLanguageModel
other, _ = Loader.from_pretrained("unsloth/gemma-3-270m")
""",
            """\
from functools import partial
from unsloth import FastLanguageModel, FastModel
load = partial(FastLanguageModel.from_pretrained, load_in_4bit=True, device_map=local_rank)
model, tokenizer = load("unsloth/Llama-3.2-1B")
Loader = FastModel if len("gemma") else FastLanguageModel
other, _ = Loader.from_pretrained("unsloth/gemma-3-270m", device_map=local_rank)
""",
        ),
        Example(
            """\
from unsloth import FastLanguageModel
models = list(map(FastLanguageModel.from_pretrained, names))
""",
            "from unsloth import FastLanguageModel\n"
            "# TODO[nb2ddp] DDP101: this function loads a model when it is called, in all processes onto "
            "one GPU: pass device_map = local_rank there\n"
            "models = list(map(FastLanguageModel.from_pretrained, names))\n",
        ),
        Example(
            """\
from transformers import AutoModelForCausalLM as Auto
model = Auto.from_pretrained("gpt2", device_map="auto")
""",
            """\
from transformers import AutoModelForCausalLM as Auto
model = Auto.from_pretrained("gpt2", device_map=local_rank)
""",
        ),
        Example(
            """\
from unsloth import FastModel
model, tokenizer = FastModel.from_pretrained("unsloth/gemma-4-31B", device_map = "balanced") # two T4s
""",
            """\
from unsloth import FastModel
model, tokenizer = FastModel.from_pretrained("unsloth/gemma-4-31B", device_map = local_rank if world_size > 1 else \
"balanced") # two T4s
""",
        ),
        Example(
            """\
from transformers import AutoModelForCausalLM
settings = dict(device_map="auto", load_in_4bit=True)
model = AutoModelForCausalLM.from_pretrained("gpt2", **settings)
""",
            """\
from transformers import AutoModelForCausalLM
settings = dict(device_map=local_rank, load_in_4bit=True)
model = AutoModelForCausalLM.from_pretrained("gpt2", **settings)
""",
        ),
        Example(
            """\
from peft import PeftModel
model = PeftModel.from_pretrained(base, "lora", is_trainable=True, device_map={"": 0})
other = PeftModel.from_pretrained(base, "lora")
""",
            """\
from peft import PeftModel
model = PeftModel.from_pretrained(base, "lora", is_trainable=True, device_map=local_rank)
other = PeftModel.from_pretrained(base, "lora")
""",
        ),
        Example(
            """\
from trl import SFTConfig
args = SFTConfig(model_init_kwargs={"device_map": "auto"})
""",
            """\
from trl import SFTConfig
args = SFTConfig(model_init_kwargs={"device_map": local_rank})
""",
        ),
        Example(
            'from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained("gpt2")\n',
            'from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained("gpt2", '
            "device_map=local_rank)\n",
        ),
        Example(
            """\
from transformers import AutoModelForCausalLM
from unsloth import FastModel
model, tokenizer = FastModel.from_pretrained("unsloth/gemma-3-270m", device_map = local_rank)
judge = AutoModelForCausalLM.from_pretrained("gpt2")
"""
        ),
        Example(
            """\
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("gpt2")
"""
        ),
        Example(
            """\
from transformers import AutoModelForCausalLM
merged = AutoModelForCausalLM.from_pretrained("merged", device_map={"": "cpu"})
"""
        ),
        Example(
            """\
from unsloth import FastLanguageModel
from vllm import LLM
model, tokenizer = FastLanguageModel.from_pretrained("m", fast_inference = True, device_map = local_rank)
judge = LLM("Qwen/Qwen3-0.6B")
trainer.train()
base, _ = FastLanguageModel.from_pretrained("m", device_map = "auto")
print(LLM("lora"))
""",
            f"""\
from unsloth import FastLanguageModel
from vllm import LLM
model, tokenizer = FastLanguageModel.from_pretrained("m", fast_inference = True, device_map = local_rank)
# TODO[nb2ddp] DDP101: {_ENGINES}
judge = LLM("Qwen/Qwen3-0.6B")
trainer.train()
base, _ = FastLanguageModel.from_pretrained("m", device_map = "auto")
print(LLM("lora"))
""",
        ),
        Example(
            """\
from unsloth import FastLanguageModel
if False:
    model, tokenizer = FastLanguageModel.from_pretrained("lora")
"""
        ),
    ),
)
