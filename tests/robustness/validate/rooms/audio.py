"""Texts and speech fit, original audio is what was said, and who wants audio gets it."""

from collections.abc import Iterator

from tests.robustness.history import ClientHistory, History, RoomHistory
from tests.robustness.room_history import ListenerHistory
from tests.robustness.validate.rooms.lanes import listeners, receipts
from tests.robustness.validate.violation import Violation
from tests.support.records import Record

FITS = "rooms: text and speech are of the language"
ORIGINAL = "rooms: original audio is what was said"
COMES = "rooms: audio comes if it is wanted"
# Audio is kept for longer (room_speech_ms), so that listeners who reconnect get it.
KEPT_MS = 20_000


def speech_fits_its_text(history: History) -> Iterator[Violation]:
    """A listener reads and hears the words in its own language, as the node said them."""
    for _, listener in listeners(history):
        for each in listener.of("said"):
            expected = " ".join((each["language"], *each["words"]))
            is_own = each["language"] == each["spoken"]
            told = {"text": each["text"], "speech": None if is_own else each["speech"]}
            wrong = [kind for kind, text in told.items() if text and text != expected]
            if wrong:
                what = (
                    f"room index {each['index']} is {expected!r}, its {wrong[0]} {told[wrong[0]]!r}"
                )
                yield Violation(FITS, listener.name, what)
                break


def original_audio_is_what_was_said(history: History) -> Iterator[Violation]:
    """The words of the utterance itself, as nodes got them."""
    words = {
        (each["session"], each["index"]): each["words"]
        for node in history.nodes
        for each in node.of("assigned")
        if not each.get("included")
    }
    for room, listener in listeners(history):
        said = _utterances(room)
        for each in _with(listener, "original"):
            which = said.get(each["index"])
            if which in words and each["original"] != words[which]:
                what = f"room index {each['index']} is {words[which]}, heard as {each['original']}"
                yield Violation(ORIGINAL, listener.name, what)
                break


def wanted_audio_comes(history: History) -> Iterator[Violation]:
    """With each live result, unless it comes so late that audio is no longer kept.

    What the speaker itself said is with its gateway until the room has it: if that gateway is lost
    meanwhile, so is the audio.
    """
    if history.excuses.rooms:
        return
    for room, listener in listeners(history):
        lost_by = {speaker.session: _lost_gateway(speaker) for speaker in room.speakers}
        wants = listener.of("joined")[0]["wants"] if listener.of("joined") else ()
        for each in listener.of("said"):
            if each["replayed"] or each["age_ms"] > KEPT_MS or not each["words"]:
                continue
            is_own = each["language"] == each["spoken"]
            # In their own language, people hear the speaker.
            speech = each["original"] if is_own else each["speech"]
            came = {"speech": speech, "original": each["original"]}
            if any(t <= each["t"] for t in lost_by.get(each["session"], ())):
                came = {} if is_own else {"speech": speech}
            without = [kind for kind in wants if not came.get(kind, True)]
            if without:
                what = f"room index {each['index']} came without {' and '.join(without)}"
                yield Violation(COMES, listener.name, what)
                break


def _lost_gateway(speaker: ClientHistory) -> list[float]:
    """When a speaker lost its gateway."""
    return [each["t"] for each in speaker.events if each["what"] == "reconnecting"]


def _with(listener: ListenerHistory, kind: str) -> list[Record]:
    return [each for each in listener.of("said") if each[kind]]


def _utterances(room: RoomHistory) -> dict[int, tuple[str, int]]:
    """By room index: the speaker's name at nodes, and the index of the utterance."""
    return {
        each["room_index"]: (room.who[speaker.name], each["index"])
        for speaker in room.speakers
        for each in receipts(speaker)
    }
