"""Expressions without an effect: they return a value and change nothing."""

from __future__ import annotations

import re

import libcst as cst

from nb2ddp.facts.effects import Does, Effects
from nb2ddp.facts.flow import reached
from nb2ddp.syntax.tree import Tree, keyword, method

#: Functions that only give a value, by their full names.
_FUNCTIONS = re.compile(
    r"(abs|all|any|bool|bytes|chr|dict|dir|divmod|enumerate|filter|float|format|frozenset|getattr|hasattr|hash|id|int"
    r"|isinstance|issubclass|len|list|map|max|min|ord|pow|range|repr|reversed|round|set|slice|sorted|str|sum|tuple"
    r"|type|vars|zip|next)"
    r"|(re|math|statistics|platform|string|operator|packaging|IPython|importlib\.(util|metadata|resources))(\.\w+)+"
    r"|(itertools|collections|textwrap|html|json\.(loads?|dumps)|ast\.literal_eval)(\.\w+)?"
    r"|os\.(getcwd|getenv|cpu_count|listdir|environ\.(get|keys|items|copy)|path\.\w+)|sys\.(getsizeof|version_info)"
    r"|shutil\.(which|disk_usage)|urllib\.request\.(urlopen|Request)|urllib\.parse\.\w+|requests\.get"
    r"|numpy\.(?!(save|set|random|seterr|put|copyto|fill)\w*$)\w+|numpy\.(linalg|fft)\.\w+"
    r"|transformers\.(\w+\.)*\w*Config\.from_pretrained|pandas\.(?!(set|reset|eval)\w*$)\w+|PIL\.Image\.(open|fromarray)"
    r"|torch\.((cuda\.|backends\.\w+\.)?(is_\w+|compiled_with_\w+)|cuda\.(device_count|get_device_\w+|current_device"
    r"|mem_get_info|memory_\w+|max_memory_\w+)|equal|allclose|finfo|iinfo)"
)
#: Methods that only give a value, whatever they are called on.
_METHODS = frozenset(
    "apply_chat_template as_posix batch_decode capitalize convert copy corr count decode describe dropna dtypes encode"
    " endswith exists expanduser find findall finditer format fullmatch get get_memory_footprint group groupby"
    " groupdict groups head index info is_dir is_file isdigit isna items join keys lower lstrip match mean most_common"
    " named_parameters nunique num_parameters parameters partition read_text removeprefix removesuffix replace resolve"
    " rfind rpartition rsplit rstrip search select shape split splitlines startswith std strip sub sum tail thumbnail"
    " title to_dict to_pandas to_string tokenize tolist unique upper value_counts values version"
    " convert_ids_to_tokens convert_tokens_to_ids get_vocab read nlargest nsmallest sort_values reset_index".split()
)
#: Methods that do something, and are called for what they return.
_ANSWERING_METHODS = frozenset("ask chat complete compute evaluate generate invoke predict query similarity".split())
#: What is called for what it does, by how it is named: in-place methods end in `_`, or give back what they change.
_FOR_EFFECT = re.compile(
    r"_?(pprint|print|patch|mark|save|set|add|login|log|init|finish|close|clean|mount|register|enable|disable|resize"
    r"|start|stop|terminate|kill|wait|shutdown|reset|update|delete|remove|clear|upload|push|watch)(_\w+)?|Patch\w+"
    r"|\w+_|\w*login|load_dotenv|use|filterwarnings|simplefilter|launch|setLevel|cleanup|train|eval|to|cuda|cpu|half|float|bfloat16|for_inference|for_training|\w*launcher"
)
#: What a call may do and still only look: ask, and find what there is.
_ASKS = Does.ASK | Does.TEST | Does.LIST | Does.CLOCK


def shown_as(tree: Tree, node: cst.CSTNode) -> str:
    """The full name of what a call makes: IPython's for `Audio` with a rate, where marimo has datasets' instead."""
    if not isinstance(node, cst.Call):
        return ""
    name = tree.qualified(node.func)
    return "IPython.display.Audio" if name == "datasets.Audio" and keyword(node, "rate") else name


def only_looks(effects: Effects, node: cst.CSTNode) -> bool:
    """True for an expression without an effect: each call in it is known to have none, as far as its name tells."""
    tree = effects.tree
    acts = any(tree.within(node, kind) for kind in (cst.Await, cst.NamedExpr, cst.Yield))
    parts = reached([node], lambda part: _called(tree, part))
    return (
        not acts
        and all(_only_gives(effects, call) for part in parts for call in tree.within(part, cst.Call))
        and all(_changes_nothing(tree, function) for function in parts[1:])
    )


def gives_a_value(effects: Effects, node: cst.BaseExpression) -> bool | None:
    """Whether an expression has a value that is there to be shown; None where that is not known.

    False for a call that is made for its effect, that has shown what it is for (an answer that it streams, a trainer's
    report), or of a function of the notebook that returns nothing.
    """
    if not isinstance(node, cst.Call):
        return None if isinstance(node, (cst.Await, cst.Yield)) else True
    tree, name = effects.tree, shown_as(effects.tree, node)
    acts = effects.of(node) & (Does.ACT | Does.TELL | Does.SEED | Does.CHANGE | Does.PROMPT)
    shows = name in ("display", "sys.displayhook", "random.shuffle") or name.startswith(("IPython.", "subprocess."))
    if effects.form(node) is not None or acts or shows or keyword(node, "streamer"):
        return False
    binding = tree.binding(node.func)
    if binding is not None and isinstance(binding.node, cst.FunctionDef):
        return any(each.value is not None for each in tree.within(binding.node, cst.Return))
    is_object = binding is not None and isinstance(binding.value, cst.Call)  # a pipeline, an evaluator
    if is_object or _FUNCTIONS.fullmatch(name) or method(node) in _METHODS | _ANSWERING_METHODS:
        return True
    called = method(node) or name.rsplit(".", 1)[-1]
    return False if _FOR_EFFECT.fullmatch(called) else None


def _only_gives(effects: Effects, call: cst.Call) -> bool:
    """True for a call of what is known, or of a function of the notebook, which is looked at by itself."""
    tree = effects.tree
    if effects.form(call) is not None:
        return False
    name = tree.qualified(call.func)
    if name.startswith("subprocess."):
        return not effects.of(call)  # a command that only shows something
    if _FUNCTIONS.fullmatch(name):
        return not effects.of(call) & ~_ASKS
    return isinstance(_own(tree, call.func), (cst.FunctionDef, cst.Lambda, cst.Param)) or method(call) in _METHODS


def _called(tree: Tree, code: cst.CSTNode) -> list[cst.CSTNode]:
    """The functions of the notebook that code calls by their names."""
    functions = (_own(tree, call.func) for call in tree.within(code, cst.Call))
    return [each for each in functions if isinstance(each, (cst.FunctionDef, cst.Lambda))]


def _own(tree: Tree, name: cst.CSTNode) -> cst.CSTNode | None:
    """What the notebook binds a name to; of a parameter, itself."""
    binding = tree.binding(name)
    return None if binding is None else binding.value or binding.node


def _changes_nothing(tree: Tree, function: cst.CSTNode) -> bool:
    """True for a function that assigns to names of its own alone."""
    others = (cst.Global, cst.Nonlocal, cst.Del, cst.Yield, cst.Await)
    changes = any(isinstance(target, (cst.Attribute, cst.Subscript)) for target in tree.targets(function))
    return not changes and not any(tree.within(function, kind) for kind in others)
