"""Parse a notebook's code once, and represent edits of it as data.

May import from `notebook`. Nothing here depends on training.
"""
