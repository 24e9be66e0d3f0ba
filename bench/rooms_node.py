"""Nodes that answer jobs of rooms at once, for `rooms.py`; otherwise as `path_node.py`.

On SIGTERM it writes one line per job, `index:language assigned_ns answered_ns`.
"""

import argparse
import time
from functools import partial

import path_node
import uvloop
from rooms_client import LANGUAGES, SPOKEN

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

# As long as a caption of an utterance of some seconds.
TEXT = "and this is what somebody said in the room, in a language that somebody else understands"
FORMAT = common_pb2.AudioFormat(
    encoding=common_pb2.AUDIO_ENCODING_PCM_S16LE, sample_rate_hz=16_000, channels=1
)


class OfRooms(path_node.AtOnce):
    """One node, which translates to all languages of the room."""

    def __init__(
        self, node_id: str, slots: int, seen: list[tuple[str, int, int]], *, speech: bytes
    ) -> None:
        super().__init__(node_id, slots, seen)
        spoken = [SPOKEN]
        able = common_pb2.NodeCapabilities(
            asr_langs=spoken, semantic_langs=spoken, tts_langs=LANGUAGES
        )
        self._hello.capabilities.CopyFrom(able)
        self._speech = speech

    def _answer(self, assign: dispatcher_pb2.JobAssign, now: int) -> list[dispatcher_pb2.NodeEvent]:
        job = assign.job
        result = dispatcher_pb2.JobResult(
            attempt=assign.attempt,
            kind=path_node.RESULT,
            texts=dispatcher_pb2.Texts(source=TEXT, repaired=TEXT, translated=TEXT),
        )
        if job.require_tts:
            result.speech = self._speech
            result.speech_format.CopyFrom(FORMAT)
        which = f"{job.session_id}:{job.utterance_index}:{job.pair.tgt}"
        self._seen.append((which, now, time.monotonic_ns()))
        ack = dispatcher_pb2.JobAck(attempt=assign.attempt)
        return [
            dispatcher_pb2.NodeEvent(job_ack=ack),
            dispatcher_pb2.NodeEvent(job_result=result),
        ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("addresses", help="dispatchers, separated by commas")
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--speech-bytes", type=int, default=32_000)
    given = parser.parse_args()
    make = partial(OfRooms, speech=bytes(given.speech_bytes))
    uvloop.run(path_node.main(given.addresses.split(","), given.count, given.slots, "rooms", make))
