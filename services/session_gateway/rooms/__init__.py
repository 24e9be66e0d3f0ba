"""Rooms: one or more people speak, many listen, each in a language of their choice.

- `records`, `store`: what Redis knows of rooms: members, languages that are wanted, and the
  outcomes of utterances in the order in which listeners get them. `views` reads it for people.
- `audience`, `lane`, `lane_reads`: pure: which listener gets what, and when.
- `rooms`, `room_here`, `listener`, `fanout`, `news`: the shell around them.
- `calls`, `admission`, `validate`, `packing`: what the transports call, check and send.

May import `store`, `metrics` and `validate` of the gateway, and types of `session`; must not import
`live`, `service` or `web`.
"""
