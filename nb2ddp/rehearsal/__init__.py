"""Rehearsals: train a script on this machine's CPU, once as one process and once as several, and compare the runs.

`plan` reads the script, `hub` fills a cache with small stand-ins of the models and data sets that it loads, `run`
starts its processes, `questions` compares their events, `obstacle` says why a comparison is impossible, `verdict`
combines these results, and `report` formats them. `stage` runs inside the processes.
"""
