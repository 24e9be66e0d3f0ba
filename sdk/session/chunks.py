"""Cuts the app's audio into chunks that the server accepts. No I/O, no clock."""

from collections.abc import Iterator
from typing import NamedTuple

from lingua_scheduler.sdk.audio import PCM_SAMPLE_BYTES, AudioFormat, Encoding, opus_packet_ms
from lingua_scheduler.sdk.types import Pair

MAX_OPUS_BYTES = 64 * 1024


class Piece(NamedTuple):
    """The audio of one chunk, and when its end was recorded, in ms since the epoch."""

    data: bytes
    client_ms: int


class Cutter:
    """Cuts PCM into chunks of whole samples; Opus packets stay as they are.

    An incomplete sample waits for the next audio, so an app may split its audio anywhere.

    Args:
        audio_format: of all audio.
        directions: the fixed direction, or both directions of a conversation.
        chunk_ms: the longest chunk of PCM.
    """

    def __init__(
        self, *, audio_format: AudioFormat, directions: tuple[Pair, ...], chunk_ms: int
    ) -> None:
        self._format = audio_format
        self._directions = directions
        self._frame = PCM_SAMPLE_BYTES * audio_format.channels
        frames = max(1, audio_format.sample_rate_hz * chunk_ms // 1000)
        self._chunk_bytes = frames * self._frame
        self._rest = b""
        self._direction: Pair | None = directions[0] if len(directions) == 1 else None
        self._last_ms = 0

    @property
    def direction(self) -> Pair | None:
        """The direction of the latest audio; None if it is fixed or nothing was sent."""
        return None if len(self._directions) == 1 else self._direction

    def duration_ms(self, data: bytes) -> float:
        """Returns how long this audio lasts. Raises ValueError if it is not an Opus packet."""
        if self._format.encoding is Encoding.OPUS:
            return opus_packet_ms(data)
        return self._format.duration_ms(len(data))

    def set_direction(self, direction: tuple[str, str] | None) -> None:
        """Sets who speaks in the audio that follows.

        Raises:
            ValueError: the session does not have this direction, or an incomplete sample of the
                other direction is waiting.
        """
        found = self._find(direction)
        if self._rest and found != self._direction:
            raise ValueError(
                f"data: the audio before the change of direction ends within a sample:"
                f" {len(self._rest)} of {self._frame} bytes"
            )
        self._direction = found

    def _find(self, direction: tuple[str, str] | None) -> Pair:
        if direction is None and len(self._directions) == 1:
            return self._directions[0]
        allowed = " or ".join(repr(tuple(pair)) for pair in self._directions)
        if direction is None:
            raise ValueError(f"direction: is required, and must be {allowed} in this session")
        for pair in self._directions:
            if [each.lower() for each in pair] == [str(each).lower() for each in direction]:
                return pair
        raise ValueError(f"direction: {direction!r} must be {allowed} in this session")

    def cut(self, data: bytes, *, end_ms: float, max_bytes: int) -> Iterator[Piece]:
        """Returns the chunks of some audio.

        Args:
            data: PCM of any size, or one Opus packet.
            end_ms: when its end was recorded. The times of earlier chunks are counted back from it.
            max_bytes: the largest chunk that the server accepts.

        Raises:
            ValueError: the data is empty, or not an Opus packet.
        """
        if not data:
            raise ValueError("data: is empty; call finish() to end the utterance")
        if self._format.encoding is Encoding.OPUS:
            return iter([self._packet(data, end_ms, min(max_bytes, MAX_OPUS_BYTES))])
        data = self._rest + data
        whole = len(data) - len(data) % self._frame
        self._rest = data[whole:]
        size = min(self._chunk_bytes, max(self._frame, max_bytes - max_bytes % self._frame))
        return self._pieces(data, whole, size, end_ms)

    def _pieces(self, data: bytes, whole: int, size: int, end_ms: float) -> Iterator[Piece]:
        for start in range(0, whole, size):
            end = min(start + size, whole)
            client_ms = end_ms - self._format.duration_ms(whole - end)
            yield Piece(data[start:end], self._stamp(client_ms))

    def _packet(self, data: bytes, end_ms: float, max_bytes: int) -> Piece:
        if len(data) > max_bytes:
            raise ValueError(f"data: an Opus packet has at most {max_bytes} bytes, not {len(data)}")
        try:
            opus_packet_ms(data)
        except ValueError as error:
            raise ValueError(f"data: {error}") from None
        return Piece(data, self._stamp(end_ms))

    def _stamp(self, client_ms: float) -> int:
        # Times never go back, although clocks are adjusted and files are sent faster than they were
        # spoken.
        self._last_ms = max(self._last_ms, int(client_ms))
        return self._last_ms

    def check_finish(self) -> None:
        """Raises ValueError if nothing was sent yet in a conversation."""
        if self._direction is None:
            raise ValueError("direction: nothing was sent yet, so there is no utterance to end")

    def stamp_after(self, now_ms: float) -> float:
        """Returns when a recording that is sent from now on begins: never before earlier audio."""
        return max(float(self._last_ms), now_ms)

    def stamp(self, now_ms: float) -> int:
        """Returns the time of a chunk without audio."""
        return self._stamp(now_ms)

    def take_rest(self) -> bytes:
        """Returns the bytes of an incomplete sample, and drops them."""
        rest, self._rest = self._rest, b""
        return rest
