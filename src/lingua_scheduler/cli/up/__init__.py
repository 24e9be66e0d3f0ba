"""What `lingua up` does: runs a Redis, all services and sample nodes as child processes.

May import `services.runtime`, `clients` and `views`, but not `commands` or `speak`.
"""
