"""Detection of speech by loudness, and the microphone."""

import asyncio
import math
import random
import sys
from array import array
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from lingua_scheduler.cli.app import app
from lingua_scheduler.cli.failures import Failure
from lingua_scheduler.cli.speak import microphone
from lingua_scheduler.cli.speak.voice_activity import BEFORE_MS, END_MS, Heard, VoiceActivity
from lingua_scheduler.sdk import AudioFormat, Encoding

RATE = 16000
FORMAT = AudioFormat()


def tone(ms: int, peak: int = 9000) -> bytes:
    count = RATE * ms // 1000
    return array(
        "h", (int(peak * math.sin(2 * math.pi * 220 * i / RATE)) for i in range(count))
    ).tobytes()


def noise(ms: int, level: float) -> bytes:
    rng = random.Random(7)
    return array("h", (int(rng.gauss(0, level)) for _ in range(RATE * ms // 1000))).tobytes()


def hush(ms: int) -> bytes:
    return bytes(RATE * ms // 1000 * 2)


def utterances(audio: bytes, block: int = 3200, **options: Any) -> list[bytes]:
    """The audio of each utterance, as it would be sent."""
    activity = VoiceActivity(FORMAT, **options)
    heard: list[Heard] = []
    for at in range(0, len(audio), block):
        heard += activity.feed(audio[at : at + block])
    heard += activity.end()
    found, current = [], b""
    for each in heard:
        current += each.audio
        if each.ends:
            found.append(current)
            current = b""
    assert current == b""
    return found


def ms(audio: bytes) -> int:
    return len(audio) // 2 * 1000 // RATE


def test_silence_is_never_sent() -> None:
    assert utterances(hush(3000)) == []
    assert utterances(noise(3000, 40)) == []


def test_each_silence_ends_an_utterance_that_has_its_softer_beginning() -> None:
    first, second = utterances(hush(1000) + tone(600) + hush(2000) + tone(900) + hush(2000))
    assert ms(first) == BEFORE_MS + 600 + END_MS
    assert ms(second) == BEFORE_MS + 900 + END_MS
    assert tone(600) in first


def test_a_short_pause_within_a_sentence_does_not_end_it() -> None:
    (whole,) = utterances(tone(600) + hush(END_MS - 100) + tone(600) + hush(2000))
    assert ms(whole) == 600 + END_MS - 100 + 600 + END_MS


def test_speech_that_goes_on_to_the_end_of_the_audio_is_ended_there() -> None:
    assert utterances(hush(500) + tone(700))[-1].endswith(tone(700)[-3200:])


def test_a_click_is_no_speech() -> None:
    assert utterances(hush(500) + tone(20) + hush(1500)) == []


def test_a_voice_is_heard_in_a_loud_room_and_the_room_is_not() -> None:
    room = noise(12_000, 400)
    assert len(utterances(room)) <= 1
    (*_, last) = utterances(room + tone(800, 12_000) + noise(2000, 400))
    assert tone(800, 12_000)[3200:6400] in last


def test_the_end_is_a_setting() -> None:
    assert len(utterances(tone(300) + hush(400) + tone(300), end_ms=300)) == 2


@pytest.mark.parametrize("block", [7, 639, 640, 641, 9999, 100_000])
def test_it_does_not_matter_how_the_audio_is_cut_into_blocks(block: int) -> None:
    audio = hush(200) + tone(300) + hush(1000) + tone(200)
    assert utterances(audio, block) == utterances(audio)


def test_only_pcm_can_be_judged() -> None:
    with pytest.raises(ValueError, match="must be PCM"):
        VoiceActivity(AudioFormat(Encoding.OPUS, 48_000))


# ---- the microphone ----


class PortAudioError(Exception):
    pass


def library(monkeypatch: pytest.MonkeyPatch, *, devices: int = 1, blocks: int = 0) -> Any:
    """A sound library with these microphones, which record this many blocks."""

    class Stream:
        def __init__(self, **options: Any) -> None:
            self.options = options

        def __enter__(self) -> None:
            for number in range(blocks):
                data = bytes([number % 256]) * self.options["blocksize"] * 2
                self.options["callback"](memoryview(data), 0, None, None)

        def __exit__(self, *_: object) -> None:
            module.closed = True

    def query_devices(kind: str) -> None:
        if not devices:
            raise PortAudioError("Error querying device -1")

    module: Any = ModuleType("sounddevice")
    module.closed = False
    vars(module).update(
        RawInputStream=Stream, query_devices=query_devices, PortAudioError=PortAudioError
    )
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    return module


def test_without_the_package_the_command_that_installs_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    ended = CliRunner().invoke(app, ["speak", "--mic", "--from", "en", "--to", "es"])
    assert ended.exit_code == 1
    assert "pip install 'lingua-scheduler[mic]'" in ended.stderr


def test_without_a_microphone_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    library(monkeypatch, devices=0)
    with pytest.raises(Failure, match="found no microphone"):
        microphone.open_device()


async def test_blocks_come_in_order_and_the_device_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = library(monkeypatch, blocks=3)
    heard = microphone.hear(microphone.open_device(), FORMAT)
    blocks = [await anext(heard) for _ in range(3)]
    assert [block[0] for block in blocks] == [0, 1, 2]
    assert all(len(block) == 3200 for block in blocks)
    await heard.aclose()  # type: ignore[attr-defined]
    assert module.closed


async def test_of_audio_that_nobody_takes_the_newest_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library(monkeypatch, blocks=microphone.WAITING_BLOCKS + 20)
    heard = microphone.hear(microphone.open_device(), FORMAT)
    first = await anext(heard)
    await asyncio.sleep(0)
    blocks = [await anext(heard) for _ in range(microphone.WAITING_BLOCKS - 1)]
    assert first[0] == 20
    assert blocks[-1][0] == (microphone.WAITING_BLOCKS + 19) % 256
    await heard.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("args", [[], ["--mic", __file__]])
def test_files_or_a_microphone_and_not_both(args: list[str]) -> None:
    ended = CliRunner().invoke(app, ["speak", *args, "--from", "en", "--to", "es"])
    assert ended.exit_code == 2
    assert "either WAV files or --mic" in ended.stderr
