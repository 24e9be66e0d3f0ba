"""The client side of Listen as a pure state machine: `machine.ListenerProtocol` and its parts.

Imports no asyncio, grpc, time, threading or logging. May import `events`, the pure parts of
`_transport` and of `session`, and the modules at the top of the SDK; must not import the other
modules of `room`.
"""
