"""Logs, metrics and traces.

May import `errors` and `settings`; must not import `rpc`, `auth` or `redis`.
"""
