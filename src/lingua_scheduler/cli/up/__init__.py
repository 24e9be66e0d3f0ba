"""What `lingua up` does: runs a Redis and all services as child processes.

May import `services.runtime`, but not `commands`, `clients`, `views` or `speak`.
"""
