"""What is changed and why, one problem a module, with examples that are its tests and its documentation.

`rule` says what a rule is, `engine` runs them, `index` lists them. May import from `facts`, `syntax` and `notebook`.
"""
