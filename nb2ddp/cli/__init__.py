"""What the command does and prints, and the documentation of rules; its options are declared in `nb2ddp/cli/main.py`.

May import from every room below; only `__main__` imports from here.
"""
