"""What runs inside the rehearsed processes. Nothing here imports nb2ddp: the processes have the user's environment.

`start` is the program of each process: it lays the hooks of `outside`, `ranks`, `device` and `training`, and runs the
script. `build` is the program that makes what the stand-in hub offers. What is seen goes to `log`.
"""
