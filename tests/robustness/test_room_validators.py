"""The validators of rooms find what they are for: hand-made records, each with one thing wrong."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.robustness.history import (
    ClientHistory,
    Excuses,
    History,
    NodeHistory,
    RoomHistory,
    Struck,
)
from tests.robustness.room_history import WEBSOCKET, Leg, ListenerHistory
from tests.robustness.validate import validate
from tests.support.records import Record


def joined(position: int, language: str, *wants: str) -> Record:
    return {
        "t": 1.0,
        "what": "joined",
        "position": position,
        "language": language,
        "wants": ["captions", *wants],
    }


def said(index: int, language: str, *words: int, session: str = "s", **more: Any) -> Record:
    """A result that came at second 10 + index."""
    return {
        "t": 10.0 + index,
        "what": "said",
        "index": index,
        "language": language,
        "spoken": "en",
        "session": session,
        "kind": "TRANSLATED",
        "words": [str(word) for word in words],
        "text": " ".join((language, *map(str, words))) if words else "",
        "joined": [],
        "replayed": False,
        "speech": None,
        "original": None,
        "age_ms": 5,
        **more,
    }


def held(index: int, language: str, **more: Any) -> Record:
    return said(index, language, kind="HELD", **more)


def missing(index: int, language: str, reason: str, **more: Any) -> Record:
    return {
        "t": 10.0 + index,
        "what": "missing",
        "index": index,
        "until": index + 1,
        "language": language,
        "session": "s",
        "reason": reason,
        "message": "",
        "replayed": False,
        **more,
    }


def event(what: str, t: float = 12.0, **more: Any) -> Record:
    return {"t": t, "what": what, **more}


def receipt(index: int, room_index: int, *delivered: str) -> Record:
    """A receipt that came at second 10 + room index."""
    return {
        "t": 10.0 + room_index,
        "what": "receipt",
        "index": index,
        "room_index": room_index,
        "delivered": list(delivered),
        "missing": [],
    }


def finalized(index: int, audio_ms: int) -> Record:
    return event("finalized", 5.0, index=index, reason="IS_FINAL", audio_ms=audio_ms)


def assigned(index: int, tgt: str, *words: int, who: str = "w", **more: Any) -> Record:
    return {
        "t": 6.0,
        "what": "assigned",
        "session": who,
        "index": index,
        "attempt": 1,
        "words": [str(word) for word in words],
        "included": [],
        "tgt": tgt,
        "job": f"{who}-{index}-{tgt}",
        "speech": tgt == "es",
        **more,
    }


CLOSED = event("closed", 60.0)


def good() -> History:
    """One speaker with four utterances, of which two are a sentence; another one with one.

    One listens to Spanish speech, one over a WebSocket, one changes to German before room index 3,
    and one comes late.
    """
    speaker = ClientHistory(name="speaker-0", session="s")
    speaker.said = [(float(word), word) for word in range(2, 18, 2)]
    speaker.events = [
        *(finalized(index, 200) for index in range(4)),
        receipt(0, 0, "es"),
        receipt(1, 1, "es"),
        receipt(2, 2, "es"),
        receipt(3, 4, "de", "es"),
    ]
    other = ClientHistory(name="speaker-1", session="s1", said=[(20.0, 2), (20.1, 4)])
    other.events = [finalized(0, 200), receipt(0, 3, "de", "es")]
    others = said(3, "es", 2, 4, session="s1")

    spoken = ListenerHistory(name="listener-0")
    spoken.events = [
        joined(0, "es", "speech", "original"),
        said(0, "es", 2, 4, speech="es 2 4", original=["2", "4"]),
        held(1, "es", original=["6", "8"]),
        said(2, "es", 6, 8, 10, 12, joined=[1], speech="es 6 8 10 12", original=["10", "12"]),
        {**others, "speech": "es 2 4", "original": ["2", "4"]},
        said(4, "es", 14, 16, speech="es 14 16", original=["14", "16"]),
        CLOSED,
    ]
    web = ListenerHistory(name="listener-1", kind=WEBSOCKET)
    web.events = [
        joined(0, "es"),
        said(0, "es", 2, 4, previous=None),
        held(1, "es", previous=0),
        event("reconnecting"),
        joined(2, "es"),
        said(2, "es", 6, 8, 10, 12, joined=[1], previous=1),
        {**others, "previous": 2},
        said(4, "es", 14, 16, previous=3),
        CLOSED,
    ]
    changing = ListenerHistory(name="listener-2", kind=WEBSOCKET)
    changing.events = [
        joined(0, "es"),
        said(0, "es", 2, 4, previous=None),
        held(1, "es", previous=0),
        event("changing", language="de"),
        event("changed", language="de", position=3),
        said(2, "es", 6, 8, 10, 12, joined=[1], previous=1),
        said(3, "de", 2, 4, session="s1", previous=None),
        said(4, "de", 14, 16, previous=3),
        CLOSED,
    ]
    late = ListenerHistory(name="listener-3", left=30.0)
    late.events = [
        joined(2, "es"),
        said(0, "es", 2, 4, replayed=True),
        held(1, "es", replayed=True),
        said(2, "es", 6, 8, 10, 12, joined=[1]),
    ]
    node = NodeHistory(node="node-0", slots=2)
    node.records = [
        assigned(0, "es", 2, 4),
        assigned(1, "es", 6, 8),
        assigned(2, "es", 10, 12),
        assigned(3, "es", 14, 16),
        assigned(3, "de", 14, 16),
        assigned(0, "es", 2, 4, who="w1"),
        assigned(0, "de", 2, 4, who="w1"),
    ]
    room = RoomHistory(
        name="room-0",
        speakers=[speaker, other],
        who={"speaker-0": "w", "speaker-1": "w1"},
        listeners=[spoken, web, changing, late],
    )
    struck = [Struck("kill", "node-1", 10.5, 11.5)]
    # Several listeners have the same records here, and one of them is spoiled.
    made = History(name="kill", seed=1, rooms=[room], nodes=[node], struck=struck)
    return copy.deepcopy(made)


def rules(history: History) -> set[str]:
    """The rules that are broken."""
    return {violation.rule for violation in validate(history)}


def test_a_good_history_has_nothing_wrong() -> None:
    assert validate(good()) == []


SPOKEN, WEB, CHANGING, LATE = range(4)


def heard(history: History, at: int) -> list[Record]:
    return history.rooms[0].listeners[at].events


def at(history: History, who: int, index: int) -> Record:
    """The outcome of a room index, as one listener had it."""
    return next(each for each in heard(history, who) if each.get("index") == index)


def receipts(history: History, at: int = 0) -> list[Record]:
    events = history.rooms[0].speakers[at].events
    return [each for each in events if each["what"] == "receipt"]


def rephrase(record: Record, *words: str) -> None:
    """Gives an outcome other words, in text and speech as well."""
    text = " ".join((record["language"], *words))
    record.update(words=list(words), text=text, speech=record["speech"] and text)


def _twice(history: History) -> None:
    heard(history, SPOKEN).insert(3, at(history, SPOKEN, 1))


def _repeated(history: History) -> None:
    heard(history, SPOKEN).append(event("repeated", count=1))


def _out_of_order(history: History) -> None:
    events = heard(history, SPOKEN)
    events[4], events[5] = events[5], events[4]


def _hole(history: History) -> None:
    heard(history, WEB).remove(at(history, WEB, 3))


def _hole_after_a_change(history: History) -> None:
    heard(history, CHANGING).remove(at(history, CHANGING, 3))


def _old_language_forgotten(history: History) -> None:
    heard(history, CHANGING).remove(at(history, CHANGING, 2))


def _skipped(history: History) -> None:
    heard(history, SPOKEN).append(event("problem", reason="OUT_OF_ORDER", message="skipped 1"))


def _chain_forgets(history: History) -> None:
    at(history, WEB, 4)["previous"] = 1


def _live_replay(history: History) -> None:
    at(history, LATE, 0)["replayed"] = False


def _replayed_live(history: History) -> None:
    at(history, LATE, 2)["replayed"] = True


def _replayed_speech(history: History) -> None:
    at(history, LATE, 0)["speech"] = "es 2 4"


def _other_text(history: History) -> None:
    rephrase(at(history, LATE, 2), "10", "12")


def _missing_for_one(history: History) -> None:
    events = heard(history, WEB)
    gone = missing(4, "es", "JOB_FAILED", previous=3)
    events[events.index(at(history, WEB, 4))] = gone


def _other_speaker(history: History) -> None:
    at(history, CHANGING, 3)["session"] = "s"


def _speaker_of_no_room(history: History) -> None:
    for each in (SPOKEN, WEB):
        at(history, each, 4)["session"] = "x"


def _index_twice(history: History) -> None:
    receipts(history)[2]["room_index"] = 3


def _speaker_out_of_order(history: History) -> None:
    one, two = receipts(history)[:2]
    one["room_index"], two["room_index"] = two["room_index"], one["room_index"]


def _listener_lost(history: History) -> None:
    history.rooms[0].listeners[LATE].lost = "ROOM_NOT_FOUND: gone"


def _speaker_lost(history: History) -> None:
    history.rooms[0].speakers[1].lost = "SESSION_NOT_FOUND: gone"


def _room_lost(history: History) -> None:
    history.rooms[0].lost = "no gateway"


def _not_closed(history: History) -> None:
    heard(history, SPOKEN).pop()


def _receipt_gone(history: History) -> None:
    history.rooms[0].speakers[0].events.remove(receipts(history)[1])


def _last_receipt_gone(history: History) -> None:
    history.rooms[0].speakers[0].events.remove(receipts(history)[3])


def _silent_after_the_fault(history: History) -> None:
    history.rooms[0].speakers[0].said.append((95.0, 18))
    history.struck = [Struck("kill", "node-1", 10.5, 90.0)]


def _missing_for_all(history: History) -> None:
    for each in (SPOKEN, WEB):
        events = heard(history, each)
        events[events.index(at(history, each, 4))] = missing(4, "es", "JOB_FAILED")
    receipts(history)[3]["delivered"].remove("es")
    receipts(history)[3]["missing"].append(["es", "JOB_FAILED", ""])


def _never_recorded(history: History) -> None:
    events = history.rooms[0].speakers[0].events
    events.append(event("missing", index=4, reason="DEADLINE_EXCEEDED", message=""))


def _not_kept(history: History) -> None:
    events = heard(history, SPOKEN)
    gap = missing(0, "es", "NOT_KEPT", until=3, session="")
    events[1:4] = [gap]


def _changed_without_a_break(history: History) -> None:
    events = heard(history, CHANGING)
    gap = missing(2, "es", "LISTENING_CHANGED", session="")
    events[events.index(at(history, CHANGING, 2))] = gap


def _delivered_to_nobody(history: History) -> None:
    heard(history, SPOKEN).remove(at(history, SPOKEN, 4))


def _missing_and_not_named(history: History) -> None:
    _missing_for_all(history)
    heard(history, SPOKEN).remove(at(history, SPOKEN, 4))


def _not_translated(history: History) -> None:
    receipts(history)[3]["delivered"].remove("de")
    heard(history, CHANGING).remove(at(history, CHANGING, 4))
    del history.nodes[0].records[4]


def _word_lost(history: History) -> None:
    for each in (SPOKEN, WEB):
        rephrase(at(history, each, 4), "16")


def _last_word_lost(history: History) -> None:
    for each in (SPOKEN, WEB):
        rephrase(at(history, each, 4), "14")


def _word_twice(history: History) -> None:
    for each in (SPOKEN, WEB):
        rephrase(at(history, each, 4), "12", "14", "16")


def _never_said(history: History) -> None:
    for each in (SPOKEN, WEB):
        rephrase(at(history, each, 4), "14", "late")


def _held_and_forgotten(history: History) -> None:
    for each in (SPOKEN, WEB, CHANGING, LATE):
        at(history, each, 2)["joined"] = []
        rephrase(at(history, each, 2), "10", "12")


def _job_a_listener(history: History) -> None:
    again = dict(history.nodes[0].records[0], job="another")
    history.nodes.append(NodeHistory("node-1", 2, [again]))


def _unwanted_language(history: History) -> None:
    receipts(history)[0]["delivered"].append("fr")
    history.nodes[0].records.append(assigned(0, "fr", 2, 4))


def _job_without_outcome(history: History) -> None:
    history.nodes[0].records.append(assigned(0, "de", 2, 4))


def _outcome_without_job(history: History) -> None:
    del history.nodes[0].records[0]


def _text_of_another(history: History) -> None:
    at(history, WEB, 4)["text"] = "de 14 16"


def _speech_of_another(history: History) -> None:
    at(history, SPOKEN, 4)["speech"] = "de 14 16"


def _other_original(history: History) -> None:
    at(history, SPOKEN, 2)["original"] = ["6", "8", "10", "12"]


def _mute(history: History) -> None:
    at(history, SPOKEN, 4)["speech"] = None


def _no_original(history: History) -> None:
    at(history, SPOKEN, 4)["original"] = None


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (_twice, "each index once, in order"),
        (_repeated, "each index once, in order"),
        (_out_of_order, "each index once, in order"),
        (_hole, "no hole that is not named"),
        (_hole_after_a_change, "no hole that is not named"),
        (_skipped, "no hole that is not named"),
        (_chain_forgets, "no hole that is not named"),
        (_old_language_forgotten, "what is delivered is heard"),
        (_live_replay, "what was said before is replayed as such"),
        (_replayed_live, "what was said before is replayed as such"),
        (_replayed_speech, "what was said before is replayed as such"),
        (_other_text, "the same for all listeners"),
        (_missing_for_one, "the same for all listeners"),
        (_other_speaker, "one speaker an index"),
        (_speaker_of_no_room, "one speaker an index"),
        (_index_twice, "one speaker an index"),
        (_speaker_out_of_order, "a speaker's order"),
        (_listener_lost, "no member is lost"),
        (_speaker_lost, "no member is lost"),
        (_room_lost, "no member is lost"),
        (_not_closed, "no member is lost"),
        (_receipt_gone, "each utterance has a receipt"),
        (_last_receipt_gone, "each utterance has a receipt"),
        (_silent_after_the_fault, "each utterance has a receipt"),
        (_missing_for_all, "missing only where allowed"),
        (_never_recorded, "missing only where allowed"),
        (_not_kept, "missing only where allowed"),
        (_not_kept, "what is delivered is heard"),
        (_changed_without_a_break, "missing only where allowed"),
        (_delivered_to_nobody, "what is delivered is heard"),
        (_missing_for_one, "what is delivered is heard"),
        (_missing_and_not_named, "what is delivered is heard"),
        (_not_translated, "what is wanted is translated"),
        (_word_lost, "no word is lost or repeated"),
        (_last_word_lost, "no word is lost or repeated"),
        (_word_twice, "no word is lost or repeated"),
        (_never_said, "no word is lost or repeated"),
        (_held_and_forgotten, "no word is lost or repeated"),
        (_job_a_listener, "one job a language"),
        (_unwanted_language, "one job a language"),
        (_job_without_outcome, "one job a language"),
        (_outcome_without_job, "one job a language"),
        (_text_of_another, "text and speech are of the language"),
        (_speech_of_another, "text and speech are of the language"),
        (_other_original, "original audio is what was said"),
        (_mute, "audio comes if it is wanted"),
        (_no_original, "audio comes if it is wanted"),
    ],
)
def test_a_broken_promise_is_found(spoil: Callable[[History], None], rule: str) -> None:
    history = good()
    spoil(history)
    assert f"rooms: {rule}" in rules(history)


@pytest.mark.parametrize(
    ("spoil", "excuses"),
    [
        (_listener_lost, Excuses(sessions=frozenset({"ROOM_NOT_FOUND"}))),
        (_speaker_lost, Excuses(sessions=frozenset({"SESSION_NOT_FOUND"}))),
        (_missing_for_all, Excuses(missing=frozenset({"JOB_FAILED"}))),
        (_missing_for_one, Excuses(missing=frozenset({"JOB_FAILED"}), rooms=True)),
        (_not_kept, Excuses(rooms=True)),
        (_not_translated, Excuses(rooms=True)),
        (_chain_forgets, Excuses(rooms=True)),
        (_held_and_forgotten, Excuses(held=True)),
    ],
)
def test_what_the_design_allows_is_no_violation(
    spoil: Callable[[History], None], excuses: Excuses
) -> None:
    history = good()
    spoil(history)
    history.excuses = excuses
    assert validate(history) == []


def test_a_hostile_node_does_not_tell_which_jobs_it_had() -> None:
    history = good()
    index = history.nodes[0].records[0]["index"]
    _outcome_without_job(history)
    for speaker in history.rooms[0].speakers:
        speaker.events.append(event("accepted", index=index, node="hostile-0"))
    assert validate(history) == []


def test_who_loses_the_gateway_during_a_change_may_miss_what_was_said_meanwhile() -> None:
    history = good()
    events = heard(history, CHANGING)
    events[4:6] = [
        event("reconnecting"),
        joined(3, "de"),
        missing(2, "es", "LISTENING_CHANGED", session=""),
    ]
    assert validate(history) == []


def test_a_listener_that_was_away_for_too_long_is_a_member_no_more() -> None:
    history = good()
    _not_translated(history)
    events = heard(history, CHANGING)
    events[-1:-1] = [event("reconnecting", 2.0), {**joined(5, "de"), "t": 40.0}]
    assert validate(history) == []


def test_who_leaves_need_not_hear_what_comes_later() -> None:
    history = good()
    listener = history.rooms[0].listeners[SPOKEN]
    listener.events, listener.left = listener.events[:4], 30.0
    assert validate(history) == []


def test_an_utterance_that_only_ends_a_sentence_concerns_the_languages_that_need_it() -> None:
    history = good()
    speaker = history.rooms[0].speakers[0]
    speaker.events += [finalized(4, 0), receipt(4, 5, "de")]
    for each in (WEB, CHANGING):
        heard(history, each).remove(CLOSED)
    nothing = said(5, "de", kind="NO_SPEECH", previous=4)
    heard(history, CHANGING).append(nothing)
    for each in (WEB, CHANGING):
        heard(history, each).append(CLOSED)
    history.nodes[0].records.append(assigned(4, "de"))
    assert validate(history) == []


def test_legs_are_the_languages_that_a_listener_was_due() -> None:
    history = good()
    forever = float("inf")
    legs = [each.legs() for each in history.rooms[0].listeners]
    assert legs[WEB] == [Leg("es", 0, forever)]
    assert legs[CHANGING] == [Leg("es", 0, 3), Leg("de", 3, forever)]
    assert legs[LATE] == [Leg("es", 2, forever)]
    events = heard(history, CHANGING)
    # Below 3, Spanish was still due when the gateway was lost.
    events[5:5] = [event("reconnecting"), joined(7, "de")]
    assert history.rooms[0].listeners[CHANGING].legs() == [
        Leg("es", 0, 2),
        Leg("", 2, 7),
        Leg("de", 7, forever),
    ]
