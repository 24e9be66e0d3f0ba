"""Each listener sees rising room indexes, nothing twice, no hole, and replays before the rest."""

from collections.abc import Iterator

from tests.robustness.history import Excuses, History
from tests.robustness.room_history import Leg, ListenerHistory, until_of
from tests.robustness.validate.rooms.lanes import OUT_OF_ORDER, listeners
from tests.robustness.validate.violation import Violation

ORDER = "rooms: each index once, in order"
HOLES = "rooms: no hole that is not named"
REPLAYS = "rooms: what was said before is replayed as such"


def room_indexes_rise(history: History) -> Iterator[Violation]:
    """No outcome comes after a later one, or again."""
    for _, listener in listeners(history):
        position = 0
        for each in listener.outcomes():
            if each["index"] < position:
                what = f"room index {each['index']} came when {position} was next"
                yield Violation(ORDER, listener.name, what)
                break
            position = until_of(each)
        count = sum(each["count"] for each in listener.of("repeated"))
        if count:
            yield Violation(ORDER, listener.name, f"{count} outcomes came again")


def chains_have_no_hole(history: History) -> Iterator[Violation]:
    """The previous index of each outcome is one that the listener has seen, or was not due."""
    for _, listener in listeners(history):
        told = [each for each in listener.of("problem") if each["reason"] == OUT_OF_ORDER]
        if told and not history.excuses.rooms:
            yield Violation(HOLES, listener.name, told[0]["message"])
        for what in _breaks(listener, history.excuses):
            yield Violation(HOLES, listener.name, what)
            break


def _breaks(listener: ListenerHistory, excuses: Excuses) -> Iterator[str]:
    legs, position = listener.legs(), 0
    last: dict[str, int] = {}
    for each in listener.outcomes():
        index, language, previous = each["index"], each["language"], each.get("previous")
        due = max(position, _due_from(legs, index, language))
        if previous is not None and due <= previous < index:
            yield f"room index {previous} of {language!r} did not come before {index}"
        is_back = language in last and (previous is None or previous < last[language])
        if "previous" in each and is_back and not excuses.rooms:
            yield f"{index} of {language!r} follows {previous}, not {last[language]}, which came"
        position = until_of(each)
        if "previous" in each:
            last[language] = index


def _due_from(legs: list[Leg], index: int, language: str) -> int:
    """The first index that was due in this language, of those that precede an outcome."""
    for leg in legs:
        if leg.language == language and leg.first <= index < leg.until:
            return leg.first
    # Replayed, or of a time in which the language was not certain.
    return index


def replays_come_first(history: History) -> Iterator[Violation]:
    """What is below the position at which the listener joined is replayed, without audio."""
    for _, listener in listeners(history):
        joined = listener.of("joined")
        # Who loses the gateway while outcomes are replayed gets the rest of them as live ones.
        again = joined[1]["t"] if len(joined) > 1 else float("inf")
        for each in listener.outcomes():
            is_before = bool(joined) and each["index"] < joined[0]["position"]
            if is_before and each["t"] >= again:
                continue
            if each["replayed"] and (each.get("speech") is not None or each.get("original")):
                what = f"room index {each['index']} was replayed with audio"
            elif each["replayed"] != is_before and until_of(each) == each["index"] + 1:
                how = "as replayed" if each["replayed"] else "as live"
                what = f"{each['index']} came {how} to one who joined at {joined[0]['position']}"
            else:
                continue
            yield Violation(REPLAYS, listener.name, what)
            break
