"""One parse of a notebook's code, and edits of it as data.

May import from `notebook`. Nothing here knows of training.
"""
