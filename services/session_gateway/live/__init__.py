"""Live sessions: the shell that carries out what each session's core asks for.

May import every other part of the gateway except `service` and `main`.
"""
