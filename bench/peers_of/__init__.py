"""Other job queues, each configured as its documentation recommends.

Each module has `WORKERS`, the commands that start its workers (none for Ray, which starts its own),
and `client()`, which returns the function that runs one job: async, or blocking if its
documentation shows that. The job takes 32 KiB and does nothing. Each runs in a venv of its own.
"""

import os

CORES = os.cpu_count() or 1
# Jobs in progress at saturation.
IN_PROGRESS = 64
# Enough threads for a blocking client, also for jobs that accumulate at a steady rate.
THREADS = 128
# The socket of a Redis that belongs to the benchmark.
REDIS_URL = os.environ.get("PEERS_REDIS_URL", "unix:///tmp/redis.sock")
