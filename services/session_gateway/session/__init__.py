"""The pure core of a session: events in, effects out. Start with `core`.

No I/O, no clock, no logging: every event carries the time. May import the generated code and the
pure parts of the runtime (`contract`, `settings`); must not import other parts of the gateway.
"""
