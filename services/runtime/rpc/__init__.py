"""gRPC as all services use it: servers, channels, streams, TLS.

May import `auth`, `telemetry`, `contract` and `settings`; must not import `redis`.
"""
