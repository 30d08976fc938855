"""Write the text of a script and of the files next to it: rendering, launch files, versions, packages.

May import from `facts`, `syntax` and `notebook`, but from no rule.
"""
