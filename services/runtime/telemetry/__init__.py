"""Logs, metrics and traces.

May import `errors`, `addresses` and `settings`; must not import `auth`, `redis` or `rpc`.
"""
