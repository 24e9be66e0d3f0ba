"""A node that hears words in audio; also a program for NodeProcess.

A word is a number: a tenth of a second in which all samples have its value. Audio therefore shows
which words it has, however it was cut, sent and joined, and the text of a node is the list of words
that it heard.
"""

import asyncio
import contextlib
import logging
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import groupby
from typing import Any

from lingua_scheduler.sdk import Held, HeldAudio, Job, JobError, Node, Reason, Translated
from lingua_scheduler.sdk.node.protocol.effects import NodeEffect
from lingua_scheduler.sdk.node.protocol.machine import NodeProtocol
from lingua_scheduler.v1 import dispatcher_pb2
from tests.support.node_process import NodeOptions

WORD_MS = 100
# At 16 kHz.
WORD_SAMPLES = 1600

Note = Callable[..., None]
"""Records an event: its name, and fields by name."""

# Special words: a job with the first never ends, and one with the second fails.
ENDLESS = 30001
IMPOSSIBLE = 30002


def audio_of(*words: int) -> bytes:
    """These words as PCM."""
    return b"".join(array("h", [word]).tobytes() * WORD_SAMPLES for word in words)


def words_in(audio: bytes) -> list[str]:
    """The words of some PCM, in order; one of which a part is lost has a question mark."""
    return list(_words(array("h", audio)))


def _words(samples: "array[int]") -> Iterator[str]:
    for word, run in groupby(samples):
        times, rest = divmod(sum(1 for _ in run), WORD_SAMPLES)
        yield from [str(word)] * times
        if rest:
            yield f"{word}?"


def is_unfinished(reason: Reason, words: list[str]) -> bool:
    """Whether to hold the audio: speech goes on, or it stopped after an odd word."""
    if reason in (Reason.TIMEOUT, Reason.INTERRUPTED):
        return int(words[-1].removesuffix("?")) % 2 == 1
    return reason in (Reason.MAX_DURATION, Reason.MAX_LENGTH)


class _RecordingProtocol(NodeProtocol):
    """Records connections and assignments."""

    def __init__(self, hello: dispatcher_pb2.Hello, note: Note) -> None:
        super().__init__(hello=hello)
        self._note = note

    def on_message(self, now: float, message: dispatcher_pb2.DispatcherMessage) -> list[NodeEffect]:
        was_welcomed = self.welcomed
        effects = super().on_message(now, message)
        if self.welcomed and not was_welcomed:
            self._note("connected")
        return effects

    def on_assign(self, now: float, assign: dispatcher_pb2.JobAssign) -> None:
        job = assign.job
        self._note("assigned", job=assign.attempt.job_id, index=job.utterance_index)
        super().on_assign(now, assign)


class ListeningNode(Node):
    """Answers each job with the words of its audio and of the audio that it had held before.

    Args:
        work_s: how long a job takes.
        note: records what happens to the node.
        options: of Node.
    """

    def __init__(
        self,
        *,
        node_id: str,
        langs: list[str],
        slots: int,
        work_s: float,
        note: Note = lambda *_, **__: None,
        **options: Any,
    ) -> None:
        options = {"slots": slots, "drain_seconds": 10, **options}
        super().__init__(node_id=node_id, asr=langs, semantic=langs, tts=langs, **options)
        self.load = lambda: (0.0, 0.0)
        self.handler(self._translate)
        self._work_s = work_s
        self._note = note
        self._held = HeldAudio()

    def make_protocol(self, hello: dispatcher_pb2.Hello) -> NodeProtocol:
        """Returns a protocol that records."""
        return _RecordingProtocol(hello, self._note)

    async def _translate(self, job: Job) -> AsyncIterator[Held | Translated]:
        with self._held.turn(job) as turn:
            words = words_in(turn.audio)
            which = {
                "job": job.job_id,
                "index": job.utterance_index,
                "src": job.pair.src,
                "reason": job.reason.name,
                "words": words,
            }
            self._note("started", **which)
            unfinished = is_unfinished(job.reason, words)
            if unfinished:
                job.hold()
            await asyncio.sleep(float("inf") if str(ENDLESS) in words else self._work_s)
            if str(IMPOSSIBLE) in words:
                raise JobError("IMPOSSIBLE_WORD", worth_retry=False)
            self._note("finished", held=unfinished, **which)
            if unfinished:
                turn.keep()
                yield Held()
            else:
                text = " ".join(words)
                yield Translated(source=text, translated=text, joined=turn.joined)


@contextlib.asynccontextmanager
async def connected_node(address: str, node_id: str, **access: Any) -> AsyncIterator[ListeningNode]:
    """A node while it is connected to a dispatcher, with a token or TLS."""
    node = ListeningNode(node_id=node_id, langs=["en", "es"], slots=4, work_s=0.03, **access)
    serving = asyncio.create_task(node.serve(address))
    try:
        async with asyncio.timeout(30):
            while not node.connected:
                assert not serving.done(), serving
                await asyncio.sleep(0.02)
        yield node
    finally:
        await node.stop()
        await serving


def main() -> None:
    """Runs one node until it is told to end."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    options = NodeOptions()
    options.diary.note("began")
    node = ListeningNode(
        node_id=options.node_id,
        langs=options.text("langs", "en,es").split(","),
        slots=options.number("slots", 4),
        work_s=options.number("work_ms", 30) / 1000,
        note=options.diary.note,
    )
    node.run(options.dispatchers)
