"""Limits on what a peer may use of a gRPC server before it has shown who it is."""

import contextlib
from collections.abc import Iterator

from lingua_scheduler.services.runtime.errors import BackpressureError

# Calls of methods that need no token, such as health checks, on one connection at a time. Probes
# make one; each may hold a message of the largest size until it is complete.
MAX_OPEN_CALLS = 8
# Seconds within which the request of such a call must arrive. It is a few bytes.
OPEN_REQUEST_WITHIN_S = 5.0
# Seconds within which any other single request must arrive, over a slow line too.
REQUEST_WITHIN_S = 60.0


class OpenCalls:
    """Counts the calls of methods that need no token, by connection."""

    def __init__(self, most: int = MAX_OPEN_CALLS) -> None:
        self._most = most
        self._under_way: dict[str, int] = {}

    @contextlib.contextmanager
    def place(self, peer: str) -> Iterator[None]:
        """Holds one of the peer's places while a call lasts.

        Raises:
            BackpressureError: the peer has as many calls under way as it may.
        """
        under_way = self._under_way.get(peer, 0)
        if under_way >= self._most:
            raise BackpressureError(
                f"a connection may have {self._most} calls without a token at a time"
            )
        self._under_way[peer] = under_way + 1
        try:
            yield
        finally:
            left = self._under_way[peer] - 1
            if left:
                self._under_way[peer] = left
            else:
                del self._under_way[peer]
