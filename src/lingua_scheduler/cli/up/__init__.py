"""What `lingua up` does: runs a Redis, all services and sample nodes as child processes.

May import `services.runtime` and `clients`, but not `commands`, `views` or `speak`.
"""
