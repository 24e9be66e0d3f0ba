"""What `lingua speak` and `lingua listen` do: send audio, and show what comes back of it.

May import `clients`, `views` and the SDK, but not `commands` or `up`.
"""
