"""The dispatcher's connection to the pool service: every operation it uses, typed.

Knows nothing of jobs and nodes: must not import `home`, `nodes` or `gateways`.
"""
