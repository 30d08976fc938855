"""Facts about a notebook: where it trains, what it loads and installs, which process runs what, and when.

May import from `syntax` and `notebook`. Facts are looked up, never changed.
"""
