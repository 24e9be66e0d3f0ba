"""Who calls and what they may do: tokens, principals, roles, quotas.

May import `errors` and `settings`; must not import `redis`, `rpc` or `telemetry`.
"""
