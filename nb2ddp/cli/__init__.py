"""The command: what it does and prints, and explanations of rules. Its options are declared in `nb2ddp/cli/main.py`.

May import from every room below; only `__main__` imports from here.
"""
