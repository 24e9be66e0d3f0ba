"""The texts of a turn's finished segments, so that none is recognised twice."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_TURNS = 256
# As long as HeldAudio keeps the audio.
KEEP_SECONDS = 300.0

# Tenant, session, source and target language.
TurnKey = tuple[str, str, str, str]


@dataclass
class _Texts:
    until: float = 0.0
    by_audio: dict[bytes, str] = field(default_factory=dict)


class Recalled:
    """Texts by turn and hash of the audio. They are kept no longer than the audio.

    Args:
        max_turns: the least recently used turn is forgotten first.
        keep_seconds: time to keep a turn after its last use.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        *,
        max_turns: int = MAX_TURNS,
        keep_seconds: float = KEEP_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_turns = max_turns
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._lock = threading.Lock()
        # Ordered by last use.
        self._turns: dict[TurnKey, _Texts] = {}

    def get(self, turn: TurnKey, audio: bytes) -> str | None:
        """The text of this audio, if it is known."""
        with self._lock:
            self._expire()
            texts = self._turns.get(turn)
            return texts.by_audio.get(audio) if texts else None

    def put(self, turn: TurnKey, audio: bytes, text: str) -> None:
        """Remember it until the turn ends."""
        with self._lock:
            texts = self._turns.pop(turn, None) or _Texts()
            texts.by_audio[audio] = text
            texts.until = self._clock() + self._keep_seconds
            self._turns[turn] = texts
            self._expire()
            while len(self._turns) > self._max_turns:
                del self._turns[next(iter(self._turns))]

    def forget(self, turn: TurnKey) -> None:
        """Forget a turn that has ended."""
        with self._lock:
            self._turns.pop(turn, None)

    def __len__(self) -> int:
        return len(self._turns)

    def _expire(self) -> None:
        now = self._clock()
        while self._turns:
            oldest = next(iter(self._turns))
            if self._turns[oldest].until > now:
                return
            del self._turns[oldest]
