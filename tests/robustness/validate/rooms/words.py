"""In each language, the words of a speaker come once, in order, as long as somebody listens.

As for conversations (validate/words.py), but a language begins and ends with those who listen to
it. While consecutive utterances have it, no word between their texts may be lost.
"""

from collections.abc import Iterator
from itertools import groupby

from tests.robustness.history import ClientHistory, Excuses, History
from tests.robustness.validate.rooms.lanes import flushes, lane, languages, receipts
from tests.robustness.validate.violation import Violation
from tests.support.records import Record

RULE = "rooms: no word is lost or repeated"


def no_word_is_lost_in_rooms(history: History) -> Iterator[Violation]:
    """Of each speaker, in each language."""
    for room in history.rooms:
        wanted = {
            each
            for speaker in room.speakers
            for one in receipts(speaker)
            for each in languages(one)
        }
        for language in sorted(wanted):
            heard = lane(room, language)
            for speaker in room.speakers:
                for what in _wrong(speaker, language, heard, history.excuses):
                    yield Violation(RULE, speaker.name, f"in {language!r}: {what}")
                    break


def _wrong(
    speaker: ClientHistory, language: str, heard: dict[int, Record], excuses: Excuses
) -> Iterator[str]:
    order = {str(word): at for at, (_, word) in enumerate(speaker.said)}
    last = -1
    for each in _texts(heard, speaker):
        for word in each["words"]:
            at = order.get(word, -1)
            if at < 0:
                yield f"room index {each['index']} has {word!r}, which was never said"
            elif at <= last:
                yield f"room index {each['index']} has {word}, which came before"
            last = max(last, at)
    for run, is_first, is_last in _runs(speaker, language):
        end = len(speaker.said) if is_last and not speaker.lost else None
        yield from _gaps(run, heard, order, 0 if is_first else None, end, excuses)


def _texts(heard: dict[int, Record], speaker: ClientHistory) -> list[Record]:
    found = [heard[index] for index in sorted(heard)]
    return [
        each
        for each in found
        if each["what"] == "said"
        and each["session"] == speaker.session
        and each["kind"] == "TRANSLATED"
    ]


def _runs(speaker: ClientHistory, language: str) -> Iterator[tuple[list[int], bool, bool]]:
    """Room indexes of consecutive utterances that have the language; whether it is first, last.

    One that only ends what nodes hold belongs to a run if it has the language, and ends none.
    """
    nothing = flushes(speaker)
    found = [
        each
        for each in receipts(speaker)
        if each["index"] not in nothing or language in languages(each)
    ]
    runs = [(has, list(run)) for has, run in groupby(found, lambda one: language in languages(one))]
    for at, (has, run) in enumerate(runs):
        if has:
            indexes = [each["room_index"] for each in run]
            # A run that only ends what was held has no words of its own.
            is_last = at == len(runs) - 1 and any(each["index"] not in nothing for each in run)
            yield indexes, at == 0 and run[0]["index"] == 0, is_last


def _gaps(
    run: list[int],
    heard: dict[int, Record],
    order: dict[str, int],
    start: int | None,
    end: int | None,
    excuses: Excuses,
) -> Iterator[str]:
    """Words between the texts of a run that did not come."""
    at, is_excused = start, False
    joined = {each for index in run if index in heard for each in heard[index].get("joined", ())}
    for index in run:
        outcome = heard.get(index)
        if outcome is None:
            # Nobody heard it: another rule says whether somebody should have.
            at = None
        elif outcome["what"] == "missing":
            is_excused = True
        elif outcome["kind"] == "TRANSLATED" and outcome["words"]:
            places = [order[word] for word in outcome["words"] if word in order]
            first = min(places, default=0)
            if at is not None and first > at and not is_excused:
                yield f"{first - at} words before those of room index {index} did not come"
            at, is_excused = max(places, default=0) + 1, False
        elif outcome["kind"] == "HELD" and index not in joined:
            is_excused = is_excused or excuses.held
    if end is not None and at is not None and at < end and not is_excused:
        yield f"the last {end - at} words did not come"
