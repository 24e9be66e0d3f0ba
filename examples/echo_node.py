"""A node that repeats what it hears: `python examples/echo_node.py 127.0.0.1:7720`.

Ctrl-C lets it finish its jobs; a second one ends it at once. If the dispatcher requires a token or
TLS, set LINGUA_TOKEN_FILE and LINGUA_TLS_CA_FILE.
"""

import logging
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from lingua_scheduler.sdk import Job, Node, Partial, Tls, Translated

token_file = os.environ.get("LINGUA_TOKEN_FILE")
ca_file = os.environ.get("LINGUA_TLS_CA_FILE")

node = Node(
    node_id="echo-1",
    asr=["en", "zh"],
    semantic=["en", "zh"],
    tts=["en", "zh"],
    slots=2,
    token=Path(token_file) if token_file else None,
    tls=Tls(ca=ca_file) if ca_file else None,
)


@node.handler
async def translate(job: Job) -> AsyncIterator[Partial | Translated]:
    """Return the audio as the speech."""
    heard = f"{job.audio_format.duration_ms(len(job.audio)):.0f} ms in {job.pair.src}"
    yield Partial(source=heard)
    speech = job.audio if job.require_tts else b""
    yield Translated(source=heard, translated=heard, speech=speech, speech_format=job.audio_format)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    node.run(sys.argv[1:] or "127.0.0.1:7720")
