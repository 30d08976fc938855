"""Reading notebooks: cells, IPython's forms, lines of the file.

Imports no other room.
"""
