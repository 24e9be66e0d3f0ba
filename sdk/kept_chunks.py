"""Audio chunks that no AudioAck covers: the client is the only one who surely has them."""

from collections import deque

from lingua_scheduler.v1 import common_pb2, session_pb2


class KeptChunks:
    """Chunks by seq, without a hole; each stays until it is acknowledged. No I/O, no clock.

    Attributes:
        first: the lowest seq that is kept; all below are acknowledged.
        size: bytes of audio that are kept.
    """

    def __init__(self) -> None:
        self.first = 0
        self.size = 0
        self._chunks: deque[session_pb2.AudioChunk] = deque()
        # The next to write on the present stream, and the end of what any stream has had.
        self._cursor = 0
        self._written = 0
        # All below are acknowledged.
        self._safe = 0

    def __len__(self) -> int:
        return len(self._chunks)

    @property
    def end(self) -> int:
        """The seq that the next new chunk will have."""
        return self.first + len(self._chunks)

    @property
    def unwritten(self) -> int:
        """Chunks that no stream has had."""
        return self.end - self._written

    def add(
        self,
        data: bytes,
        *,
        is_final: bool = False,
        direction: common_pb2.LanguagePair | None = None,
        client_ms: int = 0,
    ) -> None:
        """A new chunk, after all others."""
        self._chunks.append(
            session_pb2.AudioChunk(
                seq=self.end, data=data, is_final=is_final, direction=direction, client_ms=client_ms
            )
        )
        self.size += len(data)

    def take(self) -> session_pb2.AudioChunk | None:
        """The next chunk to write on the present stream."""
        if self._cursor >= self.end:
            return None
        chunk = self._chunks[self._cursor - self.first]
        self._cursor += 1
        self._written = max(self._written, self._cursor)
        self._drop_safe()
        return chunk

    def ack(self, next_seq: int) -> bool:
        """All below are safe; whether any could be forgotten.

        What no stream has had cannot be safe, whatever the server says. What the present stream has
        not had yet is written once more, since a stream that was told where it begins has no gap.
        """
        self._safe = max(self._safe, min(next_seq, self._written))
        return self._drop_safe()

    def _drop_safe(self) -> bool:
        before, end = self.first, min(self._safe, self._cursor)
        while self.first < end:
            self.size -= len(self._chunks.popleft().data)
            self.first += 1
        return self.first > before

    def forget(self) -> None:
        """Nobody wants them any more."""
        self.first = self._cursor = self._written = self._safe = self.end
        self.size = 0
        self._chunks.clear()

    def begin_at(self, next_seq: int) -> None:
        """There is a new stream, which wants chunks from here on: all below are safe.

        A server that wants earlier ones than are kept gets what there is.
        """
        self._safe = max(self._safe, min(next_seq, self._written))
        self._cursor = max(self.first, min(next_seq, self._written))
        self._drop_safe()

    def again_from(self, seq: int, *, emptied: bool) -> None:
        """The server wants this chunk and all after it again; emptied: without its audio.

        Nothing changes where it has not been written on this stream: then it comes anyway.
        """
        if not self.first <= seq < self._cursor:
            return
        self._cursor = seq
        if emptied:
            old = self._chunks[seq - self.first]
            # Not changed in place: the message may be on its way.
            new = session_pb2.AudioChunk()
            new.CopyFrom(old)
            new.data = b""
            self._chunks[seq - self.first] = new
            self.size -= len(old.data)
