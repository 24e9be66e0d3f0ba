"""A bare WebSocket server that echoes every frame, for `ingest.py`: what aiohttp alone costs.

It has the settings of the gateway's WebSockets, and answers the same commands.
"""

import os

from aiohttp import WSMsgType, web
from ingest_gateway import answer

from lingua_scheduler.cli import event_loop


async def echo(request: web.Request) -> web.WebSocketResponse:
    """Echoes until the client leaves."""
    socket = web.WebSocketResponse(compress=False, protocols=("lingua.v1",))
    await socket.prepare(request)
    async for frame in socket:
        if frame.type is WSMsgType.BINARY:
            await socket.send_bytes(frame.data)
    return socket


async def main() -> None:
    """Serves until stdin ends."""
    app = web.Application()
    app.router.add_get("/v1/converse", echo)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    print("READY", flush=True)
    await answer(address="", web=f"{host}:{port}")
    os._exit(0)


if __name__ == "__main__":
    event_loop.run(main())
