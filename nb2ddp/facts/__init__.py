"""What is true of a notebook: where it trains, what it loads and installs, who runs what, when.

May import from `syntax` and `notebook`. Facts are looked up, never changed.
"""
