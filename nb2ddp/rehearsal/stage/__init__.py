"""What runs inside the rehearsed processes. Nothing here imports nb2ddp: the processes have the user's environment.

`start` is the program of each process: `play` lays the hooks of `outside`, `ranks`, `device` and `training`, and runs
the script; `build` makes what the stand-in hub offers; `agent` lets processes meet; `parent` becomes these by a fork.
What is seen goes to `log`.
"""
