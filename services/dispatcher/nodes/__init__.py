"""Nodes: their streams, and the relay to nodes of other dispatchers.

May import `job` and `pool`; must not import `home` or `gateways`.
"""
