"""Outcomes as listeners get them: packed once for each form, with exactly what it has."""

import json
import struct

import pytest

from lingua_scheduler.services.session_gateway.rooms.lane import Form, Gap
from lingua_scheduler.services.session_gateway.rooms.packing import (
    SIGN_OF_LIFE,
    Packed,
    Said,
    packed_item,
)
from lingua_scheduler.services.session_gateway.rooms.records import Entry
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, rooms_pb2
from tests.support.audio import FORMAT

ROOM = 1_000_000
TEXT, SPOKEN = Form.CAPTIONS, Form.CAPTIONS | Form.SPEECH
REPLAYED = Form.CAPTIONS | Form.REPLAYED


def said(*, spoken: str = "en", speech: bytes = b"ss", original: bytes = b"oo") -> Said:
    """An outcome in German."""
    result = rooms_pb2.RoomResult(
        spoken_language=spoken,
        texts=dispatcher_pb2.Texts(translated="hallo"),
        speech_format=FORMAT,
        original_format=FORMAT,
    )
    event = rooms_pb2.RoomEvent(result=result).SerializeToString()
    return Said(Entry(7, 5, event, speech, original), "de", ROOM)


def result_of(packed: Packed) -> rooms_pb2.RoomResult:
    (event,) = rooms_pb2.RoomMessage.FromString(packed.proto).events
    return event.result


def frames_of(data: bytes) -> list[tuple[int, bytes]]:
    """The first byte and the payload of each frame."""
    found = []
    while data:
        head, size, at = data[0], data[1], 2
        if size == 126:
            (size,), at = struct.unpack_from(">H", data, 2), 4
        elif size == 127:
            (size,), at = struct.unpack_from(">Q", data, 2), 10
        found.append((head, data[at : at + size]))
        data = data[at + size :]
    return found


def test_all_listeners_of_a_form_share_one_message() -> None:
    outcome = said()
    assert outcome.packed(TEXT) is outcome.packed(TEXT)
    assert outcome.packed(TEXT) is not outcome.packed(SPOKEN)
    # Without audio it makes no difference who wants it.
    silent = said(speech=b"", original=b"")
    assert silent.packed(TEXT) is silent.packed(SPOKEN | Form.ORIGINAL)


def test_a_result_is_at_its_place_in_the_lane() -> None:
    result = result_of(said().packed(TEXT))
    assert (result.room_index, result.previous_index, result.language) == (7, 5, "de")


def test_replayed_outcomes_have_no_audio_and_say_so() -> None:
    result = result_of(said().packed(REPLAYED))
    assert (result.replayed, result.speech, result.texts.translated) == (True, b"", "hallo")


def test_in_the_spoken_language_the_speech_is_the_speakers_own() -> None:
    own = said(spoken="de", speech=b"")
    assert result_of(own.packed(SPOKEN)).original_audio == b"oo"
    assert result_of(own.packed(TEXT)).original_audio == b""


def test_what_is_kept_for_late_comers_has_no_audio() -> None:
    outcome = said()
    kept = outcome.silent()
    assert result_of(kept.packed(SPOKEN)).speech == b""
    assert result_of(outcome.packed(SPOKEN)).speech == b"ss"


def test_a_message_that_would_be_too_large_has_no_audio() -> None:
    result = result_of(said(speech=bytes(ROOM + 1)).packed(SPOKEN))
    assert (result.speech, result.texts.translated) == (b"", "hallo")


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (b"", common_pb2.ERROR_REASON_DEADLINE_EXCEEDED),
        (b"\xff\xff", common_pb2.ERROR_REASON_INTERNAL),
    ],
)
def test_an_outcome_that_is_not_there_or_not_readable_is_missing(
    event: bytes, reason: common_pb2.ErrorReason.ValueType
) -> None:
    packed = Said(Entry(7, None, event, b"", b""), "de", ROOM).packed(SPOKEN)
    (told,) = rooms_pb2.RoomMessage.FromString(packed.proto).events
    assert (told.missing.room_index, told.missing.why.reason) == (7, reason)
    assert not told.missing.HasField("previous_index")


def test_a_gap_names_all_that_is_lost() -> None:
    (event,) = rooms_pb2.RoomMessage.FromString(packed_item(Gap("de", 3, 9), TEXT).proto).events
    assert (event.missing.room_index, event.missing.until_index) == (3, 9)


@pytest.mark.parametrize("size", [1, 125, 126, 65_535, 65_536, 200_000])
def test_audio_goes_in_binary_frames_before_the_text(size: int) -> None:
    packed = said(speech=b"s" * size).packed(SPOKEN | Form.ORIGINAL)
    speech, original, text = frames_of(packed.frames)
    assert speech == (0x82, struct.pack(">B3xQ", 3, 7) + b"s" * size)
    assert original == (0x82, struct.pack(">B3xQ", 4, 7) + b"oo")
    assert text[0] == 0x81
    (event,) = json.loads(text[1])["events"]
    assert event["result"]["roomIndex"] == "7"
    assert "speech" not in event["result"]
    # The message for gRPC still has it.
    assert len(result_of(packed).speech) == size


def test_a_sign_of_life_is_empty() -> None:
    assert (SIGN_OF_LIFE.proto, SIGN_OF_LIFE.frames) == (b"", b"\x81\x02{}")
