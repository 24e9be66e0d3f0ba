"""What nodes and sessions share to talk to a server: channels, TLS, tokens, streams, backoff.

Private: apps and nodes import from `lingua_scheduler.sdk`. May import the modules at the top of the
SDK; must not import `node` or `session`.
"""
