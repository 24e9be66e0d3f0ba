"""The network between all processes: one proxy a pair, in a thread of its own.

A `Link` is the way from one process to another. It can be cut, fall silent, be slow, lose packets,
or swallow the answers: then what was asked is done, and whoever asked sees a time-out.
"""

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable
from typing import Any, Self

from tests.robustness.history import Lost
from tests.robustness.loss import DroppedPackets, StalledPieces, is_own

OPEN, CUT, SILENT, SWALLOW = "open", "cut", "silent", "swallow"
_READ_BYTES = 65_536
_LOOK_S = 0.02


class Link:
    """The way from one process to another; made by `Network.link`.

    Attributes:
        name: such as "gateway-0>dispatcher-1".
        address: what the caller is told.
        target: where it leads; may be set after its address is known.
        state: OPEN; CUT: connections are reset, and so is every new one; SILENT: nothing passes,
            and both ends look alive; SWALLOW: answers do not come back, on any connection that has
            lost one.
        delay_s: each way, for each piece of data.
        jitter_s: up to so much more, at random.
        loss: what loses its packets now.
        passed: pieces of data so far, both ways.
        trap: what to do, once, before a request with some bytes passes.
    """

    def __init__(self, name: str, target: str) -> None:
        self.name = name
        self.address = ""
        self.target = target
        self.state = OPEN
        self.delay_s = 0.0
        self.jitter_s = 0.0
        self.loss: DroppedPackets | StalledPieces | None = None
        self.passed = 0
        self.trap: tuple[bytes, Callable[[], None]] | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._rng = random.Random(name)

    @property
    def is_used(self) -> bool:
        """Whether there is a connection now."""
        return bool(self._writers)

    def reset(self) -> None:
        """Drops the connections that there are; in the network's thread."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def listen(self) -> asyncio.Server:
        """Takes connections from now on."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    async def close(self) -> None:
        """Ends all that passes."""
        self.reset()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self.state == CUT:
            writer.transport.abort()
            return
        host, _, port = self.target.rpartition(":")
        try:
            out_reader, out_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, out_writer}
        try:
            await asyncio.gather(
                self._pass(reader, out_writer, answers=False),
                self._pass(out_reader, writer, answers=True),
            )
        finally:
            self._writers -= {writer, out_writer}

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        swallows = False
        try:
            while data := await source.read(_READ_BYTES):
                wait = self.delay_s + self.jitter_s * self._rng.random()
                if loss := self.loss:
                    wait += loss.stall_s
                if wait:
                    await asyncio.sleep(wait)
                while self.state == SILENT:  # noqa: ASYNC110, another thread sets it
                    await asyncio.sleep(_LOOK_S)
                if not answers and self.trap and self.trap[0] in data:
                    (_, spring), self.trap = self.trap, None
                    spring()
                swallows = swallows or (answers and self.state == SWALLOW)
                if not swallows:
                    self.passed += 1
                    sink.write(data)
                    await sink.drain()
        except OSError:
            pass
        finally:
            # One side is gone, so the other goes.
            sink.transport.abort()


class Network:
    """All links. A context manager; its methods may be called from any thread."""

    def __init__(self) -> None:
        self.links: dict[str, Link] = {}
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def link(self, caller: str, target: str, address: str = "") -> Link:
        """The way from one named process to another."""
        made = Link(f"{caller}>{target}", address)
        self._servers.append(self._do(made.listen))
        self.links[made.name] = made
        return made

    def change(self, link: Link, state: str) -> None:
        """Sets a link's state; a cut drops what is connected."""
        link.state = state
        if state == CUT:
            self._loop.call_soon_threadsafe(link.reset)

    def mend(self, link: Link) -> None:
        """A link is as it should be; connections that are mute by now are dropped."""
        swallowed = link.state == SWALLOW
        link.state, link.delay_s, link.jitter_s, link.trap = OPEN, 0.0, 0.0, None
        if swallowed:
            self._loop.call_soon_threadsafe(link.reset)

    def lose(self, link: Link, rate: float) -> None:
        """From now on this part of a link's packets is lost, at random, each way."""
        port = int(link.address.rpartition(":")[2])
        link.loss = (DroppedPackets if is_own() else StalledPieces)(port, rate)

    def lose_no_more(self, link: Link) -> Lost | None:
        """Returns what was lost."""
        loss, link.loss = link.loss, None
        return loss.end() if loss else None

    def heal(self) -> None:
        """Mends all links."""
        for link in self.links.values():
            self.mend(link)
            self.lose_no_more(link)

    def _do(self, what: Callable[[], Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what(), self._loop).result(10)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for link in self.links.values():
            await link.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                for server in self._servers:
                    await server.wait_closed()
