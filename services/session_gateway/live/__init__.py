"""Live sessions: the shell that feeds events to each session's core and carries out its effects.

May import all parts of the gateway except `service`, `main` and `views`, which it is independent
of. Only `service` and `main` import it.
"""
