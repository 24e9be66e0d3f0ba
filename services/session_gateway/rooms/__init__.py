"""Rooms: one or more people speak, many listen, each in a language of their choice.

`records` and `store` are what Redis knows of rooms: members, languages that are wanted, and the
outcomes of utterances in the order in which listeners get them. `views` reads it for people.

May import `store`, `metrics` and `validate` of the gateway, and types of `session`; must not import
`live`, `service` or `web`.
"""
