"""The functions and classes that scripts use. Each script's setup block gets a copy of those that it uses.

`nb2ddp.script.linker` copies a function by name, with the functions that it calls and the imports that these need.
Nothing here imports another room.
"""
