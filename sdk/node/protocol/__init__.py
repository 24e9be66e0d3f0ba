"""The node side of Connect as a pure state machine: `machine.NodeProtocol` and its parts.

Imports no asyncio, grpc, time, threading or logging. May import the pure parts of `_transport` and
the modules at the top of the SDK; must not import the other modules of `node`.
"""
