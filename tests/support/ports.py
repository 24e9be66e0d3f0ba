"""Ports for servers that must know their port before they start."""

import random
import socket

# Linux takes ports from 32768 on for connections and for servers on port 0. Nobody else gets one of
# these before the server listens.
_FIRST, _END = 15_000, 32_000


def free_port() -> int:
    """A port on which nothing listens, on any address."""
    while True:
        port = random.randrange(_FIRST, _END)
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
            return port
