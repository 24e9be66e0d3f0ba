"""The client side of Converse as a pure state machine: `machine.SessionProtocol` and its parts.

Imports no asyncio, grpc, time, threading or logging. May import `events`, the pure parts of
`_transport` and the modules at the top of the SDK; must not import the other modules of `session`.
"""
