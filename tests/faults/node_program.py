"""The program of a node that is killed; NodeProcess runs it.

Options: `src` and `tgt`, its languages; `ignores`, 1 if it reads assignments and does nothing about
them. It finishes no job before the order `go`.
"""

import asyncio
from collections.abc import AsyncIterator

from lingua_scheduler.sdk import Job, Node, Translated
from lingua_scheduler.sdk.node.protocol.machine import NodeProtocol
from lingua_scheduler.v1 import dispatcher_pb2
from tests.support.node_process import NodeOptions
from tests.support.records import Diary


class _Ignoring(NodeProtocol):
    """Reads assignments, and does nothing about them."""

    def __init__(self, hello: dispatcher_pb2.Hello, diary: Diary) -> None:
        super().__init__(hello=hello)
        self._diary = diary

    def on_assign(self, now: float, assign: dispatcher_pb2.JobAssign) -> None:
        self._diary.note("assigned", job=assign.attempt.job_id)


class _Node(Node):
    def __init__(self, options: NodeOptions) -> None:
        src, tgt = options.text("src", ""), options.text("tgt", "")
        super().__init__(node_id=options.node_id, asr=[src], semantic=[src], tts=[tgt], slots=2)
        self.load = lambda: (0.0, 0.0)
        self.handler(self._translate)
        self._ignores = options.number("ignores", 0)
        self._diary = options.diary

    def make_protocol(self, hello: dispatcher_pb2.Hello) -> NodeProtocol:
        return _Ignoring(hello, self._diary) if self._ignores else super().make_protocol(hello)

    async def _translate(self, job: Job) -> AsyncIterator[Translated]:
        self._diary.note("started", job=job.job_id)
        while not self._diary.order("go"):  # noqa: ASYNC110, another process gives it
            await asyncio.sleep(0.02)
        yield Translated(source="from the victim", translated="from the victim")


def main() -> None:
    """Serves until it is killed."""
    options = NodeOptions()
    _Node(options).run(options.dispatchers)
