"""Checks of audio: whole samples for PCM, the packet rules of RFC 6716 for Opus."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lingua_scheduler.services.runtime.contract.audio import (
    MAX_CHUNK_BYTES,
    UnusableAudioError,
    as_job_audio,
    duration_ms,
    job_audio_ms,
    size_in_job,
)
from lingua_scheduler.v1 import common_pb2

OPUS = common_pb2.AudioFormat(
    encoding=common_pb2.AUDIO_ENCODING_OPUS, sample_rate_hz=48000, channels=1
)

# RFC 6716, table 2: the length of a frame, by configuration.
FRAME_MS = (
    *(10, 20, 40, 60) * 3,  # SILK, narrow to wide band
    *(10, 20) * 2,  # hybrid
    *(2.5, 5, 10, 20) * 4,  # CELT
)
CONFIG_20_MS = 1


def pcm(rate: int = 16000, channels: int = 1) -> common_pb2.AudioFormat:
    return common_pb2.AudioFormat(
        encoding=common_pb2.AUDIO_ENCODING_PCM_S16LE, sample_rate_hz=rate, channels=channels
    )


def toc(config: int, code: int, *, stereo: bool = False) -> int:
    return config << 3 | stereo << 2 | code


def packet(code: int, rest: bytes = b"", *, config: int = CONFIG_20_MS) -> bytes:
    return bytes([toc(config, code)]) + rest


def length(size: int) -> bytes:
    """The size of a frame as a packet encodes it."""
    if size < 252:
        return bytes([size])
    first = 252 + (size & 3)
    return bytes([first, (size - first) // 4])


def lasts(data: bytes) -> float:
    return duration_ms(OPUS, data)


# ---- PCM ----


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000])
def test_pcm_lasts_as_long_as_its_samples_say(rate: int, channels: int) -> None:
    second = bytes(rate * 2 * channels)

    assert duration_ms(pcm(rate, channels), second) == 1000
    assert duration_ms(pcm(rate, channels), second[: 2 * channels]) == pytest.approx(1000 / rate)


@pytest.mark.parametrize(("channels", "size"), [(1, 1), (1, 3), (2, 2), (2, 5), (2, 6), (2, 7)])
def test_pcm_that_is_no_whole_number_of_samples_is_refused(channels: int, size: int) -> None:
    with pytest.raises(UnusableAudioError, match=rf"^{size} bytes are not whole samples"):
        duration_ms(pcm(16000, channels), bytes(size))


@pytest.mark.parametrize("audio_format", [pcm(), pcm(48000, 2), OPUS])
def test_an_empty_chunk_lasts_no_time_and_takes_no_room(
    audio_format: common_pb2.AudioFormat,
) -> None:
    assert duration_ms(audio_format, b"") == 0
    assert size_in_job(audio_format, b"") == 0


# ---- Opus ----


@pytest.mark.parametrize("stereo", [False, True])
@pytest.mark.parametrize("config", range(32))
def test_an_opus_packet_lasts_as_its_configuration_and_code_say(config: int, stereo: bool) -> None:
    frame = FRAME_MS[config]

    assert lasts(bytes([toc(config, 0, stereo=stereo)]) + b"one") == frame
    if 2 * frame <= 120:
        assert lasts(bytes([toc(config, 1, stereo=stereo)]) + b"onetwo") == 2 * frame
        assert lasts(bytes([toc(config, 2, stereo=stereo), 3]) + b"onefour") == 2 * frame
    most = int(120 / frame)
    for count in {1, 2, most}:
        cbr = bytes([toc(config, 3, stereo=stereo), count]) + bytes(5 * count)
        vbr = bytes([toc(config, 3, stereo=stereo), 0x80 | count, *[2] * (count - 1)])
        assert lasts(cbr) == count * frame
        assert lasts(vbr + bytes(2 * (count - 1) + 7)) == count * frame


@pytest.mark.parametrize("config", range(32))
def test_a_packet_longer_than_120_ms_is_refused(config: int) -> None:
    count = int(120 / FRAME_MS[config]) + 1

    with pytest.raises(UnusableAudioError, match="at most 120 ms"):
        lasts(packet(3, bytes([count]), config=config))


def test_frames_may_be_empty() -> None:
    assert lasts(packet(0)) == 20
    assert lasts(packet(1)) == 40
    assert lasts(packet(2, b"\0")) == 40
    assert lasts(packet(3, bytes([3]))) == 60
    assert lasts(packet(3, bytes([0x83, 0, 0]))) == 60


@pytest.mark.parametrize("size", [251, 252, 253, 255, 256, 1020, 1275])
def test_long_sizes_take_two_bytes(size: int) -> None:
    assert lasts(packet(2, length(size) + bytes(size + 5))) == 40
    assert lasts(packet(3, bytes([0x82]) + length(size) + bytes(size))) == 40


@pytest.mark.parametrize("varies", [0, 0x80])
@pytest.mark.parametrize("padding", [1, 253, 254, 255, 508, 509, 1000])
def test_padding_is_no_frame(varies: int, padding: int) -> None:
    said = b"\xff" * (padding // 254) + bytes([padding % 254])
    sizes = b"\x04" if varies else b""

    assert lasts(packet(3, bytes([0x42 | varies]) + said + sizes + bytes(8 + padding))) == 40
    with pytest.raises(UnusableAudioError):
        lasts(packet(3, bytes([0x42 | varies]) + said + sizes + bytes(max(0, padding - 1))))


BROKEN = {
    "R2: a frame of more than 1275 bytes": packet(0, bytes(1276)),
    "R2: two frames of more than 1275 bytes": packet(1, bytes(2552)),
    "R2: a second frame of more than 1275 bytes": packet(2, b"\x01" + bytes(1277)),
    "R2: many frames of more than 1275 bytes": packet(3, b"\x02" + bytes(2552)),
    "R2: a last frame of more than 1275 bytes": packet(3, b"\x82\x01" + bytes(1277)),
    "R3: two frames of one size with an odd number of bytes": packet(1, b"odd"),
    "R4: no size of the first frame": packet(2),
    "R4: half a size of the first frame": packet(2, b"\xfc"),
    "R4: a first frame that is longer than the packet": packet(2, b"\x05four"),
    "R5: no number of frames": packet(3),
    "R5: no frame": packet(3, b"\x00"),
    "R5: no frame, of any size": packet(3, b"\x80"),
    "R5: more than 120 ms": packet(3, b"\x07" + bytes(7)),
    "R6: frames of one size that do not fill it": packet(3, b"\x02odd"),
    "R6: padding without its length": packet(3, b"\x42"),
    "R6: padding whose length goes on": packet(3, b"\x42\xff"),
    "R6: more padding than packet": packet(3, b"\x42\x05four"),
    "R7: no sizes": packet(3, b"\x83"),
    "R7: too few sizes": packet(3, b"\x83\x01"),
    "R7: half a size": packet(3, b"\x82\xfd"),
    "R7: frames that are longer than the packet": packet(3, b"\x83\x02\x03four"),
    "R7: padding that leaves no room for its frames": packet(3, b"\xc2\x03\x02four"),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_packet_that_breaks_a_rule_is_refused(rule: str) -> None:
    with pytest.raises(UnusableAudioError):
        lasts(BROKEN[rule])


def test_a_packet_must_fit_the_length_before_it() -> None:
    def padded(size: int) -> bytes:
        """A valid packet of this size that is nearly all padding."""
        said, rest = divmod(size - 3, 255)
        return packet(3, b"\x41" + b"\xff" * said + bytes([max(0, rest)])).ljust(size, b"\0")

    longest = padded(65535)
    assert lasts(longest) == 20
    assert as_job_audio(OPUS, [longest])[:2] == b"\xff\xff"
    with pytest.raises(UnusableAudioError, match="at most 65535 bytes"):
        lasts(padded(MAX_CHUNK_BYTES))


FORMATS = st.one_of(
    st.just(OPUS), st.builds(pcm, st.integers(8000, 48000), st.integers(min_value=1, max_value=2))
)


@st.composite
def odd_packets(draw: st.DrawFn) -> bytes:
    """Bytes that start like a packet: most random ones would be refused at once."""
    head = bytes([toc(draw(st.integers(0, 31)), draw(st.integers(0, 3)))])
    count = bytes([draw(st.sampled_from([0, 0x40, 0x80, 0xC0])) | draw(st.integers(0, 12))])
    sizes = bytes(draw(st.lists(st.integers(0, 255), max_size=6)))
    return head + count + sizes + bytes(draw(st.integers(0, 3000)))


@given(FORMATS, st.one_of(st.binary(max_size=400), odd_packets()))
@example(OPUS, bytes([toc(1, 3), 0x41]) + b"\xff" * 256 + bytes(65278))
def test_whatever_comes_is_refused_by_name_or_has_a_length_and_fits_a_job(
    audio_format: common_pb2.AudioFormat, data: bytes
) -> None:
    try:
        took = duration_ms(audio_format, data)
    except UnusableAudioError:
        return
    assert took >= 0
    assert (took == 0) == (not data)
    chunks = [data] if data else []
    assert len(as_job_audio(audio_format, chunks)) == size_in_job(audio_format, data)


# ---- jobs ----


def split(audio: bytes) -> list[bytes]:
    """The packets of a job, as a node reads them."""
    packets = []
    while audio:
        size = int.from_bytes(audio[:2], "big")
        assert len(audio) >= 2 + size
        packets.append(audio[2 : 2 + size])
        audio = audio[2 + size :]
    return packets


@given(st.lists(st.binary(min_size=1, max_size=700)))
def test_the_packets_of_a_job_can_be_told_apart_again(packets: list[bytes]) -> None:
    audio = as_job_audio(OPUS, packets)

    assert split(audio) == packets
    assert len(audio) == sum(size_in_job(OPUS, each) for each in packets)


@given(st.lists(st.binary(max_size=100)))
def test_samples_follow_each_other_in_a_job(chunks: list[bytes]) -> None:
    assert as_job_audio(pcm(), chunks) == b"".join(chunks)
    assert all(size_in_job(pcm(), each) == len(each) for each in chunks)


# ---- jobs ----


@given(st.lists(st.sampled_from([10, 20, 40, 60]), max_size=8))
def test_the_audio_of_a_job_lasts_as_long_as_its_chunks(lengths: list[int]) -> None:
    packets = [packet(0, b"x" * 9, config=FRAME_MS.index(ms)) for ms in lengths]
    assert job_audio_ms(OPUS, as_job_audio(OPUS, packets)) == sum(lengths)
    samples = [bytes(32 * ms) for ms in lengths]
    assert job_audio_ms(pcm(), as_job_audio(pcm(), samples)) == sum(lengths)


@pytest.mark.parametrize("audio", [b"\0", b"\0\0", b"\0\5ab", b"\0\1\x08\0"])
def test_what_is_no_row_of_packets_is_refused(audio: bytes) -> None:
    with pytest.raises(UnusableAudioError):
        job_audio_ms(OPUS, audio)
