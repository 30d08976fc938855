"""The rules: what a script changes, and why. The examples on their pages are both tests and documentation.

`rule` defines a rule, `engine` runs the rules, `index` lists them. May import from `facts`, `syntax` and `notebook`.
"""
