"""All members agree on what was said, by whom, and in which order."""

from collections.abc import Iterator

from tests.robustness.history import History, RoomHistory
from tests.robustness.validate.rooms.lanes import is_of_all, receipts, speakers
from tests.robustness.validate.violation import Violation
from tests.support.records import Record

SAME = "rooms: the same for all listeners"
WHO = "rooms: one speaker an index"
TURNS = "rooms: a speaker's order"


def listeners_agree(history: History) -> Iterator[Violation]:
    """Whoever listens to a language has the same outcome for the same room index."""
    for room in history.rooms:
        seen: dict[tuple[str, int], tuple[str, Record]] = {}
        for listener in room.listeners:
            for each in filter(is_of_all, listener.outcomes()):
                which = each["language"], each["index"]
                other, outcome = seen.setdefault(which, (listener.name, each))
                if what := _differ(outcome, each, lost=history.excuses.rooms):
                    told = f"{which[0]} {which[1]}: {what}, and for {other} otherwise"
                    yield Violation(SAME, listener.name, told)
                    break


def _differ(one: Record, other: Record, *, lost: bool) -> str:
    if one["what"] != other["what"]:
        return "" if lost else f"it is {other['what']}"
    for name in ("words", "kind", "session", "joined", "reason"):
        if one.get(name) != other.get(name):
            return f"{name} {other.get(name)}, not {one.get(name)}"
    return ""


def an_index_has_one_speaker(history: History) -> Iterator[Violation]:
    """In all languages, and by the receipts, an utterance is of the same speaker of the room."""
    for room in history.rooms:
        said_by: dict[int, str] = {}
        known = {speaker.session for speaker in room.speakers}
        for who, index, session in _claims(room):
            if session not in known:
                yield Violation(WHO, who, f"room index {index} is of nobody: {session!r}")
                break
            if said_by.setdefault(index, session) != session:
                what = f"room index {index} is of {session}, and of {said_by[index]}"
                yield Violation(WHO, who, what)
                break


def _claims(room: RoomHistory) -> Iterator[tuple[str, int, str]]:
    """Who says that a room index is of a session."""
    for speaker in room.speakers:
        for each in receipts(speaker):
            yield speaker.name, each["room_index"], speaker.session
    for listener in room.listeners:
        for each in listener.outcomes():
            # What Redis had to give up by itself has no speaker.
            if each.get("session"):
                yield listener.name, each["index"], each["session"]


def speakers_keep_their_order(history: History) -> Iterator[Violation]:
    """Utterances of a speaker have rising room indexes, in the order in which they were said."""
    for _, speaker in speakers(history):
        last = (-1, -1)
        for each in receipts(speaker):
            now = (each["index"], each["room_index"])
            if not (now[0] > last[0] and now[1] > last[1]):
                what = f"utterance {now[0]} has room index {now[1]}, after {last[0]} with {last[1]}"
                yield Violation(TURNS, speaker.name, what)
                break
            last = now
