"""Small parts of sessions: arguments, cutting, Opus, files, the inbox."""

import asyncio
import itertools
import wave
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.sdk import (
    AudioFormat,
    Channels,
    Encoding,
    Job,
    Missing,
    Pair,
    PartialText,
    PauseDetection,
    Reason,
    Result,
    ResultKind,
    Session,
    Stage,
    Texts,
    Timing,
    Tls,
    opus_packets,
    wav_format,
)
from lingua_scheduler.sdk.audio import opus_packet_ms
from lingua_scheduler.sdk.session.chunks import Cutter
from lingua_scheduler.sdk.session.events import Accepted, Event, Finalized, Retrying
from lingua_scheduler.sdk.session.inbox import UNREAD_EVENTS, Inbox
from lingua_scheduler.sdk.session.protocol.wire import limits_from, progress_from, result_from
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2

BY_VOICE = {"pause_detection": PauseDetection.VOICE_ACTIVITY}
GOOD: dict[str, Any] = {"addresses": "a:1", "src": "en", "tgt": "es"}
EN_ES = Pair("en", "es")


# ---- arguments ----


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"addresses": ""}, "addresses: must name at least one server"),
        ({"src": None, "tgt": None}, "src: pass src and tgt for one direction, or a and b"),
        ({"a": "en"}, "src: pass src and tgt for one direction, or a and b"),
        ({"tgt": None}, "tgt: None must be a language code"),
        ({"src": "english!"}, "src: 'english!' must be a language code"),
        ({"src": None, "tgt": None, "a": "en"}, "b: None must be a language code"),
        ({"src": None, "tgt": None, "a": "en", "b": "EN"}, "b: 'EN' must differ from a"),
        ({"preferred_node_id": "a b"}, "preferred_node_id: 'a b' must be"),
        ({"strict": True}, "strict: requires a preferred_node_id"),
        ({"tenant": "a/b"}, "tenant: 'a/b' must be"),
        ({"partial_interval_ms": -1}, "partial_interval_ms: -1 must be a number from 0"),
        ({"features": {str(n): "" for n in range(33)}}, "features: has 33; at most 32"),
        ({"features": {"a": "x" * 257}}, r"features\['a'\]: key and value must be text"),
        (
            {"audio_format": AudioFormat(channels=2), **BY_VOICE},
            "audio_format: voice activity detection needs PCM of one channel at 8000",
        ),
        (
            {"audio_format": AudioFormat(sample_rate_hz=44_100), **BY_VOICE},
            "audio_format: voice activity",
        ),
        (
            {"audio_format": AudioFormat(Encoding.OPUS, 48_000), **BY_VOICE},
            "audio_format: voice activity",
        ),
        ({"reconnect_seconds": -1}, "reconnect_seconds: -1 must be"),
        ({"max_unacknowledged_bytes": 1}, "max_unacknowledged_bytes: 1 must be"),
        ({"chunk_ms": 0}, "chunk_ms: 0 must be a number from 1"),
    ],
)
def test_a_wrong_argument_is_named_with_what_is_allowed(
    wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        Session(**{**GOOD, **wrong})


async def test_shared_channels_have_their_own_tls() -> None:
    with pytest.raises(ValueError, match=r"^tls: must be given to the shared channels"):
        Session(**GOOD, channels=Channels(), tls=Tls())


# ---- cutting ----


def cutter(channels: int = 1, chunk_ms: int = 100, *pairs: Pair) -> Cutter:
    audio = AudioFormat(channels=channels)
    return Cutter(audio_format=audio, directions=pairs or (EN_ES,), chunk_ms=chunk_ms)


@given(
    audio=st.binary(min_size=1, max_size=3000),
    cuts=st.lists(st.integers(1, 2999), max_size=8),
    channels=st.sampled_from([1, 2]),
    max_bytes=st.integers(4, 500),
)
def test_wherever_an_app_cuts_the_chunks_are_whole_and_nothing_is_lost(
    audio: bytes, cuts: list[int], channels: int, max_bytes: int
) -> None:
    made = cutter(channels, 10)
    edges = [0, *sorted({cut for cut in cuts if cut < len(audio)}), len(audio)]
    chunks = []
    for number, (start, end) in enumerate(itertools.pairwise(edges)):
        chunks += made.cut(audio[start:end], end_ms=1000 + number, max_bytes=max_bytes)
    frame = 2 * channels
    assert all(len(piece.data) % frame == 0 and piece.data for piece in chunks)
    assert all(len(piece.data) <= min(max_bytes, 320 * channels) for piece in chunks)
    assert b"".join(piece.data for piece in chunks) + made.take_rest() == audio
    assert [piece.client_ms for piece in chunks] == sorted(piece.client_ms for piece in chunks)


def test_chunks_before_the_last_are_dated_back_by_their_audio() -> None:
    pieces = list(cutter().cut(bytes(8000), end_ms=5000, max_bytes=65536))
    assert [(len(piece.data), piece.client_ms) for piece in pieces] == [
        (3200, 4850),
        (3200, 4950),
        (1600, 5000),
    ]


def test_half_a_sample_does_not_change_sides() -> None:
    made = cutter(1, 100, EN_ES, Pair("es", "en"))
    made.set_direction(("en", "es"))
    list(made.cut(b"123", end_ms=0, max_bytes=100))
    with pytest.raises(ValueError, match=r"^data: the audio before the change of direction ends"):
        made.set_direction(("es", "en"))
    made.set_direction(("en", "es"))
    assert [piece.data for piece in made.cut(b"4", end_ms=0, max_bytes=100)] == [b"34"]


def test_a_direction_is_one_of_the_session() -> None:
    fixed = cutter()
    fixed.set_direction(None)
    fixed.set_direction(("EN", "es"))
    assert fixed.direction is None
    with pytest.raises(ValueError, match=r"^direction: \('es', 'en'\) must be \('en', 'es'\)"):
        fixed.set_direction(("es", "en"))


def test_empty_audio_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^data: is empty"):
        cutter().cut(b"", end_ms=0, max_bytes=100)


# ---- Opus ----


def test_the_packets_of_a_job_are_split_by_their_lengths() -> None:
    audio = b"\x00\x03abc\x00\x00\x00\x01d"
    assert opus_packets(audio) == [b"abc", b"", b"d"]
    job = Job(job_id="j", pair=EN_ES, audio=audio, audio_format=AudioFormat(Encoding.OPUS))
    assert job.packets == [b"abc", b"", b"d"]
    with pytest.raises(ValueError, match=r"^packets: only Opus"):
        _ = Job(job_id="j", pair=EN_ES, audio=b"12").packets


@pytest.mark.parametrize("audio", [b"\x00", b"\x00\x03ab", b"\x00\x01a\x01"])
def test_a_broken_frame_is_refused(audio: bytes) -> None:
    with pytest.raises(
        ValueError, match=r"^audio: the Opus packet at byte \d+ extends beyond the end"
    ):
        opus_packets(audio)


@pytest.mark.parametrize(
    ("packet", "ms"),
    [
        (bytes([0b11111_000]) + b"x", 20),  # CELT, one frame
        (bytes([0b10000_000]), 2.5),  # a frame without data
        (bytes([0b00011_000]) + b"x", 60),  # SILK
        (bytes([0b01101_001]) + b"xx", 40),  # hybrid, two of one size
        (bytes([0b11111_010, 1]) + b"xyy", 40),  # two, the first has one byte
        (bytes([0b11111_010, 252, 1]) + bytes(256), 40),  # a length in two bytes
        (bytes([0b11111_011, 3]) + b"xyz", 60),  # three of one size
        (bytes([0b11111_011, 0x40 | 2, 2]) + b"xy" + bytes(2), 40),  # with padding
        (bytes([0b11111_011, 0x80 | 2, 1]) + b"xyy", 40),  # of different sizes
        (bytes([0b11111_011, 6]), 120),
    ],
)
def test_an_opus_packet_lasts_as_long_as_its_head_says(packet: bytes, ms: float) -> None:
    assert opus_packet_ms(packet) == ms


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        bytes([0b11111_000]) + bytes(1276),
        bytes([0b11111_001]) + b"x",
        bytes([0b11111_010]),
        bytes([0b11111_010, 252]),
        bytes([0b11111_010, 9]) + b"x",
        bytes([0b11111_011]),
        bytes([0b11111_011, 0]),
        bytes([0b11111_011, 2]) + b"x",
        bytes([0b11111_011, 0x41]),
        bytes([0b11111_011, 0x41, 9]),
        bytes([0b11111_011, 0x82, 9]) + b"x",
        bytes([0b11111_011, 7]),
    ],
)
def test_what_cannot_be_an_opus_packet_is_refused(packet: bytes) -> None:
    with pytest.raises(ValueError, match="Opus packet"):
        opus_packet_ms(packet)


