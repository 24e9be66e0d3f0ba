"""A node that knows a dialogue by heart; a program for NodeProcess. It is for pictures of the page.

It answers utterance n with line n of the dialogue, whatever was said.
"""

import asyncio
from array import array
from collections.abc import AsyncIterator

from lingua_scheduler.sdk import (
    AudioFormat,
    Encoding,
    Job,
    Node,
    Partial,
    Stage,
    Timing,
    Translated,
)
from tests.support.node_process import NodeOptions

PROGRAM = "tests.browser.phrase_node"
DIALOGUE = (
    ("Excuse me, where is the train station?", "Disculpe, ¿dónde está la estación de tren?"),
    ("Siga recto dos calles y gire a la izquierda.", "Go straight for two streets and turn left."),
    ("Is it far? My train leaves in half an hour.", "¿Está lejos? Mi tren sale en media hora."),
    ("No, está a cinco minutos a pie.", "No, it is a five-minute walk."),
    ("Thank you very much!", "¡Muchas gracias!"),
)
# Milliseconds, about what the interpreter node takes for a sentence.
TIMINGS = (
    Timing(stage=Stage.ASR, started_ms=0, took_ms=310),
    Timing(stage=Stage.NMT, started_ms=310, took_ms=90),
    Timing(stage=Stage.TTS, started_ms=400, took_ms=180),
)
SPEECH_FORMAT = AudioFormat(Encoding.PCM_S16LE, sample_rate_hz=16_000, channels=1)


def phrase_node(node_id: str) -> Node:
    """The node; `run` connects it."""
    langs = ["en", "es"]
    node = Node(node_id=node_id, asr=langs, semantic=langs, tts=langs, slots=2)

    @node.handler
    async def answer(job: Job) -> AsyncIterator[Partial | Translated]:
        source, translated = DIALOGUE[job.utterance_index % len(DIALOGUE)]
        yield Partial(source=source)
        await asyncio.sleep(0.58)
        yield Translated(
            source=source,
            repaired=source,
            translated=translated,
            speech=array("h", [0] * 1600).tobytes() if job.require_tts else b"",
            speech_format=SPEECH_FORMAT,
            timings=TIMINGS,
        )

    return node


def main() -> None:
    """Runs one node until it is told to end."""
    options = NodeOptions()
    options.diary.note("began")
    phrase_node(options.node_id).run(options.dispatchers)
