"""Who calls, and what they may do: tokens, principals, roles, quotas.

May import `settings` and `errors`; must not import `rpc` or `redis`.
"""
