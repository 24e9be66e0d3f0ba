"""A node that hears words in audio, as a process of its own: to be watched, and to be killed.

    python -m tests.e2e.listening_node --id n0 --dispatchers ADDRESS[,ADDRESS...]

A word is a number: a tenth of a second in which all samples have its value. So audio says what it
is, however it was cut, sent and joined, and a node's text is the list of the words that it heard.
What happens to the node is printed, one JSON object a line.
"""

import argparse
import asyncio
import json
import logging
from array import array
from collections.abc import AsyncIterator, Iterator
from itertools import groupby
from typing import Any

from lingua_scheduler.sdk import Held, HeldAudio, Job, JobError, Node, Reason, Translated
from lingua_scheduler.sdk.node.protocol.effects import NodeEffect
from lingua_scheduler.sdk.node.protocol.machine import NodeProtocol
from lingua_scheduler.v1 import dispatcher_pb2

WORD_MS = 100
# At 16 kHz.
WORD_SAMPLES = 1600

# Words that are no others: nobody ever has done with the first, and nobody can do the second.
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
    """Whether the audio is held: speech that goes on, or that stopped after an odd word."""
    if reason in (Reason.TIMEOUT, Reason.INTERRUPTED):
        return int(words[-1].removesuffix("?")) % 2 == 1
    return reason in (Reason.MAX_DURATION, Reason.MAX_LENGTH)


def tell(what: str, node_id: str, **more: Any) -> None:
    """One line for the test."""
    print(json.dumps({"what": what, "node": node_id, **more}), flush=True)


class _TellingProtocol(NodeProtocol):
    """Tells when it is connected, and of each assignment."""

    def __init__(self, hello: dispatcher_pb2.Hello) -> None:
        super().__init__(hello=hello)
        self._node_id = hello.node_id

    def on_message(self, now: float, message: dispatcher_pb2.DispatcherMessage) -> list[NodeEffect]:
        was_welcomed = self.welcomed
        effects = super().on_message(now, message)
        if self.welcomed and not was_welcomed:
            tell("connected", self._node_id)
        return effects

    def on_assign(self, now: float, assign: dispatcher_pb2.JobAssign) -> None:
        job = assign.job
        tell("assigned", self._node_id, job=assign.attempt.job_id, index=job.utterance_index)
        super().on_assign(now, assign)


class ListeningNode(Node):
    """Answers each job with the words of its audio, and of what it had held before.

    Args:
        work_s: what a job takes.
        options: of Node.
    """

    def __init__(
        self, *, node_id: str, langs: list[str], slots: int, work_s: float, **options: Any
    ) -> None:
        options = {"slots": slots, "drain_seconds": 10, **options}
        super().__init__(node_id=node_id, asr=langs, semantic=langs, tts=langs, **options)
        self.load = lambda: (0.0, 0.0)
        self.handler(self._translate)
        self._work_s = work_s
        self._held = HeldAudio()

    def make_protocol(self, hello: dispatcher_pb2.Hello) -> NodeProtocol:
        """One that tells what it hears."""
        return _TellingProtocol(hello)

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
            tell("started", self.node_id, **which)
            unfinished = is_unfinished(job.reason, words)
            if unfinished:
                job.hold()
            await asyncio.sleep(float("inf") if str(ENDLESS) in words else self._work_s)
            if str(IMPOSSIBLE) in words:
                raise JobError("IMPOSSIBLE_WORD", worth_retry=False)
            tell("finished", self.node_id, held=unfinished, **which)
            if unfinished:
                turn.keep()
                yield Held()
            else:
                text = " ".join(words)
                yield Translated(source=text, translated=text, joined=turn.joined)


def main() -> None:
    """Runs one node until it is told to end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--id", required=True)
    parser.add_argument("--dispatchers", required=True, help="ADDRESS[,ADDRESS...]")
    parser.add_argument("--langs", default="en,es", help="what it hears and speaks")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--work-ms", type=int, default=30)
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    node = ListeningNode(
        node_id=chosen.id,
        langs=chosen.langs.split(","),
        slots=chosen.slots,
        work_s=chosen.work_ms / 1000,
    )
    tell("began", chosen.id)
    node.run(chosen.dispatchers)


if __name__ == "__main__":
    main()
