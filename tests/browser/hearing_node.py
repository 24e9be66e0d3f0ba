"""A node that keeps all audio that it gets; a program for NodeProcess.

Its text says how much it has heard, and its speech is a short tone. Orders change what it does:

    work_ms        how long a job takes
    fail           each job fails, and is not worth another try
    deaf           it hears no speech in anything

Records: began, connected, started, finished (`held`: the node keeps the audio). The audio of a
finished job is in a file beside the records, see `audio_of_job`.
"""

import asyncio
import logging
from array import array
from collections.abc import AsyncIterator
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
    Translated,
)
from lingua_scheduler.sdk.node.protocol.effects import NodeEffect
from lingua_scheduler.sdk.node.protocol.machine import NodeProtocol
from lingua_scheduler.v1 import dispatcher_pb2
from tests.support.node_process import NodeOptions, NodeProcess
from tests.support.records import Diary

PROGRAM = "tests.browser.hearing_node"
WORK_MS = 150
SPEECH_FORMAT = AudioFormat(Encoding.PCM_S16LE, sample_rate_hz=16_000, channels=1)
# 0.3 s of a square wave at 400 Hz.
SPEECH = array("h", ([3000] * 20 + [-3000] * 20) * 120).tobytes()
_CUT = (Reason.MAX_DURATION, Reason.MAX_LENGTH)


class _Protocol(NodeProtocol):
    """Records when it is welcomed."""

    def __init__(self, hello: dispatcher_pb2.Hello, diary: Diary) -> None:
        super().__init__(hello=hello)
        self._diary = diary

    def on_message(self, now: float, message: dispatcher_pb2.DispatcherMessage) -> list[NodeEffect]:
        was_welcomed = self.welcomed
        effects = super().on_message(now, message)
        if self.welcomed and not was_welcomed:
            self._diary.note("connected")
        return effects


class HearingNode(Node):
    """Answers each job with the duration of its audio and of the audio that it had held before.

    Args:
        langs: it hears, translates and speaks all of them.
        audio: the folder for the audio of its jobs.
        diary: records what happens to it, and has its orders.
        holds: whether it keeps speech that was cut, for what follows.
    """

    def __init__(
        self,
        *,
        node_id: str,
        langs: list[str],
        tts: list[str],
        slots: int,
        audio: Path,
        diary: Diary,
        holds: bool,
        token: Path | None,
    ) -> None:
        super().__init__(
            node_id=node_id,
            asr=langs,
            semantic=langs,
            tts=tts,
            slots=slots,
            token=token,
            drain_seconds=8,
        )
        self.load = lambda: (0.0, 0.0)
        self.handler(self._translate)
        self._audio = audio
        self._diary = diary
        self._holds = holds
        self._held = HeldAudio()

    def make_protocol(self, hello: dispatcher_pb2.Hello) -> NodeProtocol:
        """Returns a protocol that records."""
        return _Protocol(hello, self._diary)

    async def _translate(self, job: Job) -> AsyncIterator[Partial | Held | NoSpeech | Translated]:
        which = {"job": job.job_id, "index": job.utterance_index, "src": job.pair.src}
        self._diary.note("started", **which)
        with self._held.turn(job) as turn:
            heard = f"{len(turn.audio) // 32} ms of {job.pair.src}"
            yield Partial(source=heard)
            await asyncio.sleep((self._diary.order("work_ms") or WORK_MS) / 1000)
            if self._diary.order("fail"):
                raise JobError("SIMULATED", "this node was told to fail", worth_retry=False)
            held = self._holds and job.reason in _CUT
            # Complete before anybody is told of it, also if the process is killed.
            new = self._audio / f"{job.job_id}.new"
            new.write_bytes(turn.audio)
            new.rename(self._audio / f"{job.job_id}.pcm")
            self._diary.note("finished", held=held, **which)
            if self._diary.order("deaf"):
                yield NoSpeech(joined=turn.joined)
            elif held:
                turn.keep()
                yield Held()
            else:
                yield Translated(
                    source=heard,
                    repaired=heard,
                    translated=f"{heard} in {job.pair.tgt}",
                    speech=SPEECH if job.require_tts else b"",
                    speech_format=SPEECH_FORMAT,
                    joined=turn.joined,
                )


def audio_of_job(node: NodeProcess, job_id: str) -> bytes:
    """What the node has heard for a job, with what it had held for it."""
    return node.file(f"{job_id}.pcm").read_bytes()


def main() -> None:
    """Runs one node until it is told to end."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    options = NodeOptions()
    options.diary.note("began")
    langs = options.text("langs", "en,es").split(",")
    token = options.text("token", "")
    node = HearingNode(
        node_id=options.node_id,
        langs=langs,
        tts=options.text("tts", ",".join(langs)).split(","),
        slots=options.number("slots", 4),
        audio=Path(options.text("records", "")).parent,
        diary=options.diary,
        holds=bool(options.number("holds", 1)),
        token=Path(token) if token else None,
    )
    node.run(options.dispatchers)
