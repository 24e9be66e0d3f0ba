"""Other job queues, each configured as its documentation recommends.

Each module has `WORKERS`, the commands that start its workers (none for Ray, which starts its own),
and `client()`, which returns the function that runs one job: async, or blocking if its
documentation shows that. The job takes 32 KiB and does nothing. Each runs in a venv of its own.
"""

import os

CORES = os.cpu_count() or 1
REDIS_URL = os.environ.get("PEERS_REDIS_URL", "redis://127.0.0.1:6379/0")
