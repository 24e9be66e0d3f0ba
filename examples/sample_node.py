"""A node that measures what it hears: how long, how loud, how high.

    python examples/sample_node.py --id amber --langs zh,en --dispatcher 127.0.0.1:7720

It translates nothing; with --phrases it looks up the sentence that a tone of this pitch stands for.
It takes a tenth of the speech's duration, about as long as a real node. It handles audio as a real
node does: if a sentence is unfinished (cut by its duration, or still loud at the end), its audio is
held and joined to the next job of the same turn. A cut sentence is therefore complete if its parts
reach the same node.

If the dispatcher requires a token or TLS, use --token-file, --ca, --cert and --key.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from array import array
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from phrases import Phrase, read_phrases

from lingua_scheduler.sdk import (
    AudioFormat,
    Encoding,
    Held,
    HeldAudio,
    Job,
    JobError,
    Node,
    NoSpeech,
    Partial,
    Reason,
    Tls,
    Translated,
)

# Peaks above this, of 32767, are speech.
LOUD = 500
# Tones of phrases are further apart, and half a second of tone is measured more precisely.
SAME_PITCH_HZ = 9
# Time that a real node would need for a second of speech.
PACE_S = 0.1
# A finished sentence ends with this much silence.
SILENT_END_S = 0.1


def samples_of(audio: bytes, audio_format: AudioFormat) -> "array[int]":
    """The 16-bit samples of the first channel."""
    if audio_format.encoding is not Encoding.PCM_S16LE:
        raise JobError("UNKNOWN_AUDIO", "this node hears PCM only", worth_retry=False)
    return array("h", audio[: len(audio) // 2 * 2])[:: audio_format.channels]


@dataclass(frozen=True)
class Heard:
    """Measurements of audio."""

    seconds: float
    loud_s: float
    hertz: float
    peak: int

    def __str__(self) -> str:
        """Such as `2.0 s at 220 Hz, peak 12000`."""
        return f"{self.seconds:.1f} s at {self.hertz:.0f} Hz, peak {self.peak}"


def measure(samples: "array[int]", rate: int) -> Heard:
    """Measures audio that is not silent."""
    peaks = [
        max(map(abs, samples[at : at + rate // 100])) for at in range(0, len(samples), rate // 100)
    ]
    # Silence has no pitch, so it does not count.
    loud_s = sum(peak > LOUD for peak in peaks) / 100
    crossings = sum(a < 0 <= b for a, b in pairwise(samples))
    return Heard(len(samples) / rate, loud_s, crossings / loud_s, max(peaks))


def texts_of(heard: Heard, job: Job, phrases: list[Phrase]) -> tuple[str, str]:
    """The text in both languages: a known sentence, or the measurements."""
    for phrase in phrases:
        if abs(phrase.hertz - heard.hertz) <= SAME_PITCH_HZ:
            source, target = (
                phrase.in_language(lang, heard.loud_s) for lang in (job.pair.src, job.pair.tgt)
            )
            if source and target:
                return source, target
    return str(heard), f"[{job.pair.tgt}] {heard}"


def is_unfinished(job: Job, samples: "array[int]") -> bool:
    """Whether more of the same sentence must follow."""
    if job.reason in (Reason.MAX_DURATION, Reason.MAX_LENGTH):
        return True
    tail = samples[-int(job.audio_format.sample_rate_hz * SILENT_END_S) :]
    may_go_on = job.reason in (Reason.TIMEOUT, Reason.INTERRUPTED)
    return may_go_on and any(abs(each) > LOUD for each in tail)


def sample_node(
    node_id: str,
    langs: list[str],
    slots: int,
    *,
    phrases: list[Phrase],
    token: Path | None,
    tls: Tls | None,
) -> Node:
    """The node; `run` connects it."""
    node = Node(
        node_id=node_id,
        asr=langs,
        semantic=langs,
        tts=langs,
        slots=slots,
        software="sample node",
        token=token,
        tls=tls,
    )
    held = HeldAudio()

    @node.handler
    async def translate(job: Job) -> AsyncIterator[Partial | Held | NoSpeech | Translated]:
        with held.turn(job) as turn:
            samples = samples_of(turn.audio, job.audio_format)
            if not samples or max(map(abs, samples)) <= LOUD:
                yield NoSpeech(joined=turn.joined)
                return
            heard = measure(samples, job.audio_format.sample_rate_hz)
            source, translated = texts_of(heard, job, phrases)
            yield Partial(source=source)
            await asyncio.sleep(PACE_S * len(samples) / job.audio_format.sample_rate_hz)
            if is_unfinished(job, samples):
                turn.keep()
                yield Held()
                return
            yield Translated(
                source=source,
                repaired=source,
                translated=translated,
                speech=turn.audio if job.require_tts else b"",
                speech_format=job.audio_format,
                joined=turn.joined,
            )

    return node


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def file_option(parser: argparse.ArgumentParser, flag: str, variable: str, what: str) -> None:
    """An option that names a file; the variable is its default."""
    default = os.environ.get(variable) or None
    parser.add_argument(
        flag, metavar="FILE", type=Path, default=default, help=f"{what} (default: {variable})"
    )


def main() -> None:
    """Run one node until a signal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--id", required=True)
    parser.add_argument("--langs", default="en,zh", help="what it hears and speaks")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument(
        "--dispatcher",
        default="127.0.0.1:7720",
        help="ADDRESS[,ADDRESS...]; -: the first line of stdin, when the node has loaded",
    )
    parser.add_argument("--phrases", type=Path, help="JSON file: what tones stand for")
    parser.add_argument("--until-eof", action="store_true", help="end when stdin ends")
    file_option(parser, "--token-file", "LINGUA_TOKEN_FILE", "says who this node is")
    file_option(parser, "--ca", "LINGUA_TLS_CA_FILE", "the dispatchers' authority; none: no TLS")
    file_option(parser, "--cert", "LINGUA_TLS_CLIENT_CERT_FILE", "this node's own certificate")
    file_option(parser, "--key", "LINGUA_TLS_CLIENT_KEY_FILE", "its key")
    parser.add_argument(
        "--server-name",
        default=os.environ.get("LINGUA_TLS_SERVER_NAME", ""),
        help="in the dispatchers' certificate (default: LINGUA_TLS_SERVER_NAME)",
    )
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    address = sys.stdin.readline().strip() if chosen.dispatcher == "-" else chosen.dispatcher
    if chosen.until_eof:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    tls = None
    if chosen.ca:
        tls = Tls(ca=chosen.ca, cert=chosen.cert, key=chosen.key, server_name=chosen.server_name)
    langs = chosen.langs.split(",")
    node = sample_node(
        chosen.id,
        langs,
        chosen.slots,
        phrases=read_phrases(chosen.phrases) if chosen.phrases else [],
        token=chosen.token_file,
        tls=tls,
    )
    if address:
        node.run(address)


if __name__ == "__main__":
    main()
