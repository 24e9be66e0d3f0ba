"""Keeps audio chunks that the session may have to send again.

Chunks that no AudioAck covers may exist nowhere else. Acknowledged chunks are kept as long as the
server asks for it: a node holds them for the rest of a sentence, and a gateway that takes over the
session may need them.
"""

from collections import deque

from lingua_scheduler.v1 import common_pb2, session_pb2

# The limit of acknowledged chunks: about four minutes of 16 kHz PCM. The oldest are dropped first.
MAX_HELD_BYTES = 8 * 1024 * 1024
# The most audio in a message of several chunks, well below what a gateway takes.
MAX_SHARED_BYTES = 32 * 1024


class KeptChunks:
    """Chunks by sequence number, without gaps. No I/O, no clock.

    Attributes:
        first: the lowest sequence number that is kept; all below are acknowledged.
        size: bytes of unacknowledged audio.
        held_size: bytes of acknowledged audio that is still kept.
    """

    def __init__(self, max_held_bytes: int = MAX_HELD_BYTES) -> None:
        self.first = 0
        self.size = 0
        self.held_size = 0
        self._max_held_bytes = max_held_bytes
        self._chunks: deque[session_pb2.AudioChunk] = deque()
        # The next to write to the current stream, and one more than the last ever written.
        self._cursor = 0
        self._written = 0
        # Chunks from here on wait for others to share a message with.
        self._ready = 0
        # Chunks below the first are acknowledged; those below the second are not needed again.
        self._safe = 0
        self._keep = 0

    def __len__(self) -> int:
        """The number of unacknowledged chunks."""
        return self.end - self.acknowledged

    @property
    def acknowledged(self) -> int:
        """The lowest sequence number that is not acknowledged."""
        return self._safe

    @property
    def end(self) -> int:
        """The sequence number of the next new chunk."""
        return self.first + len(self._chunks)

    @property
    def unwritten(self) -> int:
        """The number of chunks that were never written."""
        return self.end - self._written

    @property
    def to_repeat(self) -> int:
        """The number of chunks written to an earlier stream, and not to the current one."""
        return self._written - self._cursor

    def add(
        self,
        data: bytes,
        *,
        is_final: bool = False,
        direction: common_pb2.LanguagePair | None = None,
        client_ms: int = 0,
        waits: bool = False,
    ) -> None:
        """Appends a new chunk. If it waits, it is written with the next one that does not."""
        self._chunks.append(
            session_pb2.AudioChunk(
                seq=self.end, data=data, is_final=is_final, direction=direction, client_ms=client_ms
            )
        )
        self.size += len(data)
        if not waits:
            self.release()

    def release(self) -> None:
        """Lets all chunks that wait be written."""
        self._ready = self.end

    def take(self, most: int = 1) -> list[session_pb2.AudioChunk]:
        """Returns the next chunks to write to the current stream, for one message.

        Args:
            most: the most chunks in a message.
        """
        chunks: list[session_pb2.AudioChunk] = []
        size = 0
        while self._cursor < self._ready and len(chunks) < most:
            chunk = self._chunks[self._cursor - self.first]
            size += len(chunk.data)
            if chunks and size > MAX_SHARED_BYTES:
                break
            chunks.append(chunk)
            self._cursor += 1
        self._written = max(self._written, self._cursor)
        self._drop()
        return chunks

    def ack(self, next_seq: int, keep_seq: int | None = None) -> bool:
        """Notes that chunks below `next_seq` are acknowledged. Returns whether any of them is new.

        Acknowledged chunks from `keep_seq` on may be needed again; None: none of them.

        Chunks that were never written stay unacknowledged, whatever the server says. Chunks that
        were not written to the current stream are still written, so that it has no gap.
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
        """Drops all chunks."""
        self.first = self._cursor = self._written = self._ready = self.end
        self._safe = self._keep = self.end
        self.size = self.held_size = 0
        self._chunks.clear()

    def begin_at(self, next_seq: int) -> None:
        """Starts a new stream with this chunk: all below are acknowledged.

        If the server asks for chunks that are no longer kept, it gets those that are.
        """
        self._become_safe(next_seq)
        self._keep = max(self._keep, min(next_seq, self._written))
        self._cursor = max(self.first, min(next_seq, self._written))
        self._drop()

    def again_from(self, seq: int, *, emptied: bool) -> bool:
        """Writes this chunk and all after it again.

        If `emptied`, the chunk loses its audio and its time. Does nothing, and returns False, if
        the chunk has yet to be written to the current stream.
        """
        if not self.first <= seq < self._cursor:
            return False
        self._cursor = seq
        if emptied:
            old = self._chunks[seq - self.first]
            # Replaced, not changed: the message may be about to be sent.
            new = session_pb2.AudioChunk()
            new.CopyFrom(old)
            new.data = b""
            new.client_ms = 0
            self._chunks[seq - self.first] = new
            if seq < self._safe:
                self.held_size -= len(old.data)
            else:
                self.size -= len(old.data)
        return True
