"""The connection to Redis: topologies, batched script calls, paging, an embedded server.

May import `errors`, `settings` and `telemetry`; must not import `auth` or `rpc`.
"""
