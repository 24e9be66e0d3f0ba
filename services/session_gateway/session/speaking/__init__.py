"""Speaking to a room: one utterance, one job for each language that somebody wants. Pure.

A *lane* is one language of the session. `room_jobs` has all lanes; the session's core imports it.
"""
