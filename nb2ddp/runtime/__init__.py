"""The functions that scripts call: plain code, of which each script's setup block gets a copy of what it uses.

`nb2ddp.script.linker` copies a function by its name, with the functions that it calls and the imports that these need.
Nothing here imports another room.
"""
