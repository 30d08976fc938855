"""Rehearsals: a script trains on this machine's CPU, once as one process and once as several, and is compared.

`plan` reads the script, `hub` fills a cache with small stand-ins of the models and data sets that it loads, `run`
starts its processes, `questions` compares what they saw, `obstacle` says why there is nothing to compare, `verdict` is
all of that, and `report` tells it. `stage` is what runs inside the processes.
"""