# ---- files ----


def test_the_format_of_a_file_is_that_of_its_header(tmp_path: Path) -> None:
    for name, width in (("a.wav", 2), ("b.wav", 1)):
        with wave.open(str(tmp_path / name), "wb") as file:
            file.setnchannels(2)
            file.setsampwidth(width)
            file.setframerate(44_100)
            file.writeframes(bytes(8))
    assert wav_format(tmp_path / "a.wav") == AudioFormat(Encoding.PCM_S16LE, 44_100, 2)
    with pytest.raises(ValueError, match=r"b\.wav has 8-bit samples"):
        wav_format(tmp_path / "b.wav")


# ---- what waits to be read ----


def result(index: int, speech: bytes = b"") -> Result:
    kind = ResultKind.TRANSLATED
    return Result(index=index, src="en", tgt="es", kind=kind, speech=speech)


def text(index: int, source: str) -> PartialText:
    return PartialText(index=index, src="en", tgt="es", texts=Texts(source=source))


async def test_what_came_before_the_first_reader_is_kept_for_it() -> None:
    inbox = Inbox()
    for index in range(1000):
        inbox.put(result(index))
    inbox.end()
    assert [each.index async for each in inbox.results.read()] == list(range(1000))
    assert len([each async for each in inbox.events.read()]) == 1000


