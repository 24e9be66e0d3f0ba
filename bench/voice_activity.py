"""Cost and accuracy of voice activity detectors.

    make bench-voice ARGS="--silero FILE --json"

A synthetic voice says the sentences of bench/sentences with pauses between them. The clean audio
shows where speech is; each detector gets it with white and pink noise at several levels. Reported:

    cost     CPU time for a chunk of 100 ms at 16 kHz
    missed   share of speech that was classified as silence, in steps of 10 ms
    alarms   share of silence that was classified as speech
    pauses   share of the pauses that were found: PAUSE_MS without voice
    broken   pauses that were found within speech, per minute of speech

Silero's model is silero_vad_16k_op15.onnx of the package silero-vad; without --silero only WebRTC's
detector is measured.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import webrtcvad
from interpreter_node.engines import RATE
from interpreter_node.hearing import resampled
from interpreter_node.voices.espeak import Espeak
from machine import machine

from lingua_scheduler.services.session_gateway.session.voice_activity import MODE, VoiceActivity

SENTENCES = Path(__file__).with_name("sentences")
# Between two sentences: the shortest pause that must be found.
BETWEEN_MS = (1000, 1500, 2000)
PAUSE_MS = 800
# Silence within words, such as before a "t", is part of them.
WITHIN_WORDS_MS = 150
# Chunks as the gateway receives them.
CHUNK_MS = 100
GRID_MS = 10
SPEECH_PEAK = 0.3
NOISES = ("white", "pink")
SNRS_DB = (30, 20, 10, 5, 0)

Samples = npt.NDArray[np.float32]
# From chunks of 100 ms to a verdict for each 10 ms.
Judge = Callable[[list[bytes]], list[bool]]


def recording(count: int) -> tuple[Samples, list[bool]]:
    """Sentences with pauses, and for each 10 ms whether it is speech."""
    voice, rng = Espeak(), np.random.default_rng(1)
    pieces: list[Samples] = [np.zeros(RATE, np.float32)]
    for language, name in (("en", "en-es.tsv"), ("es", "es-en.tsv")):
        lines = (SENTENCES / name).read_text().splitlines()[:count]
        for line in lines:
            pcm = b"".join(voice.speak(line.split("\t")[0], language))
            said = np.frombuffer(pcm, "<i2").astype(np.float32) / 32768
            pieces += [resampled(said, voice.rate)]
            pieces += [np.zeros(RATE * int(rng.choice(BETWEEN_MS)) // 1000, np.float32)]
    whole = np.concatenate(pieces)
    whole = whole[: len(whole) // (RATE // 10) * (RATE // 10)]
    whole *= SPEECH_PEAK / np.abs(whole).max()
    return whole, _labels(whole)


def _labels(clean: Samples) -> list[bool]:
    frames = clean.reshape(-1, RATE * GRID_MS // 1000)
    loud = np.sqrt(np.mean(frames**2, axis=1)) > SPEECH_PEAK / 200
    labels: list[bool] = []
    runs = [(speaks, len(list(run))) for speaks, run in groupby(loud.tolist())]
    for at, (speaks, length) in enumerate(runs):
        within = 0 < at < len(runs) - 1 and length * GRID_MS <= WITHIN_WORDS_MS
        labels += [bool(speaks or within)] * length
    return labels


def noise_like(kind: str, length: int) -> Samples:
    """Noise of power 1."""
    rng = np.random.default_rng(2)
    white = rng.standard_normal(length).astype(np.float32)
    if kind == "white":
        return white
    spectrum = np.fft.rfft(white)
    spectrum[1:] /= np.sqrt(np.arange(1, len(spectrum)))
    spectrum[0] = 0
    pink = np.fft.irfft(spectrum, length).astype(np.float32)
    return np.asarray(pink / np.sqrt(np.mean(pink**2)), np.float32)


def chunks_of(audio: Samples) -> list[bytes]:
    pcm = (np.clip(audio, -1, 1) * 32767).astype("<i2").tobytes()
    size = RATE * CHUNK_MS // 1000 * 2
    return [pcm[at : at + size] for at in range(0, len(pcm), size)]


def webrtc(mode: int) -> Judge:
    """Classify frames of 20 ms independently."""

    def judge(chunks: list[bytes]) -> list[bool]:
        vad, found = webrtcvad.Vad(mode), []
        for chunk in chunks:
            for at in range(0, len(chunk), 640):
                found += [vad.is_speech(chunk[at : at + 640], RATE)] * 2
        return found

    return judge


def as_the_gateway(chunks: list[bytes]) -> list[bool]:
    """The gateway's detector, which gives the gatherer the silence at the end of a chunk."""
    activity, found = VoiceActivity(RATE), []
    for chunk in chunks:
        quiet = round(activity.quiet_ms(chunk) / GRID_MS)
        found += [True] * (CHUNK_MS // GRID_MS - quiet) + [False] * quiet
    return found


def silero(model: Path) -> Judge:
    """Classify frames of 32 ms one by one, as in a live stream."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, ["CPUExecutionProvider"])

    def judge(chunks: list[bytes]) -> list[bool]:
        state = np.zeros((2, 1, 128), np.float32)
        context, rest = np.zeros(64, np.float32), np.zeros(0, np.float32)
        rate, found = np.array(RATE, np.int64), []
        for chunk in chunks:
            rest = np.append(rest, np.frombuffer(chunk, "<i2").astype(np.float32) / 32768)
            while len(rest) >= 512:
                seen = np.concatenate((context, rest[:512]))[None]
                given = {"input": seen, "state": state, "sr": rate}
                sure, state = session.run(None, given)
                context, rest = rest[448:512], rest[512:]
                found.append(bool(sure[0, 0] > 0.5))
        # 32 ms on a grid of 10 ms.
        length = len(chunks) * CHUNK_MS // GRID_MS
        return [found[min(at * GRID_MS // 32, len(found) - 1)] for at in range(length)]

    return judge


def pauses(found: list[bool]) -> Iterator[int]:
    """Positions at which the gateway would cut, in units of the grid."""
    quiet, voiced = 0, False
    for at, speaks in enumerate(found):
        quiet = 0 if speaks else quiet + 1
        voiced = voiced or speaks
        if voiced and quiet * GRID_MS >= PAUSE_MS:
            voiced = False
            yield at


def measure(judge: Judge, audio: Samples, labels: list[bool]) -> dict[str, float]:
    chunks = chunks_of(audio)
    began = time.process_time()
    found = judge(chunks)
    took = time.process_time() - began
    speech = sum(labels)
    missed = sum(label and not heard for label, heard in zip(labels, found, strict=True))
    alarms = sum(heard and not label for label, heard in zip(labels, found, strict=True))
    spans = silences(labels)
    cuts = list(pauses(found))
    hit = {index for index, span in enumerate(spans) for cut in cuts if span[0] <= cut <= span[1]}
    # Pauses before the first word cut nothing.
    allowed = [(0, labels.index(True)), *spans]
    inside = sum(not any(first <= cut <= last for first, last in allowed) for cut in cuts)
    return {
        "cost_us": took / len(chunks) * 1e6,
        "missed": missed / speech,
        "alarms": alarms / (len(labels) - speech),
        "pauses": len(hit) / len(spans),
        "broken": inside / (speech * GRID_MS / 60_000),
    }


def silences(labels: list[bool]) -> list[tuple[int, int]]:
    """Pauses that must be found; a little longer, since the next word may begin softly."""
    spans, at = [], 0
    for speaks, run in groupby(labels):
        length = len(list(run))
        if not speaks and at and length * GRID_MS >= PAUSE_MS + 100:
            spans.append((at, at + length + 10))
        at += length
    return spans


def run(count: int, model: Path | None) -> dict[str, Any]:
    clean, labels = recording(count)
    judges: dict[str, Judge] = {f"webrtc {mode}": webrtc(mode) for mode in range(4)}
    judges[f"gateway (webrtc {MODE})"] = as_the_gateway
    if model is not None:
        judges["silero"] = silero(model)
    speech = clean[np.repeat(labels, RATE * GRID_MS // 1000)]
    power = float(np.mean(speech**2))
    sounds = {"clean": clean}
    for kind in NOISES:
        noise = noise_like(kind, len(clean))
        for snr in SNRS_DB:
            sounds[f"{kind} {snr} dB"] = clean + noise * np.sqrt(power / 10 ** (snr / 10))
    found = {
        sound: {name: measure(judge, audio, labels) for name, judge in judges.items()}
        for sound, audio in sounds.items()
    }
    return {"machine": machine(), "seconds": len(clean) / RATE, "found": found}


def show(report: dict[str, Any]) -> None:
    print(f"{report['seconds']:.0f} s of audio; {report['machine']}")
    for sound, rows in report["found"].items():
        print(f"\n{sound:<22} us/chunk  missed  alarms  pauses  broken/min")
        for name, row in rows.items():
            print(
                f"  {name:<20} {row['cost_us']:8.0f} {row['missed']:7.1%} {row['alarms']:7.1%}"
                f" {row['pauses']:7.1%} {row['broken']:7.2f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--silero", type=Path, help="silero_vad_16k_op15.onnx")
    parser.add_argument("--sentences", type=int, default=40, help="per language")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    report = run(chosen.sentences, chosen.silero)
    if chosen.json:
        json.dump(report, sys.stdout, indent=1)
    else:
        show(report)


if __name__ == "__main__":
    main()
