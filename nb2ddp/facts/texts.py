"""What expressions stand for, as far as the code tells: texts, through names, parameters and attributes of objects."""

from __future__ import annotations

import re

import libcst as cst

from nb2ddp.syntax.tree import Tree, argument, method, own_class

#: What an expression is made of that nothing tells.
_ANY = "*"
#: A name in braces or behind `$`, which IPython fills in.
_FILLED = re.compile(r"(?<!\$)\{([^{}]*)\}|\$([A-Za-z_]\w*)")


def spelled(tree: Tree, node: cst.BaseExpression) -> list[str]:
    """The texts that an expression may stand for, with `*` for what nothing tells."""
    values = _values(tree, node)
    return list(dict.fromkeys(_spelled(tree, value) for value in values)) if values else [_ANY]


def _values(tree: Tree, node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """What an expression stands for; of a parameter, what calls give it; of `self.path`, what its class gives it."""
    value = tree.value(node)
    kept = held_by(tree, value) if isinstance(value, cst.Attribute) else None
    value = value if kept is None else tree.value(kept)
    param = tree.definition(value)
    return [tree.value(each) for each in passed(tree, param)] if isinstance(param, cst.Param) else [value]


def filled(tree: Tree, text: str) -> str:
    """A text with `{name}` and `$name` replaced where the code binds the name once, to a text or a path."""

    def fill(name: re.Match[str]) -> str:
        bound = tree.bindings(name[1] or name[2])
        texts = spelled(tree, bound[0].value) if len(bound) == 1 and bound[0].value is not None else [_ANY]
        return texts[0] if len(texts) == 1 and _ANY not in texts[0] else name[0]

    return _FILLED.sub(fill, text)


def held(tree: Tree, node: cst.BaseExpression) -> cst.BaseExpression:
    """What an expression stands for, through names and entries of dictionaries: `Path("out")` of `paths["out"]`."""

    def inner(node: cst.BaseExpression) -> cst.BaseExpression | None:
        value = tree.value(node)
        key = value.slice[0].slice if isinstance(value, cst.Subscript) else None
        if not isinstance(value, cst.Subscript) or not isinstance(key, cst.Index):
            return None
        whole, name = tree.value(value.value), tree.literal(key.value)
        entries = whole.elements if isinstance(whole, cst.Dict) and name is not ... else ()
        named = [each.value for each in entries if isinstance(each, cst.DictElement) and tree.literal(each.key) == name]
        is_changed = bool(named) and tree.text(value) in map(tree.text, tree.targets(tree.module))
        return named[0] if len(named) == 1 and not is_changed else None

    return tree.value(tree.followed(node, inner)[-1])


def _spelled(tree: Tree, node: cst.BaseExpression, around: tuple[cst.CSTNode, ...] = ()) -> str:
    value = held(tree, node)
    if value in around:  # a name that is made of itself
        return _ANY

    def part(node: cst.BaseExpression) -> str:
        return _spelled(tree, node, (*around, value))

    if isinstance(value, cst.SimpleString):
        return tree.content(value)
    if isinstance(value, cst.FormattedString):
        return "".join(
            tree.content(each)
            if isinstance(each, cst.FormattedStringText)
            else _ANY
            if each.conversion or each.format_spec  # type: ignore[attr-defined]
            else part(each.expression)  # type: ignore[attr-defined]
            for each in value.parts
        )
    if isinstance(value, cst.ConcatenatedString):
        return part(value.left) + part(value.right)
    if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, (cst.Add, cst.Divide)):
        middle = "/" if isinstance(value.operator, cst.Divide) else ""
        return f"{part(value.left)}{middle}{part(value.right)}"
    if isinstance(value, cst.Call) and tree.qualified(value.func) in ("os.path.join", "pathlib.Path", "str"):
        return "/".join(part(each.value) for each in value.args)
    return _ANY


def called(tree: Tree, call: cst.Call) -> cst.FunctionDef | None:
    """The function of the notebook that a call runs: its own, a method, the `__init__` of a class."""
    definition = tree.definition(call.func)
    if isinstance(definition, cst.FunctionDef):
        return definition
    owner, name = own_class(tree, call.func), method(call)
    if isinstance(definition, cst.ClassDef):
        owner, name = definition, "__init__"
    functions = [] if owner is None else tree.within(owner, cst.FunctionDef)
    return next((each for each in functions if tree.scope(each) is owner and each.name.value == name), None)


def passed(tree: Tree, param: cst.Param) -> list[cst.BaseExpression]:
    """What calls give a parameter, or its default; nothing for a method where not all of its calls are known."""
    function = tree.function(param)
    if function is None:
        return []
    calls = [tree.call_of(use) for use in tree.named(function)]
    own = [call for call in calls if call is not None and called(tree, call) is function]
    is_known = all(call is not None and called(tree, call) is not None for call in calls)
    if isinstance(tree.scope(function), cst.ClassDef) and not is_known:
        return []
    arguments = [argument(call, param.name.value, _position(tree, param)) for call in own]
    given = [param.default if each is None else each.value for each in arguments]
    return [each for each in given if each is not None]


def held_by(tree: Tree, node: cst.Attribute) -> cst.BaseExpression | None:
    """What an object of a class of the notebook's keeps as an attribute, where one assignment says so: `self.path`."""
    owner = own_class(tree, node)
    targets = [] if owner is None else tree.setting(node.attr.value)
    of_it = [each for each in targets if own_class(tree, each.targets[0].target) in (owner, None)]
    return of_it[0].value if len(of_it) == 1 else None


def _position(tree: Tree, param: cst.Param) -> int | None:
    """Where a call gives a parameter without its name; an object stands before what a method is given."""
    function = tree.function(param)
    if function is None or param not in function.params.params:
        return None
    is_static = any(tree.text(each.decorator) == "staticmethod" for each in function.decorators)
    of_object = isinstance(tree.scope(function), cst.ClassDef) and not is_static
    position = list(function.params.params).index(param) - of_object
    return position if position >= 0 else None
