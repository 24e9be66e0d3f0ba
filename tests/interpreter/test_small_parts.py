"""Programs that are kept running, remembered texts, load, and audio of all forms."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from interpreter_node.cpu import MOST, CpuLoad, read_own
from interpreter_node.detection import Loudness
from interpreter_node.engines import RATE
from interpreter_node.hearing import resampled, samples_of
from interpreter_node.recalled import Recalled
from interpreter_node.translators.apertium import Apertium, commands

from lingua_scheduler.sdk import AudioFormat, Encoding, JobError

# ---- a chain of programs ----

# As Apertium's programs are: text in, text out, each ended by a zero byte.
PROGRAM = """
import os, sys
assert sys.argv[1] == "-z", sys.argv
text = b""
while piece := os.read(0, 65536):
    text += piece
    while b"\\0" in text:
        one, _, text = text.partition(b"\\0")
        if b"hang" not in one:
            os.write(1, one.replace(sys.argv[2].encode(), sys.argv[3].encode()) + b"\\0")
"""


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Apertium]:
    program = tmp_path / "lt-proc"
    program.write_text(f"#!{sys.executable} -IS\n{PROGRAM}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "one.mode").write_text("lt-proc 'a' 'b' | lt-proc 'b' 'c d'\n")
    translator = Apertium({("en", "es"): "one"}, modes=tmp_path, within_s=5.0)
    yield translator
    translator.close()


def pids(chain: Apertium) -> list[int]:
    return [each.pid for each in chain._chains["en", "es"]._programs]


def test_a_mode_becomes_programs_that_flush_at_a_zero_byte() -> None:
    mode = "lt-proc '/a b/x.bin' | apertium-tagger -g $2 '/p' | lt-proc $1 '/g'\n"
    assert commands(mode) == [
        ["lt-proc", "-z", "/a b/x.bin"],
        ["apertium-tagger", "-z", "-g", "/p"],
        ["lt-proc", "-z", "-n", "/g"],
    ]


def test_the_programs_are_started_once(chain: Apertium) -> None:
    assert chain.translate("a tail", "en", "es") == "C d tc dil"
    before = pids(chain)
    assert chain.translate("x", "en", "es") == "X"
    assert pids(chain) == before
    assert len(before) == 2


def test_a_program_that_died_is_started_again(chain: Apertium) -> None:
    chain.translate("a", "en", "es")
    program = chain._chains["en", "es"]._programs[0]
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    assert chain.translate("a", "en", "es") == "C d"


def test_programs_that_hang_are_ended_and_the_next_text_is_its_own(chain: Apertium) -> None:
    chain._chains["en", "es"]._within_s = 0.2
    with pytest.raises(RuntimeError, match=r"took over 0\.2 s"):
        chain.translate("hang", "en", "es")
    chain._chains["en", "es"]._within_s = 5.0
    assert chain.translate("b", "en", "es") == "C d"


# ---- remembered texts ----


def test_texts_are_forgotten_with_their_turn_with_time_and_for_want_of_room() -> None:
    now = 0.0
    recalled = Recalled(max_turns=2, keep_seconds=10, clock=lambda: now)
    first, second, third = ("s", "en", "es"), ("s", "es", "en"), ("t", "en", "es")
    recalled.put(first, b"1", "one")
    recalled.put(second, b"1", "uno")
    assert recalled.get(first, b"1") == "one"
    assert recalled.get(first, b"2") is None
    recalled.put(third, b"1", "three")
    assert recalled.get(first, b"1") is None
    recalled.forget(second)
    assert len(recalled) == 1
    now = 10.0
    assert recalled.get(third, b"1") is None
    assert len(recalled) == 0


# ---- load ----


def test_load_is_what_the_cpus_did_since_it_was_asked_last_and_smooth() -> None:
    used, now = 0.0, 0.0
    load = CpuLoad(read=lambda: (used, 2 * now), clock=lambda: now)
    assert load() == (0.0, 0.0)
    # One of two CPUs, for half of the time that it is smoothed over.
    used, now = 5.0, 5.0
    assert load() == (pytest.approx(0.25), 0.0)
    used, now = 105.0, 55.0
    assert load() == (MOST, 0.0)


def test_a_busy_process_has_used_cpu() -> None:
    used, everything = read_own()
    assert 0 < used <= everything


# ---- audio ----


def tone(hertz: float, rate: int, seconds: float = 0.5) -> np.ndarray:
    at = np.arange(int(rate * seconds)) / rate
    return (0.5 * np.sin(2 * np.pi * hertz * at)).astype(np.float32)


@pytest.mark.parametrize("rate", [8000, 22_050, 44_100, 48_000])
def test_a_voice_sounds_the_same_at_every_rate(rate: int) -> None:
    heard, expected = resampled(tone(440, rate), rate), tone(440, RATE)
    assert abs(len(heard) - len(expected)) <= 1
    inner = slice(400, 7000)
    assert np.max(np.abs(heard[inner] - expected[inner])) < 0.01


def test_what_16_khz_cannot_hold_is_taken_out() -> None:
    heard = resampled(tone(11_000, 48_000), 48_000)
    assert np.max(np.abs(heard[400:7000])) < 0.01


def test_two_channels_are_heard_as_one_and_half_a_sample_is_left_out() -> None:
    audio = np.array([1000, 3000] * 10, "<i2").tobytes() + b"\x01"
    heard = samples_of(audio, AudioFormat(channels=2))
    assert heard.tolist() == pytest.approx([2000 / 32768] * 10)


def test_broken_opus_fails_the_job_with_a_reason() -> None:
    with pytest.raises(JobError) as error:
        samples_of(b"\xff\xff", AudioFormat(Encoding.OPUS, 48_000))
    assert error.value.cause in ("UNKNOWN_AUDIO", "BROKEN_AUDIO")


def test_loudness_tells_speech_from_silence_and_quiet_noise() -> None:
    noise = np.random.default_rng(1).normal(0, 0.002, RATE).astype(np.float32)
    loud = tone(200, RATE, 1.0)
    judged = Loudness().judge(np.concatenate((noise, loud, noise)))
    assert not any(judged[:30])
    assert all(judged[33:60])
    assert not any(judged[65:])
    assert Loudness().judge(np.zeros(0, np.float32)) == []
