"""What every service needs and none owns.

Settings, the Redis link and its Lua scripts, the embedded Redis, the gRPC server frame, errors,
logs, traces and metrics. Services and the CLI import from here; nothing here imports a service.
"""
