"""Audio goes past the queue of frames, and never past another frame."""

import asyncio

from aiohttp import WSMsgType
from aiohttp._websocket.reader import WebSocketReader
from aiohttp.base_protocol import BaseProtocol
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.session_gateway.web.direct_queue import DirectQueue, is_usable
from tests.support.raw_http import BINARY, TEXT, frame


def test_the_version_of_aiohttp_that_is_installed_is_known() -> None:
    assert is_usable()


@given(st.lists(st.tuples(st.sampled_from("abtr"), st.booleans()), max_size=20))
def test_frames_are_handled_in_the_order_in_which_they_came(
    script: list[tuple[str, bool]],
) -> None:
    """a: audio; b: audio that has to be read; t: text; r: the reader takes a frame."""
    handled: list[bytes] = []
    sent: list[bytes] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        queue = DirectQueue(BaseProtocol(loop), 2**16, loop=loop)
        reader = WebSocketReader(queue, 1000, compress=False, decode_text=True)

        def take(data: bytes) -> bool:
            if data.startswith(b"b"):
                return False
            handled.append(data)
            return True

        queue.take = take

        async def read() -> None:
            found = await queue.read()
            handled.append(found.data if isinstance(found.data, bytes) else found.data.encode())

        pieces = b""
        for at, (what, waits) in enumerate(script):
            if what == "r":
                if queue._buffer:
                    await read()
                continue
            payload = f"{what}{at}".encode()
            sent.append(payload)
            # Several frames may come in one piece.
            pieces += frame(TEXT if what == "t" else BINARY, payload)
            if not waits:
                reader.feed_data(pieces)
                pieces = b""
        reader.feed_data(pieces)
        while queue._buffer:
            await read()

    asyncio.run(run())
    assert handled == sent


def test_audio_does_not_overtake_a_frame_that_is_being_read() -> None:
    """A queue that was full parses what has come meanwhile inside `read`."""

    async def run() -> list[bytes]:
        loop = asyncio.get_running_loop()
        protocol = BaseProtocol(loop)
        protocol._upgraded = True
        queue = DirectQueue(protocol, 1000, loop=loop)
        reader = WebSocketReader(queue, 10_000, compress=False, decode_text=True)
        handled: list[bytes] = []

        def take(data: bytes) -> bool:
            handled.append(data[:1])
            return True

        # Nobody takes the first frames; the queue is full before all of them are parsed.
        sent = [bytes([at]) * 3000 for at in range(4)]
        reader.feed_data(b"".join(frame(BINARY, each) for each in sent))
        queue.take = take
        while len(handled) < len(sent):
            found = await asyncio.wait_for(queue.read(), 10)
            handled.append(found.data[:1])
        return handled

    assert asyncio.run(run()) == [b"\0", b"\1", b"\2", b"\3"]


def test_text_is_never_taken_directly() -> None:
    async def run() -> list[object]:
        loop = asyncio.get_running_loop()
        queue = DirectQueue(BaseProtocol(loop), 2**16, loop=loop)
        queue.take = lambda _: True
        reader = WebSocketReader(queue, 1000, compress=False, decode_text=True)
        reader.feed_data(frame(TEXT, b"{}"))
        return [found.type for found, _ in queue._buffer]

    assert asyncio.run(run()) == [WSMsgType.TEXT]
