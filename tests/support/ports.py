"""Ports for servers that must know their port before they start."""

import random
import socket

# Below those that Linux gives to connections, and to servers on port 0: nobody gets one of these by
# chance before its server listens.
_FIRST, _END = 15_000, 32_000


def free_port() -> int:
    """A port that nobody listens on now, on any address."""
    while True:
        port = random.randrange(_FIRST, _END)
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
            return port
