"""Nodes: connect to a dispatcher, run handlers, deliver results.

May import `_transport` and the files beside it; must not import `session`.
"""
