"""A conversation over the real path, as far as it exists: what `make run` shows.

Redis, the services, the nodes (processes of their own, over real streams) and every call are real.
The two speakers, and the gateway that will cut their speech, are played by this script.
"""

import math
import os
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

import grpc

from lingua_scheduler.cli.up import LocalScheduler
from lingua_scheduler.cli.up_command import how_to_talk
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, dispatcher_pb2_grpc, pool_pb2_grpc
from lingua_scheduler.v1.pool_pb2 import ListNodesRequest

RATE = 16000
NODES = {"amber": "zh,en", "birch": "zh,en", "cedar": "en,es"}
ANA, BEN = 220, 330  # how high they speak, in Hz
CUTS = {
    "final": common_pb2.FINALIZE_REASON_IS_FINAL,
    "pause": common_pb2.FINALIZE_REASON_TIMEOUT,
    "too long": common_pb2.FINALIZE_REASON_MAX_DURATION,
}
WITHIN_S = 20.0


def speech(seconds: float, hertz: int, *, ends: bool) -> bytes:
    """A voice, and where the sentence ends, silence after it."""
    tone = array(
        "h",
        (int(9000 * math.sin(2 * math.pi * hertz * i / RATE)) for i in range(int(seconds * RATE))),
    )
    return tone.tobytes() + (bytes(RATE // 2) if ends else b"")


@dataclass
class Outcome:
    """What came of an utterance."""

    node: str
    text: str
    attempts: int
    joined: list[int]
    took_ms: float


class Speakers:
    """Submits utterances, one after the other, on one stream; prints a line for each."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._outgoing: Queue[dispatcher_pb2.SubmitRequest | None] = Queue()
        stub: Any = dispatcher_pb2_grpc.DispatcherStub(self._channel)
        self._events: Any = stub.Submit(iter(self._outgoing.get, None))
        self._next = 0
        self.wrong = 0

    def close(self) -> None:
        """Ends the stream."""
        self._outgoing.put(None)
        self._events.cancel()
        self._channel.close()

    def say(
        self,
        who: str,
        direction: str,
        seconds: float,
        cut: str,
        *,
        ends: bool = True,
        meanwhile: Callable[[str], None] = lambda _node: None,
    ) -> Outcome:
        """One utterance from its audio to its result. `meanwhile` runs when a node has taken it."""
        src, tgt = direction.split("->")
        spec = dispatcher_pb2.JobSpec(
            tenant="example",
            session_id=f"conversation-{os.getpid()}",
            utterance_index=self._next,
            pair=common_pb2.LanguagePair(src=src, tgt=tgt),
            audio=speech(seconds, ANA if who == "Ana" else BEN, ends=ends),
            audio_format=common_pb2.AudioFormat(
                encoding=common_pb2.AUDIO_ENCODING_PCM_S16LE, sample_rate_hz=RATE, channels=1
            ),
            reason=CUTS[cut],
            require_tts=True,
            partial_interval_ms=100,
            deadline_ms=int(WITHIN_S * 1000),
        )
        self._next += 1
        started = time.perf_counter()
        self._submit(dispatcher_pb2.Submission(job=spec))
        outcome = self._follow(spec.utterance_index, started, meanwhile)
        print(
            f"{who:<5} {direction:<7} {spec.utterance_index:>3}  {cut:<9} {outcome.node:<7}"
            f" {outcome.attempts:>5}  {outcome.took_ms:>6.0f} ms  {outcome.text}"
        )
        return outcome

    def check(self, true: bool, what: str) -> None:
        """Notes, and says, where something was not as it must be."""
        if not true:
            self.wrong += 1
            print(f"      NOT AS EXPECTED: {what}")

    def _follow(self, index: int, started: float, meanwhile: Callable[[str], None]) -> Outcome:
        attempts = 1
        for event in self._own_events(index):
            kind = event.WhichOneof("event")
            if kind == "accepted":
                meanwhile(event.accepted.node_id)
            elif kind == "retrying":
                attempts += 1
                print(f"      attempt {event.retrying.attempt} ended: {event.retrying.why.message}")
            elif kind in ("delivered", "failed"):
                taken = dispatcher_pb2.ResultTaken(job_id=event.job_id)
                self._submit(dispatcher_pb2.Submission(taken=taken))
                result = event.delivered.result
                name = dispatcher_pb2.JobResult.Kind.Name(result.kind).removeprefix("KIND_")
                text = result.texts.translated or f"({name.lower()})"
                if kind == "failed":
                    self.wrong += 1
                    text = f"FAILED: {event.failed.message}"
                took = (time.perf_counter() - started) * 1000
                joined = list(result.joined_utterances)
                return Outcome(event.delivered.node_id, text, attempts, joined, took)
        raise RuntimeError("the dispatcher ended the stream")

    def _own_events(self, index: int) -> Iterator[dispatcher_pb2.JobEvent]:
        for message in self._events:
            yield from (each for each in message.events if each.utterance_index == index)

    def _submit(self, submission: dispatcher_pb2.Submission) -> None:
        self._outgoing.put(dispatcher_pb2.SubmitRequest(submissions=[submission]))


def talk(speakers: Speakers, nodes: dict[str, "subprocess.Popen[bytes]"]) -> None:
    """The conversation, and what is to be seen in it."""
    say, check = speakers.say, speakers.check
    say("Ana", "zh->en", 1.5, "final")
    say("Ben", "en->zh", 1.0, "final")
    print("      Ana talks for long: what is cut stays with the node that has the beginning")
    first = say("Ana", "zh->en", 4.0, "too long", ends=False)
    say("Ben", "en->zh", 0.8, "final")
    second = say("Ana", "zh->en", 4.0, "too long", ends=False)
    last = say("Ana", "zh->en", 2.0, "final")
    check(first.node == second.node == last.node, "the parts went to different nodes")
    check("10." in last.text and len(last.joined) == 2, "the parts were not joined")
    print("      Ana pauses in the middle of a sentence: the node holds the audio, and says so")
    paused = say("Ana", "zh->en", 1.0, "pause", ends=False)
    rest = say("Ana", "zh->en", 1.0, "final")
    check(paused.node == rest.node and len(rest.joined) == 1, "the pause was not joined")
    check(say("Ben", "en->es", 1.0, "final").node == "cedar", "only cedar speaks es")
    print("      the next node that takes a job is killed with it")

    def kill(node_id: str) -> None:
        if all(node.poll() is None for node in nodes.values()):
            nodes[node_id].kill()
            print(f"      {node_id} is dead")

    first, second = (say("Ana", "zh->en", 6.0, "final", meanwhile=kill) for _ in range(2))
    check(first.attempts == 2 and first.node == second.node, "the job did not run elsewhere")


def start_nodes(address: str) -> dict[str, "subprocess.Popen[bytes]"]:
    """The sample nodes, each a process that ends with this one."""
    script = Path(__file__).with_name("sample_node.py")
    return {
        name: subprocess.Popen(
            [
                *(sys.executable, str(script), "--id", name, "--langs", langs),
                *("--dispatcher", address, "--until-eof"),
            ],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for name, langs in NODES.items()
    }


def await_nodes(address: str) -> None:
    """Returns when the pool service knows all sample nodes."""
    with grpc.insecure_channel(address) as channel:
        stub: Any = pool_pb2_grpc.PoolServiceStub(channel)
        deadline = time.monotonic() + WITHIN_S
        while len(stub.ListNodes(ListNodesRequest(), timeout=5).nodes) < len(NODES):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the sample nodes did not connect within {WITHIN_S:g} s")
            time.sleep(0.05)


def main() -> int:
    """Runs it all; 0 only if everything was as it must be."""
    print(__doc__)
    seconds = float(os.environ.get("RUN_SECONDS") or "inf")
    started = time.monotonic()
    environ = {**os.environ, "LINGUA_LOG_LEVEL": os.environ.get("LINGUA_LOG_LEVEL", "error")}
    # A killed node does not come back here, so there is no use in waiting long for it.
    environ.setdefault("LINGUA_NODE_RECONNECT_GRACE_MS", "1000")

    def log(name: str, line: str) -> None:
        print(f"{name} | {line}", file=sys.stderr)

    with LocalScheduler(environ=environ, on_log=log) as scheduler:
        print(f"Redis       {scheduler.redis_words}")
        for each in scheduler.services:
            print(f"{each.name:<11} {each.address}")
        nodes = start_nodes(scheduler.address("dispatcher"))
        try:
            await_nodes(scheduler.address("pool"))
            print(f"nodes       {', '.join(f'{name} ({langs})' for name, langs in NODES.items())}")
            print(
                "\nWHO   PAIR    UTT  CUT BY    NODE    TRIES       TOOK  WHAT THE NODE MADE OF IT"
            )
            speakers = Speakers(scheduler.address("dispatcher"))
            watchdog = threading.Timer(10 * WITHIN_S, speakers.close)
            watchdog.daemon = True
            watchdog.start()
            talk(speakers, nodes)
            watchdog.cancel()
            speakers.close()
            print(f"\nDone: {speakers.wrong} not as expected. It stays up; in another terminal:")
            print("\n".join(how_to_talk(scheduler)))
            print("Ctrl-C ends it." if seconds == math.inf else "It ends by itself.", flush=True)
            left = None if seconds == math.inf else seconds - (time.monotonic() - started)
            scheduler.wait(None if left is None else max(0.0, left))
            return 1 if speakers.wrong else 0
        finally:
            for node in nodes.values():
                node.terminate()
            for node in nodes.values():
                node.wait()
                assert node.stdin is not None
                node.stdin.close()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(0)
