"""The code inside the rehearsed processes. Nothing here imports nb2ddp: the processes have the user's environment.

`start` is the program of each process: `play` installs the hooks of `outside`, `ranks`, `device` and `training`, and
runs the script; `cached` asks for models and data sets, which `build` makes; `agent` lets processes find each other;
`parent` forks to become one of these; `cpu` runs a script unchanged if `nb2ddp run` finds no GPU. `log` records what
happens, as `events`.

The modules, by what makes them change:
    a question of the verdict     `log`, `ranks`, `training`, `outside`, `sampling`: they observe
    another kind of hardware      `device`
    a new Unsloth                 `fast`
    a version of one library      `versions`
    missing data, packages and models
                                  `cached`, `files`, `schema`, `shapes`, `learn`, `attempts`, `packages`, `models`, ...
`nodes` searches the syntax tree of a script, and `toml` reads the table next to a module. Code that changes a library
names what it changes (`hooks.wrap`): if that is missing, the rehearsal says so and ends.
"""
