"""What the command does and prints, and the documentation of rules; its options are declared in `nb2ddp/__main__.py`.

May import from every room below; only the command imports from here.
"""
