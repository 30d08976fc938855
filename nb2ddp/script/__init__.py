"""The text of a script and of the files beside it: rendering, launch files, versions, packages.

May import from `facts`, `syntax` and `notebook`; it knows no rule.
"""
