"""Every rule, in the order in which their edits apply."""

from __future__ import annotations

from nb2ddp.rule import Rule
from nb2ddp.rules import (
    batch,
    cell_magic,
    cell_program,
    device_map,
    display,
    early_write,
    end_of_training,
    env_magic,
    fixed_device,
    help,
    installs,
    line_magic,
    rank_variables,
    seeds,
    shell_command,
    shown_value,
    token_average,
    unused_parameters,
)

RULES: tuple[Rule, ...] = (
    device_map.RULE,
    fixed_device.RULE,
    rank_variables.RULE,
    batch.RULE,
    unused_parameters.RULE,
    token_average.RULE,
    env_magic.RULE,
    cell_magic.RULE,
    cell_program.RULE,
    line_magic.RULE,
    help.RULE,
    shell_command.RULE,
    installs.RULE,
    shown_value.RULE,
    display.RULE,
    early_write.RULE,
    end_of_training.RULE,
    seeds.RULE,
)
