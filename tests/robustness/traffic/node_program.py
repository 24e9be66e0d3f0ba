"""A node of the SDK as a process of its own, which writes down what happens to it.

It takes whatever it is given, also beyond its slots, and counts for itself: a scheduler that relies
on its refusal is found out. What it does can be changed while it runs, by a file with JSON in it:

    work_ms        what a job takes
    lose           assignments are read and forgotten
    mute           nothing is sent at all, heartbeats included
    twice          acknowledgements and results are sent twice
    late           time limits are not kept, and what was cancelled is answered all the same, with
                   words that nobody said
    fail_every     each such job fails, and is worth another try (0: none)
    flood          partial texts of all jobs are sent without a pause, wanted or not

Records, one JSON object a line: began, connected, assigned (with the words of its audio, the
earlier utterances that it begins with, the target language, and whether speech is wanted), started
(`at_once`: jobs that run now), finished (`held`: the node keeps the audio), failed, stopped.
"""

import asyncio
import logging

from lingua_scheduler.sdk import Held, HeldAudio, Job, JobError, Node, Translated
from lingua_scheduler.sdk.node.protocol.effects import NodeEffect
from lingua_scheduler.sdk.node.protocol.machine import NodeProtocol
from lingua_scheduler.sdk.node.protocol.wire import Ref, attempt_of
from lingua_scheduler.v1 import dispatcher_pb2
from lingua_scheduler.v1.dispatcher_pb2 import NodeEvent, NodeMessage
from tests.robustness.traffic import BAD, LANGUAGES, ROOM, WHO
from tests.support.listening_node import is_unfinished, words_in
from tests.support.node_process import NodeOptions
from tests.support.records import Diary

# More than anybody assigns: the node does not defend itself.
BOUNDLESS = 1_000_000
# Ten people keep half of all slots busy with this.
WORK_MS = 400
# Jobs of rooms, of which there are as many as there are languages.
ROOM_WORK_MS = 60
# Between two partial texts of a job, by a node that floods them.
FLOOD_S = 0.005


class _Protocol(NodeProtocol):
    def __init__(self, hello: dispatcher_pb2.Hello, diary: Diary) -> None:
        super().__init__(hello=hello)
        self._attempts.slots = BOUNDLESS
        self._diary = diary
        self._again: list[NodeEvent] = []
        self._flood_at = 0.0
        self._partials_sent = 0

    def on_message(self, now: float, message: dispatcher_pb2.DispatcherMessage) -> list[NodeEffect]:
        was_welcomed = self.welcomed
        effects = super().on_message(now, message)
        if self.welcomed and not was_welcomed:
            self._diary.note("connected")
        return effects

    def on_assign(self, now: float, assign: dispatcher_pb2.JobAssign) -> None:
        job = assign.job
        # Where only the result is asked for, there is no audio.
        if not assign.only_if_known:
            self._diary.note(
                "assigned",
                session=job.features.get(WHO) or assign.attempt.job_id,
                index=job.utterance_index,
                attempt=assign.attempt.attempt,
                words=words_in(job.audio),
                included=list(job.included_utterances),
                tgt=job.pair.tgt,
                job=assign.attempt.job_id,
                speech=job.require_tts,
            )
        if not self._diary.order("lose"):
            super().on_assign(now, assign)

    def on_cancel(self, ref: Ref, why: str) -> None:
        super().on_cancel(ref, why)
        if self._diary.order("late"):
            self._again.append(_false_result(ref))

    def on_overrun(self, ref: Ref) -> None:
        if not self._diary.order("late"):
            super().on_overrun(ref)

    def next_deadline(self, now: float) -> float | None:
        due = super().next_deadline(now)
        if not self._floods:
            return due
        return min(due or self._flood_at, self._flood_at)

    @property
    def _floods(self) -> bool:
        return bool(self.welcomed and self.running and self._diary.order("flood"))

    def take(self, now: float) -> NodeMessage | None:
        if self._diary.order("mute") and self.welcomed:
            return None
        message = super().take(now)
        if self._floods and now >= self._flood_at:
            self._flood_at = now + FLOOD_S
            message = message or NodeMessage()
            message.events.extend(self._partial(attempt.ref) for attempt in self._attempts)
        if message is None or not self.welcomed:
            return message
        again, self._again = self._again, []
        if self._diary.order("twice"):
            kinds = ("job_ack", "job_result", "job_failed")
            twice = [each for each in message.events if each.WhichOneof("event") in kinds]
            # At once, and once more with the next message.
            again += twice
            self._again = list(twice)
        message.events.extend(again)
        return message

    def _partial(self, ref: Ref) -> NodeEvent:
        self._partials_sent += 1
        texts = dispatcher_pb2.Texts(source="partial", translated="partial")
        partial = dispatcher_pb2.JobPartial(
            attempt=attempt_of(ref), texts=texts, seq=self._partials_sent
        )
        return NodeEvent(job_partial=partial)


