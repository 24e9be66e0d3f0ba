"""gRPC as all services use it: servers, channels, streams, TLS.

May import `auth`, `contract`, `errors`, `settings` and `telemetry`; must not import `redis`.
"""
