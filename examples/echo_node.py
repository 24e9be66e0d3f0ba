"""A node that says what it hears: `python examples/echo_node.py 127.0.0.1:7720`.

Ctrl-C lets it finish what it has; twice ends it at once.
"""

import logging
import sys
from collections.abc import AsyncIterator

from lingua_scheduler.sdk import Job, Node, Partial, Translated

node = Node(node_id="echo-1", asr=["en", "zh"], semantic=["en", "zh"], tts=["en", "zh"], slots=2)


@node.handler
async def translate(job: Job) -> AsyncIterator[Partial | Translated]:
    """Gives the audio back as the speech."""
    heard = f"{job.audio_format.duration_ms(len(job.audio)):.0f} ms in {job.pair.src}"
    yield Partial(source=heard)
    speech = job.audio if job.require_tts else b""
    yield Translated(source=heard, translated=heard, speech=speech, speech_format=job.audio_format)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    node.run(sys.argv[1:] or "127.0.0.1:7720")
