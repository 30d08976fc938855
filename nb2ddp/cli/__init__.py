"""The command line: options, what is printed, the documentation of rules.

May import from every room; nothing imports from here.
"""