async def test_a_lane_that_nobody_reads_does_not_grow_while_the_other_is_read() -> None:
    inbox = Inbox()
    inbox.results.is_read = True
    for index in range(1000):
        inbox.put(result(index, bytes(1000)))
    assert inbox.events.dropped == 1000 - UNREAD_EVENTS
    inbox.put(result(1000, bytes(9 * 1024 * 1024)))
    assert inbox.events.dropped == 1001
    inbox.end()
    assert len([each async for each in inbox.results.read()]) == 1001


async def test_partial_texts_that_wait_are_replaced_and_keep_their_place() -> None:
    inbox = Inbox()
    heard: list[Event] = [text(0, "a"), text(1, "b"), text(0, "c"), text(1, "d")]
    for event in heard:
        inbox.put(event)
    events = inbox.events.read()
    assert await anext(events) == text(0, "c")
    inbox.put(text(0, "e"))
    assert [await anext(events), await anext(events)] == [text(1, "d"), text(0, "e")]


async def test_two_readers_of_one_lane_share_what_comes() -> None:
    inbox = Inbox()
    heard: list[int] = []

    async def read() -> None:
        heard.extend([each.index async for each in inbox.results.read()])

    readers = [asyncio.create_task(read()) for _ in range(2)]
    for index in range(10):
        inbox.put(result(index))
        await asyncio.sleep(0)
    inbox.put(Missing(index=10, src="en", tgt="es", reason="JOB_TIMEOUT"))
    inbox.end()
    await asyncio.gather(*readers)
    assert sorted(heard) == list(range(11))


async def test_results_that_are_asked_for_too_late_are_not_passed_over_in_silence() -> None:
    session = Session(**GOOD)
    session.events()
    for index in range(UNREAD_EVENTS + 2):
        session._inbox.put(result(index))
    with pytest.raises(RuntimeError, match="too late: the first 2 went to events"):
        session.results()


# ---- from the wire ----


def test_a_result_is_what_the_server_says() -> None:
    message = session_pb2.Result(
        utterance_index=3,
        direction=common_pb2.LanguagePair(src="en", tgt="es"),
        kind=dispatcher_pb2.JobResult.KIND_TRANSLATED,
        texts=dispatcher_pb2.Texts(source="a", repaired="b", translated="c"),
        speech=b"12",
        speech_format=common_pb2.AudioFormat(encoding=1, sample_rate_hz=24_000, channels=1),
        joined_utterances=[1, 2],
        job_id="j",
        node_id="n",
        attempts=2,
        timings=session_pb2.ResultTimings(
            audio_ms=1,
            hangover_ms=2,
            dispatch_ms=3,
            node_ms=4,
            deliver_ms=5,
            stages=[dispatcher_pb2.StageTiming(stage=1, started_ms=6, took_ms=7)],
        ),
    )
    made = result_from(message)
    assert (made.index, made.src, made.tgt, made.kind) == (3, "en", "es", ResultKind.TRANSLATED)
    assert made.texts == Texts(source="a", repaired="b", translated="c")
    assert (made.speech, made.speech_format) == (b"12", AudioFormat(sample_rate_hz=24_000))
    assert (made.joined, made.job_id, made.node_id, made.attempts) == ((1, 2), "j", "n", 2)
    timings = made.timings
    assert (timings.audio_ms, timings.hangover_ms, timings.dispatch_ms) == (1, 2, 3)
    assert (timings.node_ms, timings.deliver_ms) == (4, 5)
    assert timings.stages == (Timing(stage=Stage.ASR, started_ms=6, took_ms=7),)


def test_what_a_newer_server_knows_does_no_harm() -> None:
    newer = session_pb2.Result(kind=9, speech_format=common_pb2.AudioFormat(encoding=9))  # type: ignore[arg-type]
    made = result_from(newer)
    assert (made.kind, made.speech_format) == (ResultKind.UNSPECIFIED, None)
    assert progress_from(session_pb2.UtteranceEvent()) is None
    assert limits_from(session_pb2.SessionLimits()).max_chunk_bytes == 65536


def test_progress_is_what_the_server_says() -> None:
    def told(**what: Any) -> object:
        return progress_from(session_pb2.UtteranceEvent(utterance_index=4, **what))

    why = common_pb2.Error(reason=common_pb2.ERROR_REASON_JOB_TIMEOUT, message="late")
    assert told(finalized=session_pb2.UtteranceFinalized(reason=2, audio_ms=900)) == Finalized(
        index=4, src="", tgt="", reason=Reason.TIMEOUT, audio_ms=900
    )
    assert told(
        accepted=session_pb2.UtteranceAccepted(job_id="j", node_id="n", attempt=1)
    ) == Accepted(index=4, src="", tgt="", job_id="j", node_id="n", attempt=1)
    assert told(retrying=session_pb2.UtteranceRetrying(attempt=2, why=why)) == Retrying(
        index=4, src="", tgt="", attempt=2, reason="JOB_TIMEOUT", message="late"
    )
