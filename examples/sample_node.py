"""A node that measures what it hears: how long, how loud, how high.

    python examples/sample_node.py --id amber --langs zh,en --dispatcher 127.0.0.1:7720

It translates nothing, and takes a tenth of the speech's time for that, about as long as a real one
would. But it treats audio as a real node does: what is unfinished (cut by its duration, or still
loud where a pause was taken for the end) is held, and joined to the next job of the same turn. So a
sentence that was cut comes out whole, if its parts come to the same node.

Where the dispatcher asks who it is and speaks TLS: --token-file, --ca, --cert and --key.
"""

import argparse
import asyncio
import logging
import os
import signal
import threading
from array import array
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

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

# Louder than this is speech, of 32767.
LOUD = 500
# What a real node would need to translate a second of speech.
PACE_S = 0.1
# A sentence that is over ends with as much silence.
SILENT_END_S = 0.1


def samples_of(audio: bytes, audio_format: AudioFormat) -> "array[int]":
    """The 16-bit samples of the first channel."""
    if audio_format.encoding is not Encoding.PCM_S16LE:
        raise JobError("UNKNOWN_AUDIO", "this node hears PCM only", worth_retry=False)
    return array("h", audio[: len(audio) // 2 * 2])[:: audio_format.channels]


def describe(samples: "array[int]", rate: int) -> str:
    """Such as `2.0 s at 220 Hz, peak 12000`."""
    peaks = [
        max(map(abs, samples[at : at + rate // 100])) for at in range(0, len(samples), rate // 100)
    ]
    # Silence has no pitch, so its time does not count.
    loud_s = sum(peak > LOUD for peak in peaks) / 100
    crossings = sum(a < 0 <= b for a, b in pairwise(samples))
    return f"{len(samples) / rate:.1f} s at {crossings / loud_s:.0f} Hz, peak {max(peaks)}"


def is_unfinished(job: Job, samples: "array[int]") -> bool:
    """Whether more of the same sentence must follow."""
    if job.reason in (Reason.MAX_DURATION, Reason.MAX_LENGTH):
        return True
    tail = samples[-int(job.audio_format.sample_rate_hz * SILENT_END_S) :]
    may_go_on = job.reason in (Reason.TIMEOUT, Reason.INTERRUPTED)
    return may_go_on and any(abs(each) > LOUD for each in tail)


def sample_node(
    node_id: str, langs: list[str], slots: int, *, token: Path | None, tls: Tls | None
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
            heard = describe(samples, job.audio_format.sample_rate_hz)
            yield Partial(source=heard)
            await asyncio.sleep(PACE_S * len(samples) / job.audio_format.sample_rate_hz)
            if is_unfinished(job, samples):
                turn.keep()
                yield Held()
                return
            yield Translated(
                source=heard,
                repaired=heard,
                translated=f"[{job.pair.tgt}] {heard}",
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
    """Runs one node until it is told to end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--id", required=True)
    parser.add_argument("--langs", default="en,zh", help="what it hears and speaks")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--dispatcher", default="127.0.0.1:7720", help="ADDRESS[,ADDRESS...]")
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
    if chosen.until_eof:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    tls = None
    if chosen.ca:
        tls = Tls(ca=chosen.ca, cert=chosen.cert, key=chosen.key, server_name=chosen.server_name)
    langs = chosen.langs.split(",")
    node = sample_node(chosen.id, langs, chosen.slots, token=chosen.token_file, tls=tls)
    node.run(chosen.dispatcher)


if __name__ == "__main__":
    main()
