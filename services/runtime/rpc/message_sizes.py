"""How large messages may be, by where they go."""

# What services take from each other beyond the largest message of a client or node: what one of
# those sent is passed on with ids and times around it.
HEADROOM_BYTES = 64 * 1024
# What one message takes in, if that is less than the limit: under the 4 MiB that gRPC allows unless
# it is told otherwise, with room for framing.
MAX_BATCH_BYTES = 3 * 1024 * 1024


def between_services(max_message_bytes: int) -> int:
    """The largest message that one service sends another."""
    return max_message_bytes + HEADROOM_BYTES


def batch_bytes(max_message_bytes: int) -> int:
    """Where a message of many events is full; a single event may be larger."""
    return min(MAX_BATCH_BYTES, max_message_bytes * 3 // 4)
