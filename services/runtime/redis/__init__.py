"""The connection to Redis: addresses, topologies, batched script calls, an embedded server.

May import `errors` and `telemetry`; must not import `rpc` or `auth`.
"""
