"""What runs inside the rehearsed processes. Nothing here imports nb2ddp: the processes have the user's environment.

`start` is the program of each process: `play` lays the hooks of `outside`, `ranks`, `device` and `training`, and runs
the script; `cached` asks for models and data sets, which `build` makes; `agent` lets processes meet;
`parent` becomes these by a fork; `cpu` runs a script as it is, where `nb2ddp run` finds no GPU. What is seen goes to
`log`, as one of `events`.

By what makes them change:
    a question of the verdict     `log`, `ranks`, `training`, `outside`, `sampling`: they observe
    another kind of hardware      `device`
    a new Unsloth                 `fast`
    a version of one library      `versions`
    data, packages, models that are not there
                                  `cached`, `files`, `schema`, `shapes`, `learn`, `attempts`, `packages`, `models`, ...
`nodes` finds what stands in a script's text, `toml` reads the tables beside a module. Who changes a library names what
it changes (`hooks.wrap`): where that is gone, the rehearsal says so and ends.
"""
