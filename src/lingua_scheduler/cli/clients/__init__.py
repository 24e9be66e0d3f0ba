"""Clients of the three services and SDK credentials, as the commands use them.

May import `services.runtime`, the SDK, `options` and `failures`, but not `commands`, `views`,
`speak` or `up`.
"""
