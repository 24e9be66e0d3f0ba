"""No utterance is lost: who was there has it, in the language of their choice, or knows why not."""

from collections.abc import Iterator

from tests.robustness.history import ClientHistory, Excuses, History, RoomHistory
from tests.robustness.room_history import Leg, ListenerHistory, until_of
from tests.robustness.validate.rooms.lanes import (
    CHANGED,
    OWN_REASONS,
    flushes,
    languages,
    listeners,
    receipts,
    speakers,
)
from tests.robustness.validate.violation import Violation
from tests.support.records import Record

RECEIPTS = "rooms: each utterance has a receipt"
MISSING = "rooms: missing only where allowed"
DELIVERED = "rooms: what is delivered is heard"
WANTED = "rooms: what is wanted is translated"
ENDS = "rooms: no member is lost"
# A listener that was away for so long may be a member no more: room_resume_ms is 8 s here.
LAPSED_S = 6.0
OVERDUE = "DEADLINE_EXCEEDED"


def members_reach_the_end(history: History) -> Iterator[Violation]:
    """No room, speaker or listener was lost, and who stayed has seen the room's end."""
    for room in history.rooms:
        if room.lost:
            yield Violation(ENDS, room.name, room.lost)
        members = [(each.name, each.lost) for each in room.speakers]
        members += [(each.name, each.lost) for each in room.listeners]
        for name, lost in members:
            if lost and lost.split(":")[0] not in history.excuses.sessions:
                yield Violation(ENDS, name, lost)
        for listener in room.listeners:
            stayed = not (listener.left or listener.lost or room.lost)
            if stayed and not listener.of("closed"):
                yield Violation(ENDS, listener.name, "it was not told that the room was closed")


def speakers_get_receipts(history: History) -> Iterator[Violation]:
    """Each utterance of a speaker has one outcome, in order, and some come after the fault."""
    for _, speaker in speakers(history):
        came = [each for each in speaker.events if each["what"] in ("receipt", "missing")]
        indexes = [each["index"] for each in came]
        cut = [each["index"] for each in speaker.events if each["what"] == "finalized"]
        if indexes != list(range(len(indexes))):
            yield Violation(RECEIPTS, speaker.name, f"they are of {indexes[:20]}")
        elif not speaker.lost and set(cut) - set(indexes):
            left = sorted(set(cut) - set(indexes))
            yield Violation(RECEIPTS, speaker.name, f"there is none of {left[:5]}")
        spoke_on = any(t > history.healed for t, _ in speaker.said)
        if spoke_on and not speaker.lost and not any(each["t"] > history.healed for each in came):
            what = "it spoke after the fault was over, and no receipt came"
            yield Violation(RECEIPTS, speaker.name, what)


def missing_in_rooms_only_where_allowed(history: History) -> Iterator[Violation]:
    """For a reason that a fault excuses, in the eyes of speakers and of listeners."""
    for _, speaker in speakers(history):
        found = [(each["index"], "", each["reason"]) for each in _of(speaker, "missing")]
        found += [
            (each["room_index"], *told[:2])
            for each in receipts(speaker)
            for told in each["missing"]
        ]
        for index, language, reason in found:
            if reason not in history.excuses.missing:
                what = f"{index} {language}: {reason}"
                yield Violation(MISSING, speaker.name, what)
                break
    for _, listener in listeners(history):
        unsure = [leg for leg in listener.legs() if not leg.language]
        for each in listener.of("missing"):
            if not _is_excused(each, unsure, history.excuses):
                what = f"{each['index']} {each['language']}: {each['reason']}"
                yield Violation(MISSING, listener.name, what)
                break


def _is_excused(missing: Record, unsure: list[Leg], excuses: Excuses) -> bool:
    if missing["reason"] == CHANGED:
        first, until = missing["index"], until_of(missing)
        return any(leg.first <= first and until <= leg.until for leg in unsure)
    if missing["reason"] in OWN_REASONS:
        return excuses.rooms
    return missing["reason"] in excuses.missing or is_overdue(missing, excuses)


def is_overdue(missing: Record, excuses: Excuses) -> bool:
    """Whether the room may have given up an utterance that its speaker had not given up."""
    return excuses.overdue and missing["reason"] == OVERDUE


def delivered_is_heard(history: History) -> Iterator[Violation]:
    """If the speaker was told that a language has its result, its listeners have it."""
    for room, listener in listeners(history):
        if listener.lost or history.excuses.rooms:
            continue
        said = {each["index"] for each in listener.of("said")}
        said |= {
            each["index"] for each in listener.of("missing") if is_overdue(each, history.excuses)
        }
        told = [(each["index"], until_of(each)) for each in listener.of("missing")]
        for leg, _, receipt in _due(room, listener):
            index = receipt["room_index"]
            is_missing = any(first <= index < until for first, until in told)
            if leg.language in receipt["delivered"] and index not in said:
                how = "is missing" if is_missing else "did not come"
                what = f"room index {index} {how} in {leg.language!r}"
                yield Violation(DELIVERED, listener.name, what)
                break
            if leg.language in languages(receipt) and not (index in said or is_missing):
                what = f"room index {index} in {leg.language!r} is missing, and nobody said so"
                yield Violation(DELIVERED, listener.name, what)
                break


def _due(
    room: RoomHistory, listener: ListenerHistory
) -> Iterator[tuple[Leg, ClientHistory, Record]]:
    """The receipts of all utterances that it should have heard."""
    legs = [leg for leg in listener.legs() if leg.language]
    heard_until = max(map(until_of, listener.outcomes()), default=0)
    for speaker in room.speakers:
        for receipt in receipts(speaker):
            index = receipt["room_index"]
            if listener.left and index >= heard_until:
                continue
            for leg in legs:
                if leg.first <= index < leg.until:
                    yield leg, speaker, receipt


def wanted_is_translated(history: History) -> Iterator[Violation]:
    """An utterance has an outcome in each language that somebody in the room listened to."""
    if history.excuses.rooms:
        return
    for room, listener in listeners(history):
        legs = [leg for leg in listener.legs() if leg.language]
        for speaker in room.speakers:
            for leg, receipt in _wanted(legs, speaker, listener):
                if leg.language not in languages(receipt):
                    what = (
                        f"room index {receipt['room_index']} of {speaker.name} has no outcome in"
                        f" {leg.language!r}, only in {sorted(languages(receipt))}"
                    )
                    yield Violation(WANTED, listener.name, what)
                    break


def _wanted(
    legs: list[Leg], speaker: ClientHistory, listener: ListenerHistory
) -> Iterator[tuple[Leg, Record]]:
    """Receipts of what was said while a listener was certainly there, and in which language."""
    nothing = flushes(speaker)
    cut_at = {each["index"]: each["t"] for each in _of(speaker, "finalized")}
    long_away = [(since, until) for since, until in listener.away() if until - since > LAPSED_S]
    for receipt in receipts(speaker):
        came, cut = receipt["t"], cut_at.get(receipt["index"], 0.0)
        is_gone = bool(listener.left) and came >= listener.left
        has_lapsed = any(since < came and until > cut for since, until in long_away)
        if receipt["index"] in nothing or is_gone or has_lapsed:
            continue
        for leg in legs:
            if leg.first <= receipt["room_index"] < leg.until:
                yield leg, receipt


def _of(speaker: ClientHistory, what: str) -> list[Record]:
    return [each for each in speaker.events if each["what"] == what]
