"""Settings from the environment: fields, defaults, checks.

May import `errors`; every other part of the runtime may import it.
"""
