"""Rooms for apps: `room.Room`, and a listener that joins again by itself.

Apps import from `lingua_scheduler.sdk`. `protocol/` is the pure state machine of a listener;
`listener` and `link` run it over streams. A speaker is a `Session`, so this package may import
`session`, and `session` must not import this one.
"""
