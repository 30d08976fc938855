"""DDP307: A cell's last expression is printed, as Jupyter shows it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from nb2ddp.facts.looking import gives_a_value
from nb2ddp.facts.program import Program
from nb2ddp.rules.rule import Finding, rule
from nb2ddp.syntax.edits import Wrap


@rule("DDP307")
def value_only_shown(program: Program) -> Iterator[Finding]:
    for cell in program.code_cells:
        last = program.last_statement(cell)
        if (
            not isinstance(last, cst.Expr)
            or isinstance(last.value, (cst.SimpleString, cst.ConcatenatedString, cst.Ellipsis))
            or program.names.is_stop(last)
            or program.installs.covers(last)
            or last in program.drawings
        ):
            continue
        gives = gives_a_value(program.effects, last.value)
        if gives or (gives is None and cell.shows is not False):
            shows = "print" if gives or cell.shows else "sys.displayhook"  # which shows no None
            said = "the notebook shows the cell's last expression; the script prints it"
            before, after = ("", "") if last.value.lpar else ("(", ")")
            yield Finding(last, said, (Wrap(last, f"{shows}{before}", after),))
