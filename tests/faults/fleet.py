"""Nodes of the SDK in this process, which record what they do and can be told to misbehave."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from types import SimpleNamespace

import pytest

from lingua_scheduler.sdk import Channels, Job, JobError, Node, Translated
from lingua_scheduler.sdk.node import node as node_module
from lingua_scheduler.sdk.node.protocol.machine import NodeProtocol
from lingua_scheduler.sdk.node.protocol.wire import ref_of
from lingua_scheduler.v1 import dispatcher_pb2
from tests.faults.cluster import NAME, SLACK_S, Cluster

# What a node does with an assignment: take it on, lose it, or reject it.
TAKE, LOSE, REJECT = "take", "lose", "reject"


class _InOrder(random.Random):
    """Chooses the first address; all else is random."""

    def randrange(self, *bounds: int, **more: int) -> int:
        return 0


def use_first_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes nodes try their dispatchers in the given order from now on."""
    monkeypatch.setattr(node_module, "random", SimpleNamespace(Random=_InOrder))


def text_of(audio: bytes) -> str:
    """The text of any node for this audio."""
    return f"heard {audio.hex()}"


class Records:
    """What the nodes of a fleet did, and how they behave.

    Attributes:
        assigned, started, finished: how often, by the job's session.
        decide: what becomes of an assignment.
        work: does the job; may raise JobError.
    """

    def __init__(self) -> None:
        self.assigned: Counter[str] = Counter()
        self.started: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.decide: Callable[[dispatcher_pb2.JobAssign], str] = lambda _: TAKE
        self.work: Callable[[Job], object] = lambda _: asyncio.sleep(0.01)


class RecordingNode(Node):
    """A node that counts for itself how many jobs it runs at once."""

    def __init__(self, *, records: Records, slots: int, **options: object) -> None:
        super().__init__(slots=slots, drain_seconds=5.0, **options)  # type: ignore[arg-type]
        self.slots = slots
        self.at_once = 0
        self.most_at_once = 0
        self._records = records
        self.load = lambda: (0.0, 0.0)
        self.handler(self._translate)

    def make_protocol(self, hello: dispatcher_pb2.Hello) -> NodeProtocol:
        """Returns a protocol that asks the records what to do with an assignment."""
        return _DecidingProtocol(hello, self._records)

    async def _translate(self, job: Job) -> AsyncIterator[Translated]:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self._records.started[job.features[NAME]] += 1
        try:
            await self._records.work(job)  # type: ignore[misc]
        finally:
            self.at_once -= 1
        self._records.finished[job.features[NAME]] += 1
        text = text_of(job.audio)
        yield Translated(source=text, translated=text)


class _DecidingProtocol(NodeProtocol):
    def __init__(self, hello: dispatcher_pb2.Hello, records: Records) -> None:
        super().__init__(hello=hello)
        self._records = records

    def on_assign(self, now: float, assign: dispatcher_pb2.JobAssign) -> None:
        decision = self._records.decide(assign)
        self._records.assigned[assign.job.features[NAME]] += 1
        if decision == TAKE:
            super().on_assign(now, assign)
        elif decision == REJECT:
            cause = dispatcher_pb2.JobReject.CAUSE_FULL
            self.reject(ref_of(assign.attempt), cause, "the test says so")


class Fleet:
    """Nodes that serve until the end of the block."""

    def __init__(self, cluster: Cluster, channels: Channels) -> None:
        self.records = Records()
        self.nodes: list[RecordingNode] = []
        self._cluster = cluster
        self._channels = channels
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def node_ids(self) -> list[str]:
        """The ids of all nodes."""
        return [node.node_id for node in self.nodes]

    def add(self, count: int, addresses: Sequence[str], *, slots: int = 2) -> None:
        """Starts more nodes."""
        src, tgt = self._cluster.src, self._cluster.tgt
        for _ in range(count):
            node = RecordingNode(
                records=self.records,
                slots=slots,
                node_id=f"{src}-{len(self.nodes)}",
                asr=[src],
                semantic=[src],
                tts=[tgt],
                channels=self._channels,
            )
            self.nodes.append(node)
            self._tasks.append(asyncio.create_task(node.serve(addresses)))

    async def all_connected(self, within: float = 5.0 + SLACK_S) -> None:
        """Waits until every node is connected."""
        async with asyncio.timeout(within):
            while not all(node.connected for node in self.nodes):
                for task in self._tasks:
                    assert not task.done(), task
                await asyncio.sleep(0.01)

    def check_slots(self) -> None:
        """Fails if a node ever ran more jobs than it has slots."""
        over = [node.node_id for node in self.nodes if node.most_at_once > node.slots]
        assert not over, f"ran more jobs at once than they have slots: {over}"

    async def close(self) -> None:
        """Ends all nodes at once."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channels.close()


@contextlib.asynccontextmanager
async def fleet_of(
    cluster: Cluster, count: int, addresses: Sequence[str], *, slots: int = 2
) -> AsyncIterator[Fleet]:
    """A fleet whose nodes are connected."""
    fleet = Fleet(cluster, Channels())
    try:
        fleet.add(count, addresses, slots=slots)
        await fleet.all_connected()
        yield fleet
        fleet.check_slots()
    finally:
        await fleet.close()


def failing(detail: str) -> JobError:
    """A failure that is worth a retry on another node."""
    return JobError("SIMULATED", detail)
