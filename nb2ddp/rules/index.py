"""All rules of this package by code, which is also the order in which their edits apply."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import nb2ddp.rules
from nb2ddp.codes import OWN_CODES, Code
from nb2ddp.rules.rule import Rule

_MODULES = [import_module(f"nb2ddp.rules.{name}") for _, name, _ in pkgutil.iter_modules(nb2ddp.rules.__path__)]
#: A rule that another module imports is found twice.
_FOUND = {value.code: value for module in _MODULES for value in vars(module).values() if isinstance(value, Rule)}
RULES: tuple[Rule, ...] = tuple(rule for _, rule in sorted(_FOUND.items()))
#: All codes: those of the command, then those of the rules.
KNOWN: dict[str, Code] = {**OWN_CODES, **{rule.code: rule for rule in RULES}}
