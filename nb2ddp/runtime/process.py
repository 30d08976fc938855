"""Which process this is and how many there are, as the launcher says."""

import os

local_rank = int(os.environ.get("LOCAL_RANK", 0))  # the number of this process's GPU, from 0 on each machine
world_size = int(os.environ.get("WORLD_SIZE", 1))  # the number of processes, one for each GPU
is_main_process = int(os.environ.get("RANK", 0)) == 0
