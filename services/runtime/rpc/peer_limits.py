"""Limits of peers that have not authenticated."""

import contextlib
from collections.abc import Iterator

from lingua_scheduler.services.runtime.errors import BackpressureError

# Concurrent calls per connection of methods that need no token, such as health checks. Probes make
# one. Each may hold a message of the largest size until it is complete.
MAX_OPEN_CALLS = 8
# Seconds within which the request of such a call, a few bytes, must arrive.
OPEN_REQUEST_WITHIN_S = 5.0
# Seconds within which any other single request must arrive, also over a slow connection.
REQUEST_WITHIN_S = 60.0


class OpenCalls:
    """Counts the calls of methods that need no token, per connection."""

    def __init__(self, most: int = MAX_OPEN_CALLS) -> None:
        self._most = most
        self._under_way: dict[str, int] = {}

    @contextlib.contextmanager
    def place(self, peer: str) -> Iterator[None]:
        """Counts a call while it lasts.

        Raises:
            BackpressureError: the peer has reached its limit of calls.
        """
        under_way = self._under_way.get(peer, 0)
        if under_way >= self._most:
            raise BackpressureError(
                f"a connection may have at most {self._most} concurrent calls without a token"
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
