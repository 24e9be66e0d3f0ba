"""Results that the dispatcher has not confirmed. No I/O, no clock."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lingua_scheduler.sdk.node.protocol.wire import Ref
from lingua_scheduler.v1 import dispatcher_pb2

# A node that is cut off for long must not fill its memory with what nobody waits for any more.
MAX_RESULTS = 256
MAX_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class _Kept:
    # What belongs together and is sent in this order: AudioHeld where it was said, the result.
    events: tuple[dispatcher_pb2.NodeEvent, ...]
    size: int


class KeptResults:
    """Results in the order in which they came, and which of them this stream has yet to carry."""

    def __init__(self, *, max_results: int = MAX_RESULTS, max_bytes: int = MAX_BYTES) -> None:
        self._max_results = max_results
        self._max_bytes = max_bytes
        self._kept: dict[Ref, _Kept] = {}
        self._unsent: dict[Ref, None] = {}
        self._bytes = 0

    def add(self, ref: Ref, events: Iterable[dispatcher_pb2.NodeEvent]) -> list[Ref]:
        """Keeps a result, or replaces it; it is to be sent.

        Returns:
            The oldest ones, which had to go to make room.
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
        """The dispatcher has it, or does not want it. Whether there was one."""
        kept = self._kept.pop(ref, None)
        self._unsent.pop(ref, None)
        if kept is None:
            return False
        self._bytes -= kept.size
        return True

    def send_again(self, ref: Ref) -> None:
        """This stream has to carry it (once more)."""
        if ref in self._kept:
            self._unsent.setdefault(ref)

    def send_all_again(self) -> None:
        """A new stream: it has carried none yet."""
        self._unsent = dict.fromkeys(self._kept)

    def first_unsent(self) -> tuple[Ref, tuple[dispatcher_pb2.NodeEvent, ...], int] | None:
        """The next one to send, with its size."""
        for ref in self._unsent:
            return ref, self._kept[ref].events, self._kept[ref].size
        return None

    def sent(self, ref: Ref) -> None:
        """This stream has carried it; it stays until it is confirmed."""
        self._unsent.pop(ref, None)

    def unsent(self) -> Iterator[Ref]:
        """What this stream has yet to carry."""
        return iter(self._unsent)

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._bytes

    def __contains__(self, ref: Ref) -> bool:
        return ref in self._kept

    def __iter__(self) -> Iterator[Ref]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)
