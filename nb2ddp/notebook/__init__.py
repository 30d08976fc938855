"""Read notebooks: cells, IPython's forms, lines of the file.

It imports no other room.
"""
