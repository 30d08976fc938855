"""Executes scripts with every library imitated, to see that each process does what it should.

`python -m tests.imitation train.py notebook.ipynb ...` prints what differs. See `check` for what is compared, `things`
for the imitated libraries, `process` for what a script can and cannot do, `server` for how processes take turns.
This imitation is for this test alone: what training does is tested with the real libraries.
"""
