"""The timers of one session as its core knows them."""

from dataclasses import dataclass

# What the timer is for, and the utterance where it is one's own.
AlarmKey = tuple[str, int]

PAUSE: AlarmKey = ("pause", 0)
HANGOVER: AlarmKey = ("hangover", 0)
FRAGMENT: AlarmKey = ("fragment", 0)
RECORD: AlarmKey = ("record", 0)
DEADLINE: AlarmKey = ("deadline", 0)
IDLE: AlarmKey = ("idle", 0)
GOODBYE: AlarmKey = ("goodbye", 0)


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call the core with this key at that time; a timer of the same key is moved."""

    key: AlarmKey
    at_ms: float


@dataclass(frozen=True, slots=True)
class ClearTimer:
    """Forget this timer."""

    key: AlarmKey


class Alarms:
    """Which timers are set, and for when.

    One that comes although it is not set, or before its time, is of an old generation: `take` says
    no to it.
    """

    def __init__(self) -> None:
        self._due: dict[AlarmKey, float] = {}
        self.changes: list[SetTimer | ClearTimer] = []
        """What the shell has not been told yet."""

    def set(self, key: AlarmKey, at_ms: float) -> None:
        """Sets a timer, or moves it."""
        if self._due.get(key) != at_ms:
            self._due[key] = at_ms
            self.changes.append(SetTimer(key, at_ms))

    def set_by(self, key: AlarmKey, at_ms: float) -> None:
        """Sets a timer unless it is set for that time or earlier: who is early looks again."""
        if self._due.get(key, at_ms + 1) > at_ms:
            self.set(key, at_ms)

    def clear(self, key: AlarmKey) -> None:
        """Forgets a timer, if it is set."""
        if self._due.pop(key, None) is not None:
            self.changes.append(ClearTimer(key))

    def clear_all(self) -> None:
        """Forgets all of them."""
        for key in list(self._due):
            self.clear(key)

    def take(self, now: float, key: AlarmKey) -> bool:
        """A timer has come; whether it counts. It is not set any more then."""
        if self._due.get(key, now + 1) > now:
            return False
        del self._due[key]
        return True

    def __contains__(self, key: AlarmKey) -> bool:
        """Whether it is set."""
        return key in self._due

    def __len__(self) -> int:
        """How many are set."""
        return len(self._due)
