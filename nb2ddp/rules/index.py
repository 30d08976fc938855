"""Every rule: what the modules of this package hold, by code, which is the order in which their edits apply."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import nb2ddp.rules
from nb2ddp.codes import OWN_CODES, Code
from nb2ddp.rules.rule import Rule

_MODULES = [import_module(f"nb2ddp.rules.{name}") for _, name, _ in pkgutil.iter_modules(nb2ddp.rules.__path__)]
RULES: tuple[Rule, ...] = tuple(
    sorted((module.RULE for module in _MODULES if hasattr(module, "RULE")), key=lambda rule: rule.code)
)
#: What each code means: the command's own, then the rules'.
KNOWN: dict[str, Rule | Code] = {**OWN_CODES, **{rule.code: rule for rule in RULES}}
