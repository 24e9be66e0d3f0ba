"""What receipts and listeners say of the lanes of a room: one language each, in room order."""

from collections.abc import Iterator

from tests.robustness.history import ClientHistory, History, RoomHistory
from tests.robustness.room_history import ListenerHistory
from tests.support.records import Record

NOT_KEPT, OUT_OF_ORDER, CHANGED = "NOT_KEPT", "OUT_OF_ORDER", "LISTENING_CHANGED"
OWN_REASONS = frozenset({NOT_KEPT, OUT_OF_ORDER, CHANGED, "NOT_READ"})
"""Reasons that concern one listener and not the utterance: another one may have its result."""


def listeners(history: History) -> Iterator[tuple[RoomHistory, ListenerHistory]]:
    """All listeners with their rooms."""
    for room in history.rooms:
        for listener in room.listeners:
            yield room, listener


def speakers(history: History) -> Iterator[tuple[RoomHistory, ClientHistory]]:
    """All speakers with their rooms."""
    for room in history.rooms:
        for speaker in room.speakers:
            yield room, speaker


def receipts(speaker: ClientHistory) -> list[Record]:
    """Its receipts, in the order in which they came."""
    return [each for each in speaker.events if each["what"] == "receipt"]


def languages(receipt: Record) -> set[str]:
    """The languages in which the utterance has an outcome."""
    return {*receipt["delivered"], *(language for language, *_ in receipt["missing"])}


def flushes(speaker: ClientHistory) -> set[int]:
    """Utterances without audio: they only end what nodes hold, in the languages that need it."""
    finalized = [each for each in speaker.events if each["what"] == "finalized"]
    return {each["index"] for each in finalized if not each["audio_ms"]}


def is_of_all(outcome: Record) -> bool:
    """Whether all listeners of the language must see this outcome."""
    return outcome["what"] == "said" or outcome["reason"] not in OWN_REASONS


def lane(room: RoomHistory, language: str) -> dict[int, Record]:
    """The outcomes of a language by room index, as some listener saw them."""
    found: dict[int, Record] = {}
    for listener in room.listeners:
        for each in listener.outcomes():
            if each["language"] == language and is_of_all(each):
                found.setdefault(each["index"], each)
    return found
