"""What nodes and sessions share: channels, TLS, tokens, reconnecting streams.

Private: apps import from `lingua_scheduler.sdk`. Must not import `node` or `session`.
"""
