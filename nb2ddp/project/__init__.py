"""Files, settings, the cache and many notebooks at once: everything around a conversion that touches the disk.

May import `nb2ddp.convert` and the rooms below it; only `cli` and `nb2ddp.api` import from here.
"""
