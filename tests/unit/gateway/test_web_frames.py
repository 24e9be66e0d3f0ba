"""Frames of the web entry from and to messages."""

import contextlib
import json
import random
import struct

import pytest
from google.protobuf.json_format import MessageToJson
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.runtime.errors import InvalidMessageError
from lingua_scheduler.services.session_gateway.web.frames import (
    directions_of,
    read_binary,
    read_text,
    written,
)
from lingua_scheduler.v1 import common_pb2, session_pb2
from tests.robustness.fuzz.messages import random_message

FIXED = directions_of(session_pb2.NewSession(direction=common_pb2.LanguagePair(src="en", tgt="es")))
BOTH = directions_of(session_pb2.NewSession(conversation=session_pb2.LanguageSet(a="en", b="es")))
EN_ES = common_pb2.LanguagePair(src="en", tgt="es")
ES_EN = common_pb2.LanguagePair(src="es", tgt="en")


def header(kind: int = 1, flags: int = 0, zero: int = 0, seq: int = 0, client_ms: int = 0) -> bytes:
    return struct.pack(">BBHQQ", kind, flags, zero, seq, client_ms)


@given(
    seq=st.integers(0, 2**64 - 1),
    client_ms=st.integers(0, 2**64 - 1),
    final=st.booleans(),
    way=st.integers(0, 2),
    data=st.binary(max_size=40),
)
def test_a_binary_frame_becomes_the_chunk_that_it_describes(
    seq: int, client_ms: int, final: bool, way: int, data: bytes
) -> None:
    frame = header(flags=final | way << 1, seq=seq, client_ms=client_ms) + data
    assert read_binary(frame, BOTH) == session_pb2.ClientMessage(
        audio=session_pb2.AudioChunk(
            seq=seq,
            data=data,
            is_final=final,
            direction=(None, EN_ES, ES_EN)[way],
            client_ms=client_ms,
        )
    )


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (b"", "has 0 bytes; its header alone has 20"),
        (header()[:-1], "has 19 bytes"),
        (header(kind=0), "has the type 0"),
        (header(kind=2), "clients send only 1"),
        (header(flags=8), "no meaning"),
        (header(zero=1), "no meaning"),
        (header(flags=3 << 1), "the direction 3; this session has [0]"),
        (header(flags=1 << 1), "the direction 1; this session has [0]"),
    ],
)
def test_a_binary_frame_that_says_something_unknown_is_refused(frame: bytes, problem: str) -> None:
    with pytest.raises(InvalidMessageError) as refused:
        read_binary(frame, FIXED)
    assert problem in refused.value.message


@given(st.binary(max_size=64))
def test_any_bytes_are_a_chunk_or_are_refused(frame: bytes) -> None:
    try:
        message = read_binary(frame, BOTH)
    except InvalidMessageError:
        return
    assert message.audio.data == frame[20:]


def test_a_text_frame_is_the_json_form_of_a_message() -> None:
    frame = """{
      "resultsSeen": 3,
      "open": {"new": {
        "direction": {"src": "en", "tgt": "es"},
        "audioFormat": {"encoding": "AUDIO_ENCODING_PCM_S16LE", "sampleRateHz": 16000,
                        "channels": 1}}}}"""
    message = read_text(frame)
    assert message.results_seen == 3
    assert message.open.new.direction == EN_ES
    assert read_text(MessageToJson(message)) == message


def many(number: int) -> str:
    """An object with so many fields."""
    return json.dumps({f"k{at}": "" for at in range(number)})


def test_a_sign_of_life_has_no_content() -> None:
    assert read_text("{}") == session_pb2.ClientMessage()


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        ("", "not a ClientMessage in JSON"),
        ("null", "not a ClientMessage in JSON"),
        ("[]", "not a ClientMessage in JSON"),
        ('{"open": 1}', "not a ClientMessage in JSON"),
        ('{"open": "\\ud800"}', "not a ClientMessage in JSON: not Unicode"),
        ('{"shout": true}', '"shout"'),
        ('{"open": {"new": {"langs": 1}}}', '"langs"'),
        ('{"resultsSeen": -1}', "resultsSeen"),
        ('{"resultsSeen": 1, "resultsSeen": 2}', "resultsSeen"),
        ('{"resultsSeen": 1e400}', "not a ClientMessage in JSON"),
        ('{"resultsSeen": ' + "9" * 5000 + "}", "not a ClientMessage in JSON"),
        ('{"open": {}, "close": {}}', "not a ClientMessage in JSON"),
        ('{"audio": {"seq": 1}}', "audio: audio must be sent in binary frames"),
        ('{"audioChunks": {"chunks": [{}]}}', "audio_chunks: audio must be sent in binary frames"),
        ('{"resultsSeen": 4000000000}', "results_seen"),
        ('{"audioChunks": {"chunks": [' + "{}," * 40_000 + "{}]}}", "more than 128 fields"),
        (
            f'{{"open": {{"new": {{"options": {{"features": {many(10_000)}}}}}}}}}',
            "more than 128 fields",
        ),
        (f'{{"open": {{"new": {{"options": {{"features": {many(33)}}}}}}}}}', "features"),
        ("[" * 60_000, "has to be an object"),
        ('{"open":' * 12_000, "recursion depth"),
    ],
)
def test_a_text_frame_that_is_no_message_is_refused_and_told_why(frame: str, problem: str) -> None:
    with pytest.raises(InvalidMessageError) as refused:
        read_text(frame)
    assert problem in refused.value.message


KEYS = st.sampled_from(["open", "new", "resume", "audio", "close", "resultsSeen", "x"])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(ANY_JSON)
def test_any_json_is_a_message_or_is_refused(value: object) -> None:
    with contextlib.suppress(InvalidMessageError):
        read_text(json.dumps(value))


@given(st.integers(0, 2**32))
def test_a_message_in_json_is_read_as_it_is_or_refused(seed: int) -> None:
    message = random_message(session_pb2.ClientMessage.DESCRIPTOR, random.Random(seed))
    with contextlib.suppress(InvalidMessageError):
        assert read_text(MessageToJson(message)) == message


@given(st.integers(0, 2**32), st.data())
def test_changed_json_of_a_session_is_a_message_or_is_refused(
    seed: int, data: st.DataObject
) -> None:
    message = random_message(session_pb2.ClientMessage.DESCRIPTOR, random.Random(seed))
    whole = MessageToJson(message)
    at = data.draw(st.integers(0, len(whole)))
    cut = data.draw(st.integers(0, 8))
    with contextlib.suppress(InvalidMessageError):
        read_text(whole[:at] + data.draw(st.text(max_size=4)) + whole[at + cut :])


def test_speech_goes_first_in_frames_of_its_own() -> None:
    message = session_pb2.ServerMessage(
        events=[
            session_pb2.ServerEvent(result=session_pb2.Result(utterance_index=258, speech=b"ab")),
            session_pb2.ServerEvent(audio_ack=session_pb2.AudioAck(next_seq=2**40)),
            session_pb2.ServerEvent(result=session_pb2.Result(utterance_index=259)),
        ]
    )
    speech, text = written(message)
    assert speech == [b"\2\0\0\0\0\0\1\2ab"]
    assert json.loads(text) == {
        "events": [
            {"result": {"utteranceIndex": 258}},
            {"audioAck": {"nextSeq": str(2**40)}},
            {"result": {"utteranceIndex": 259}},
        ]
    }


def test_a_message_without_events_is_an_empty_object() -> None:
    assert written(session_pb2.ServerMessage()) == ([], "{}")
