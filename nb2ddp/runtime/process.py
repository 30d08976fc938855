"""The place of a process in its job, as the launcher says it."""

import os

local_rank = int(os.environ.get("LOCAL_RANK", 0))  # this process's GPU on its machine
world_size = int(os.environ.get("WORLD_SIZE", 1))  # processes in the whole job
is_main_process = int(os.environ.get("RANK", 0)) == 0
