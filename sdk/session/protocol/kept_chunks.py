"""Audio chunks that no AudioAck covers: the client is the only one who surely has them.

Chunks that are acknowledged may be kept as well, for as long as the server asks for that: a node
holds them for the rest of a sentence, and a gateway that takes the session over may need them.
"""

from collections import deque

from lingua_scheduler.v1 import common_pb2, session_pb2

# Of chunks that are acknowledged: about four minutes of 16 kHz PCM. Then the oldest are forgotten.
MAX_HELD_BYTES = 8 * 1024 * 1024


class KeptChunks:
    """Chunks by seq, without a hole; each stays until it is acknowledged. No I/O, no clock.

    Attributes:
        first: the lowest seq that is kept; all below are acknowledged.
        size: bytes of audio that are not acknowledged.
        held_size: bytes of audio that are acknowledged, and kept.
    """

    def __init__(self, max_held_bytes: int = MAX_HELD_BYTES) -> None:
        self.first = 0
        self.size = 0
        self.held_size = 0
        self._max_held_bytes = max_held_bytes
        self._chunks: deque[session_pb2.AudioChunk] = deque()
        # The next to write on the present stream, and the end of what any stream has had.
        self._cursor = 0
        self._written = 0
        # All below are acknowledged, and all below are not needed again.
        self._safe = 0
        self._keep = 0

    def __len__(self) -> int:
        """Chunks that are not acknowledged."""
        return self.end - self.acknowledged

    @property
    def acknowledged(self) -> int:
        """The lowest seq that is not acknowledged."""
        return self._safe

    @property
    def end(self) -> int:
        """The seq that the next new chunk will have."""
        return self.first + len(self._chunks)

    @property
    def unwritten(self) -> int:
        """Chunks that no stream has had."""
        return self.end - self._written

    @property
    def to_repeat(self) -> int:
        """Chunks that an earlier stream has had, and the present one has not."""
        return self._written - self._cursor

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
        self._drop()
        return chunk

    def ack(self, next_seq: int, keep_seq: int | None = None) -> bool:
        """All below `next_seq` are safe; whether that is news.

        Those from `keep_seq` on may be needed again; None: none of them.

        What no stream has had cannot be safe, whatever the server says. What the present stream has
        not had yet is written once more, since a stream that was told where it begins has no gap.
        """
        before = self._safe
        self._become_safe(next_seq)
        self._keep = max(self._keep, self._safe if keep_seq is None else min(keep_seq, self._safe))
        self._drop()
        return self._safe > before

    def _become_safe(self, next_seq: int) -> None:
        safe = max(self._safe, min(next_seq, self._written))
        for seq in range(self._safe, safe):
            size = len(self._chunks[seq - self.first].data)
            self.size -= size
            self.held_size += size
        self._safe = safe

    def _drop(self) -> None:
        end = min(self._safe, self._cursor)
        while self.first < end and (
            self.first < self._keep or self.held_size > self._max_held_bytes
        ):
            self.held_size -= len(self._chunks.popleft().data)
            self.first += 1

    def forget(self) -> None:
        """Nobody wants them any more."""
        self.first = self._cursor = self._written = self._safe = self._keep = self.end
        self.size = self.held_size = 0
        self._chunks.clear()

    def begin_at(self, next_seq: int) -> None:
        """There is a new stream, which wants chunks from here on: all below are safe.

        A server that wants earlier ones than are kept gets what there is.
        """
        self._become_safe(next_seq)
        self._keep = max(self._keep, min(next_seq, self._written))
        self._cursor = max(self.first, min(next_seq, self._written))
        self._drop()

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
            if seq < self._safe:
                self.held_size -= len(old.data)
            else:
                self.size -= len(old.data)
