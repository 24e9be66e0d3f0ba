"""The records of sessions in Redis.

May import types of `session`; must not import `live` or `dispatcher_link`.
"""
