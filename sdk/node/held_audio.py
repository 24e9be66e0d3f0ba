"""Keeps audio from one job of a turn to the next.

A turn belongs to one session and one direction: if b answers during a's turn, that is a turn of its
own. A repeated attempt at an utterance replaces what the first one kept.

The last job of a turn may still be running when the next turn begins, even on the same node. So a
job joins only utterances that are earlier than itself, and none that a job in between has joined. A
turn may also continue on another node, if this one could not be reached for a while: then the first
job of the next turn says so (`begins_turn`), and what is left of the old turn is not joined.

If the node that held the beginning of a turn is lost, the next job of the turn includes that audio
(`included`), and it is kept with that job. If a job needs audio that this node no longer has
(`held`), the node reports that, and gets it in the same way.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lingua_scheduler.sdk.audio import AudioFormat
from lingua_scheduler.sdk.errors import HeldAudioMissingError, HeldTooLargeError
from lingua_scheduler.sdk.node.job import Job

# As long as the scheduler prefers the node that holds the audio for the session's next job.
KEEP_SECONDS = 300.0
# About half an hour of 16 kHz PCM, over all sessions.
MAX_BYTES = 64 * 1024 * 1024
# About four minutes of 16 kHz PCM; no sentence is longer.
MAX_TURN_BYTES = 8 * 1024 * 1024

_Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class _Part:
    audio: bytes
    # Earlier utterances that are part of the audio.
    included: tuple[int, ...] = ()


@dataclass(slots=True)
class _Kept:
    audio_format: AudioFormat
    parts: dict[int, _Part] = field(default_factory=dict)
    until: float = 0.0

    def size(self) -> int:
        return sum(len(part.audio) for part in self.parts.values())


class Turn:
    """A job's audio, preceded by what was kept.

    Attributes:
        audio: all audio of the turn, in the order of its utterances.
        joined: the indexes of the earlier utterances, for Translated(joined=...).
        kept: whether `keep` was called.
    """

    def __init__(self, held: "HeldAudio", job: Job, audio: bytes, joined: tuple[int, ...]) -> None:
        self.audio = audio
        self.joined = joined
        self.kept = False
        self._held = held
        self._job = job

    def keep(self) -> None:
        """Keeps all audio of the turn for the next job. Raises HeldTooLargeError."""
        self._held.keep(self._job)
        self.kept = True


class HeldAudio:
    """Keeps and joins audio, within limits. Threads can share one; processes cannot.

        held = HeldAudio()

        @node.handler
        async def translate(job):
            with held.turn(job) as turn:
                text, finished = recognise(turn.audio)
                if finished:
                    yield Translated(source=text, joined=turn.joined)
                else:
                    turn.keep()
                    yield Held()

    Args:
        keep_seconds: how long audio is kept after its last use.
        max_bytes: the limit over all turns. The least recently used turn is dropped first.
        max_turn_bytes: the limit of one turn.
        clock: a monotonic clock, in seconds.

    Attributes:
        forgotten: how many turns were dropped for lack of time or room, for the owner's metrics.
    """

    def __init__(
        self,
        *,
        keep_seconds: float = KEEP_SECONDS,
        max_bytes: int = MAX_BYTES,
        max_turn_bytes: int = MAX_TURN_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if keep_seconds <= 0:
            raise ValueError(f"keep_seconds: {keep_seconds} must be over 0")
        if not 0 < max_turn_bytes <= max_bytes:
            raise ValueError(
                f"max_turn_bytes: {max_turn_bytes} must be from 1 to max_bytes ({max_bytes})"
            )
        self._keep_seconds = keep_seconds
        self._max_bytes = max_bytes
        self._max_turn_bytes = max_turn_bytes
        self._clock = clock
        self._lock = threading.Lock()
        # The most recently used turn is last.
        self._turns: dict[_Key, _Kept] = {}
        self._bytes = 0
        # Utterances whose `turn` blocks are open, and how many blocks each has.
        self._open: defaultdict[_Key, Counter[int]] = defaultdict(Counter)
        self.forgotten = 0

    @contextmanager
    def turn(self, job: Job) -> Iterator[Turn]:
        """Yields the job's turn. It is dropped at the end of the block unless `keep` was called.

        If the block is left by an exception, nothing changes, so a repeated job finds everything.
        """
        key, index = _key(job), job.utterance_index
        with self._lock:
            self._open[key][index] += 1
        try:
            turn = self.join(job)
            yield turn
            if not turn.kept:
                self.forget(job)
        finally:
            with self._lock:
                self._open[key] -= Counter([index])
                if not self._open[key]:
                    del self._open[key]

    def join(self, job: Job) -> Turn:
        """Returns what was kept, followed by the job's own audio. Drops nothing.

        Kept audio of another format cannot be joined, and is left out.

        Raises:
            HeldAudioMissingError: audio that the job needs was dropped. A handler should not catch
                it: the scheduler then sends the job again, to any node, with all of its audio.
        """
        key, index = _key(job), job.utterance_index
        with self._lock:
            self._expire()
            kept = self._turns.get(key)
            # Audio before the last earlier job that is still running is joined by that job.
            first = max((at for at in self._open.get(key, ()) if at < index), default=0)
            parts = {}
            if kept is not None and kept.audio_format == job.audio_format and not job.begins_turn:
                parts = {at: part for at, part in kept.parts.items() if first <= at < index}
        ordered = [parts[at].audio for at in sorted(parts)]
        joined = {*job.included, *parts, *(at for part in parts.values() for at in part.included)}
        if missing := set(job.held) - joined:
            raise HeldAudioMissingError(missing)
        return Turn(self, job, b"".join([*ordered, job.audio]), tuple(sorted(joined)))

    def keep(self, job: Job) -> None:
        """Adds the job's audio to its turn.

        Raises:
            HeldTooLargeError: the turn would exceed `max_turn_bytes`; nothing has changed.
        """
        with self._lock:
            self._expire()
            key = _key(job)
            kept = self._turns.get(key)
            if kept is None or kept.audio_format != job.audio_format:
                kept = _Kept(job.audio_format)
            if job.begins_turn:
                self._drop_before(key, kept, job.utterance_index)
            before = kept.parts.get(job.utterance_index)
            size = kept.size() - (len(before.audio) if before else 0) + len(job.audio)
            if size > self._max_turn_bytes:
                raise HeldTooLargeError(
                    f"the turn of {job.session_id} would have {size} bytes;"
                    f" at most {self._max_turn_bytes} are allowed"
                )
            self._remove(key)
            kept.parts[job.utterance_index] = _Part(bytes(job.audio), job.included)
            kept.until = self._clock() + self._keep_seconds
            self._turns[key] = kept
            self._bytes += size
            while self._bytes > self._max_bytes:
                self._remove(next(iter(self._turns)))
                self.forgotten += 1

    def forget(self, job: Job) -> None:
        """Drops what was kept for the job's turn, but no later turn of its session."""
        key = _key(job)
        with self._lock:
            kept = self._turns.get(key)
            if kept is None:
                return
            for at in [at for at in kept.parts if at <= job.utterance_index]:
                self._bytes -= len(kept.parts.pop(at).audio)
            if not kept.parts:
                self._remove(key)

    def _drop_before(self, key: _Key, kept: _Kept, index: int) -> None:
        """Drops a turn that continued elsewhere, unless a running job has joined it."""
        if any(at < index for at in self._open.get(key, ())):
            return
        for at in [at for at in kept.parts if at < index]:
            self._bytes -= len(kept.parts.pop(at).audio)

    @property
    def size(self) -> int:
        """The number of bytes that are kept."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._turns)

    def _expire(self) -> None:
        now = self._clock()
        while self._turns:
            oldest = next(iter(self._turns))
            if self._turns[oldest].until > now:
                return
            self._remove(oldest)
            self.forgotten += 1

    def _remove(self, key: _Key) -> None:
        kept = self._turns.pop(key, None)
        if kept is not None:
            self._bytes -= kept.size()


def _key(job: Job) -> _Key:
    return job.tenant, job.session_id, job.pair.src.lower(), job.pair.tgt.lower()
