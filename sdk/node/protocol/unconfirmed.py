"""Keeps results until the dispatcher has confirmed them. No I/O, no clock."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lingua_scheduler.sdk.node.protocol.wire import Ref
from lingua_scheduler.v1 import dispatcher_pb2

# Keeps a node that is disconnected for long from filling its memory with stale results.
MAX_RESULTS = 256
MAX_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class _Kept:
    # Sent together, in this order: AudioHeld if the audio is held, and the result.
    events: tuple[dispatcher_pb2.NodeEvent, ...]
    size: int


class UnconfirmedResults:
    """Results in the order of their arrival, and which of them are unsent on this stream."""

    def __init__(self, *, max_results: int = MAX_RESULTS, max_bytes: int = MAX_BYTES) -> None:
        self._max_results = max_results
        self._max_bytes = max_bytes
        self._kept: dict[Ref, _Kept] = {}
        self._unsent: dict[Ref, None] = {}
        self._bytes = 0

    def add(self, ref: Ref, events: Iterable[dispatcher_pb2.NodeEvent]) -> list[Ref]:
        """Keeps a result, or replaces it, and marks it as unsent.

        Returns:
            The oldest results, which were dropped to make room.
        """
        self.forget(ref)
        kept = tuple(events)
        size = sum(event.ByteSize() for event in kept)
        self._kept[ref] = _Kept(kept, size)
        self._unsent[ref] = None
        self._bytes += size
        gone = []
        while len(self._kept) > self._max_results or (
            self._bytes > self._max_bytes and len(self._kept) > 1
        ):
            oldest = next(iter(self._kept))
            self.forget(oldest)
            gone.append(oldest)
        return gone

    def forget(self, ref: Ref) -> bool:
        """Drops a result. Returns whether there was one."""
        kept = self._kept.pop(ref, None)
        self._unsent.pop(ref, None)
        if kept is None:
            return False
        self._bytes -= kept.size
        return True

    def send_again(self, ref: Ref) -> None:
        """Marks a result as unsent."""
        if ref in self._kept:
            self._unsent.setdefault(ref)

    def send_all_again(self) -> None:
        """Marks all results as unsent, for a new stream."""
        self._unsent = dict.fromkeys(self._kept)

    def first_unsent(self) -> tuple[Ref, tuple[dispatcher_pb2.NodeEvent, ...], int] | None:
        """Returns the next result to send, with its size; None if there is none."""
        for ref in self._unsent:
            return ref, self._kept[ref].events, self._kept[ref].size
        return None

    def sent(self, ref: Ref) -> None:
        """Marks a result as sent. It stays until it is confirmed."""
        self._unsent.pop(ref, None)

    def unsent(self) -> Iterator[Ref]:
        """Iterates over the unsent results."""
        return iter(self._unsent)

    @property
    def size(self) -> int:
        """The number of bytes that are kept."""
        return self._bytes

    def __contains__(self, ref: Ref) -> bool:
        return ref in self._kept

    def __iter__(self) -> Iterator[Ref]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)