def _false_result(ref: Ref) -> NodeEvent:
    result = dispatcher_pb2.JobResult(
        attempt=attempt_of(ref),
        kind=dispatcher_pb2.JobResult.KIND_TRANSLATED,
        texts=dispatcher_pb2.Texts(source="late", translated="late"),
    )
    return NodeEvent(job_result=result)


class RecordingNode(Node):
    """Answers with the words of the audio, and of what it had held before."""

    def __init__(self, *, node_id: str, slots: int, diary: Diary) -> None:
        langs = list(LANGUAGES)
        super().__init__(
            node_id=node_id, asr=langs, semantic=langs, tts=langs, slots=slots, drain_seconds=8
        )
        self.load = lambda: (0.0, 0.0)
        self.handler(self._translate)
        self._diary = diary
        self._held = HeldAudio()
        self._at_once = 0
        self._jobs = 0

    def make_protocol(self, hello: dispatcher_pb2.Hello) -> NodeProtocol:
        """One that writes down what it hears, and misbehaves as it is told."""
        return _Protocol(hello, self._diary)

    async def _translate(self, job: Job) -> Held | Translated:
        self._jobs += 1
        self._at_once += 1
        which = {
            "session": job.features.get(WHO) or job.job_id,
            "index": job.utterance_index,
            "attempt": job.attempt,
        }
        self._diary.note("started", at_once=self._at_once, **which)
        end, held = "stopped", False
        try:
            result = await self._work(job)
            end, held = "finished", isinstance(result, Held)
        except JobError:
            end = "failed"
            raise
        finally:
            self._at_once -= 1
            self._diary.note(end, held=held, **which)
        return result

    async def _work(self, job: Job) -> Held | Translated:
        if BAD in job.features:
            raise JobError("BROKEN_AUDIO", worth_retry=False)
        with self._held.turn(job) as turn:
            words = words_in(turn.audio)
            unfinished = is_unfinished(job.reason, words)
            if unfinished:
                job.hold()
            work_ms = ROOM_WORK_MS if ROOM in job.features else WORK_MS
            await asyncio.sleep((self._diary.order("work_ms") or work_ms) / 1000)
            every = self._diary.order("fail_every")
            if every and self._jobs % every == 0:
                raise JobError("SIMULATED")
            if unfinished:
                turn.keep()
                return Held()
            text = " ".join((job.pair.tgt, *words))
            # Speech is as good as its text here, in an even number of bytes.
            wants_speech = job.require_tts and ROOM in job.features
            speech = (text + " " * (len(text) % 2)).encode() if wants_speech else b""
            return Translated(
                source=" ".join(words),
                translated=text,
                speech=speech,
                speech_format=job.audio_format if wants_speech else None,
                joined=turn.joined,
            )


def main() -> None:
    """Runs one node until it is told to end."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    options = NodeOptions()
    options.diary.note("began")
    node = RecordingNode(
        node_id=options.node_id, slots=options.number("slots", 1), diary=options.diary
    )
    node.run(options.dispatchers)
