"""The gateway's connection to dispatchers: jobs out, events back.

Knows nothing of sessions: must not import `session`, `live` or `store`.
"""
