"""Size limits of messages between services."""

# What services accept from each other beyond the largest message of a client or node: such a
# message is passed on with ids and timestamps around it.
HEADROOM_BYTES = 64 * 1024
# The size up to which events are batched: below gRPC's default limit of 4 MiB, with room for
# framing.
MAX_BATCH_BYTES = 3 * 1024 * 1024


def between_services(max_message_bytes: int) -> int:
    """The largest message that one service sends another."""
    return max_message_bytes + HEADROOM_BYTES


def batch_bytes(max_message_bytes: int) -> int:
    """The size up to which events are batched into a message; a single event may be larger."""
    return min(MAX_BATCH_BYTES, max_message_bytes * 3 // 4)
