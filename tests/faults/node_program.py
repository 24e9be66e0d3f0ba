"""A node as a process of its own, to be killed: node_program.py ADDRESSES ID SRC TGT take|ignore.

It prints what happens to it, one word and the job's id a line. It never finishes a job by
itself: a line on stdin lets it.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

from lingua_scheduler.sdk import Job, Node, Translated
from lingua_scheduler.sdk.node.protocol.machine import NodeProtocol
from lingua_scheduler.v1 import dispatcher_pb2


class _Ignoring(NodeProtocol):
    """Reads assignments, and does nothing about them."""

    def on_assign(self, now: float, assign: dispatcher_pb2.JobAssign) -> None:
        print("assigned", assign.attempt.job_id, flush=True)


class _Node(Node):
    ignores = False

    def make_protocol(self, hello: dispatcher_pb2.Hello) -> NodeProtocol:
        return _Ignoring(hello=hello) if self.ignores else super().make_protocol(hello)


async def main(addresses: str, node_id: str, src: str, tgt: str, mode: str) -> None:
    """Serves until it is killed."""
    node = _Node(node_id=node_id, asr=[src], semantic=[src], tts=[tgt], slots=2)
    node.ignores = mode == "ignore"
    node.load = lambda: (0.0, 0.0)
    go = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, go.set)

    @node.handler
    async def translate(job: Job) -> AsyncIterator[Translated]:
        print("started", job.job_id, flush=True)
        await go.wait()
        yield Translated(source="from the victim", translated="from the victim")

    await node.serve(addresses)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
