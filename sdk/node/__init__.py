"""Nodes: connect to a dispatcher, run handlers, and deliver results.

`node` is the public class, `serving` runs the protocol over streams, `workers` and `processes` run
handlers, and `protocol/` is the pure core. May import `_transport` and the modules at the top of
the SDK; must not import `session`.
"""
