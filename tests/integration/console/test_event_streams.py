"""Documents as event streams, of a real process."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from lingua_scheduler.services.console.http.merge_patch import apply
from tests.support.console import ConsoleProcess, watching


@pytest.fixture
def console(tmp_path: Path) -> Iterator[ConsoleProcess]:
    with ConsoleProcess(tmp_path, limits={"http.event_streams.TICK_S": 0.5}) as process:
        yield process
        assert not process.faults(), process.log()


@pytest.fixture
async def client(console: ConsoleProcess) -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession(base_url=console.url, timeout=timeout) as made:
        yield made


async def test_a_stream_has_the_document_and_then_what_changes(
    console: ConsoleProcess, client: aiohttp.ClientSession
) -> None:
    console.show(overview={"problems": {}, "n": 1, "old": {"x": 1, "y": 2}})
    async with watching(client, "/api/v1/overview") as events:
        assert events.response.headers["Content-Type"].startswith("text/event-stream")
        name, document = await events.next()
        assert (name, document["n"]) == ("document", 1)
        console.show(overview={"problems": {}, "n": 2, "old": {"x": 1}})
        name, patch = await events.next()
        assert (name, patch) == ("patch", {"n": 2, "old": {"y": None}})
        assert apply(document, patch) == {"problems": {}, "n": 2, "old": {"x": 1}, "query": {}}


async def test_a_stream_without_changes_ticks(client: aiohttp.ClientSession) -> None:
    async with watching(client, "/api/v1/overview") as events:
        assert (await events.next(ticks=True))[0] == "document"
        for _ in range(3):
            name, data = await events.next(ticks=True)
            assert name == "tick"
            assert data["now_ms"] > 0


async def test_fifty_readers_cost_as_much_as_one(
    console: ConsoleProcess, client: aiohttp.ClientSession
) -> None:
    async def read() -> None:
        # Parameters in any order, and empty ones, are the same document.
        path = "/api/v1/overview?kind=text&a=1" if one[0] else "/api/v1/overview?a=1&kind=text&b="
        one[0] = not one[0]
        async with watching(client, path) as events:
            while (await events.next())[1].get("n") != 2:
                pass

    one = [False]
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(base_url=console.url, connector=connector) as many:
        client = many
        readers = [asyncio.create_task(read()) for _ in range(50)]
        await console.reaches(50, "lingua_console_viewers")
        assert await console.metric("lingua_console_watched_documents") == 1
        console.show(overview={"problems": {}, "n": 2})
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*readers)
        took = asyncio.get_running_loop().time() - began
        async with many.get("/api/v1/instances") as response:
            computed = (await response.json())["computed"]
    assert len(computed) == 1
    (times,) = computed.values()
    # Once per second, from before all had connected until now; not once per reader.
    assert times < 25 + took


async def test_a_document_that_vanishes_ends_the_stream(
    console: ConsoleProcess, client: aiohttp.ClientSession
) -> None:
    console.show(nodes__a={"n": 1})
    async with watching(client, "/api/v1/nodes/a") as events:
        assert (await events.next())[0] == "document"
        console.show(nodes__a={"raise": "NODE_NOT_FOUND"})
        assert await events.next() == ("end", {"reason": "NODE_NOT_FOUND"})
        with pytest.raises(EOFError):
            await events.next()
    # It may come back.
    console.show(nodes__a={"n": 2})
    async with watching(client, "/api/v1/nodes/a") as events:
        assert (await events.next())[1]["n"] == 2


async def test_a_source_that_fails_is_a_problem_and_the_stream_goes_on(
    console: ConsoleProcess, client: aiohttp.ClientSession
) -> None:
    async with watching(client, "/api/v1/overview") as events:
        await events.next()
        console.show(overview={"raise": "SCHEDULER_DEPENDENCY_DOWN"})
        name, problem = await events.next()
        assert (name, problem["reason"]) == ("problem", "SCHEDULER_DEPENDENCY_DOWN")
        console.show(overview={"problems": {}, "n": 7})
        found = [await events.next(), await events.next()]
        assert ("patch", {"n": 7}) in found
        assert ("problem", {}) in found


@pytest.mark.parametrize(
    ("reason", "status"),
    [("NODE_NOT_FOUND", 404), ("INVALID_MESSAGE", 400), ("SCHEDULER_DEPENDENCY_DOWN", 503)],
)
async def test_an_error_at_the_start_is_a_status(
    console: ConsoleProcess, client: aiohttp.ClientSession, reason: str, status: int
) -> None:
    console.show(nodes__b={"raise": reason})
    for accept in ("text/event-stream", "application/json"):
        async with client.get("/api/v1/nodes/b", headers={"Accept": accept}) as response:
            assert response.status == status
            assert (await response.json())["error"]["reason"] == reason


@pytest.mark.long
async def test_a_slow_reader_gets_the_newest_document_and_no_queue(
    console: ConsoleProcess,
) -> None:
    filler = ["x" * 1000] * 8000
    console.show(overview={"n": 0, "filler": filler})
    slow = connected(console)
    versions = 4
    async with (
        aiohttp.ClientSession(base_url=console.url, read_bufsize=2**25) as client,
        watching(client, "/api/v1/overview") as other,
    ):
        await other.next()
        for n in range(1, versions + 1):
            console.show(overview={"n": n, "filler": [str(n), *filler]})
            while (await other.next())[1]["n"] != n:
                pass
    names = await asyncio.to_thread(_names_until, slow, f'{{"n":{versions},'.encode())
    slow.close()
    # The first, which it had begun to read, and the newest: nothing of those in between.
    assert names == ["document", "document"]


def connected(console: ConsoleProcess) -> socket.socket:
    """A peer that asks for the stream, and reads nothing of it by itself."""
    made = socket.socket()
    # Otherwise the kernel would take in all of it.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, port = console.address.split(":")
    made.connect((host, int(port)))
    made.sendall(
        f"GET /api/v1/overview HTTP/1.1\r\nHost: {console.address}\r\n"
        "Accept: text/event-stream\r\n\r\n".encode()
    )
    return made


def _names_until(peer: socket.socket, text: bytes) -> list[str]:
    """Reads a stream until it has this text; returns the names of its events."""
    found = b""
    while text not in found:
        part = peer.recv(2**20)
        assert part, "the stream has ended"
        found += part
    return [each.decode() for each in re.findall(rb"event: (\w+)\n", found) if each != b"tick"]


async def test_a_reader_that_reads_nothing_is_disconnected(tmp_path: Path) -> None:
    limits = {"runtime.web.connections._READ_WITHIN_S": 1.0}
    with ConsoleProcess(tmp_path, limits=limits) as console:
        console.show(overview={"filler": ["x" * 1000] * 8000})
        with connected(console):
            await console.reaches(1, "lingua_console_viewers")
            # As nginx counts clients that left.
            await console.reaches(1, "lingua_console_requests_total", status="499")
            assert await console.metric("lingua_console_viewers") == 0
        assert not console.faults(), console.log()


async def test_the_number_of_streams_is_bounded(tmp_path: Path) -> None:
    with ConsoleProcess(tmp_path, console_viewers_max=4) as console:
        async with (
            aiohttp.ClientSession(base_url=console.url) as client,
            watching(client, "/api/v1/overview") as one,
            watching(client, "/api/v1/overview") as two,
            watching(client, "/api/v1/overview") as three,
        ):
            assert [one.response.status, two.response.status] == [200, 200]
            assert three.response.status == 429
            assert (await three.response.json())["error"]["reason"] == "BACKPRESSURE"
            assert int(three.response.headers["Retry-After"]) >= 1


async def test_a_drain_ends_the_streams_with_the_reason(
    console: ConsoleProcess, client: aiohttp.ClientSession
) -> None:
    async with watching(client, "/api/v1/overview") as events:
        await events.next()
        console.terminate()
        assert await events.next() == ("end", {"reason": "DRAINING"})
    assert await asyncio.to_thread(console.process.wait) == 0


async def test_a_reader_that_leaves_is_forgotten_at_once(tmp_path: Path) -> None:
    """Not only at the next tick: whoever changes a filter opens a new stream for each letter."""
    limits = {"http.event_streams.TICK_S": 600.0}
    with ConsoleProcess(tmp_path, limits=limits, console_viewers_max=2) as console:
        for number in range(5):
            async with aiohttp.ClientSession(base_url=console.url) as client:
                path = f"/api/v1/overview?number={number}"
                for _ in range(100):
                    async with watching(client, path) as events:
                        if events.response.status == 200:
                            assert (await events.next())[0] == "document"
                            break
                    await asyncio.sleep(0.05)
                else:
                    raise AssertionError("the stream before is still there")
        assert not console.faults(), console.log()
