"""Other ways to get a job to a worker and its result back, each as its documents advise.

A module has `WORKERS`, the commands that start them (none for Ray, which starts its own), and
`client()`, which gives the function that runs one job: async, or blocking where that is what its
documents show. The job takes 32 KiB and does nothing. They run in a venv of their own.
"""

import os

CORES = os.cpu_count() or 1
REDIS_URL = os.environ.get("PEERS_REDIS_URL", "redis://127.0.0.1:6379/0")
