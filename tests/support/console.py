"""The console as a process, with documents and actions that a test controls through files."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.services import SET_LIMITS, ServiceProcess

_BACKEND = """
import asyncio, json, os, pathlib, sys
from lingua_scheduler.services.console.main import run_console
from lingua_scheduler.services.runtime.errors import SettingsError, from_proto
from lingua_scheduler.services.runtime.settings.settings import load_settings
from lingua_scheduler.v1 import common_pb2

folder = pathlib.Path(os.environ["TEST_FOLDER"])

class Backend:
    def __init__(self):
        self.documents = self.actions = self
        self.computed = {}

    async def get(self, path, query):
        if path == "instances":
            return {"computed": self.computed}
        key = path + "?" + json.dumps(query, sort_keys=True)
        self.computed[key] = self.computed.get(key, 0) + 1
        found = json.loads((folder / "documents.json").read_text())[path]
        if "raise" in found:
            reason = common_pb2.ErrorReason.Value("ERROR_REASON_" + found["raise"])
            raise from_proto(common_pb2.Error(reason=reason, message="as the test says"))
        return {**found, "query": dict(query)}

    async def act(self, *said):
        with (folder / "actions").open("a") as file:
            file.write(json.dumps(said) + "\\n")

    async def drain(self, node_id, token):
        await self.act("drain", node_id, token)

    async def ready(self, node_id, token):
        await self.act("ready", node_id, token)

    async def remove(self, node_id, token):
        await self.act("remove", node_id, token)

    async def cancel(self, job_id, why, token):
        await self.act("cancel", job_id, why, token)

    async def close_room(self, room_id, token):
        await self.act("close", room_id, token)

    def stale(self):
        return ["jobs"]

    async def run(self):
        await asyncio.Event().wait()

    async def close(self):
        pass

def ready(service, address, metrics, web):
    print("ready", service, address, metrics, flush=True)

try:
    asyncio.run(run_console(load_settings(), ready, lambda *_: Backend()))
except SettingsError as error:
    sys.exit(f"refused: {error}")
"""


class ConsoleProcess(ServiceProcess):
    """A console whose documents are in a file, and whose actions go to another.

    Args:
        folder: of these files.
        settings: of the console.
    """

    service = "console"
    package = "console"

    def __init__(self, folder: Path, **settings: Any) -> None:
        self._files = folder
        self.show(overview={"problems": {}, "n": 1})
        super().__init__(
            redis_url="",
            prefix="unused",
            runner=SET_LIMITS + _BACKEND,
            environ={"TEST_FOLDER": str(folder)},
            **settings,
        )

    def show(self, **documents: dict[str, Any]) -> None:
        """Changes the documents, of which each path is a keyword: `nodes__a` is nodes/a."""
        path = self._files / "documents.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        known |= {key.replace("__", "/"): value for key, value in documents.items()}
        written = path.with_suffix(".new")
        written.write_text(json.dumps(known))
        written.rename(path)

    def actions(self) -> list[list[Any]]:
        """What was done."""
        path = self._files / "actions"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log lines of an event."""
        return self._events(name)

    @property
    def url(self) -> str:
        """Its address for clients."""
        return f"http://{self.address}"


class FollowingConsole(ServiceProcess):
    """A console that follows services, as it is run by `lingua serve console`.

    Args:
        settings: with the addresses of the services.
    """

    service = "console"
    package = "console"

    def __init__(self, **settings: Any) -> None:
        super().__init__(redis_url="redis://127.0.0.1:1", prefix="unused", **settings)

    @property
    def url(self) -> str:
        """Its address for browsers."""
        return f"http://{self.address}"


class EventReader:
    """Reads the events of a stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self, *, ticks: bool = False) -> tuple[str, Any]:
        """The next event and its data; not a tick, unless that is wanted."""
        while True:
            name = (await self.response.content.readline()).decode().strip()
            if not name:
                raise EOFError
            data = (await self.response.content.readline()).decode().strip()
            assert await self.response.content.readline() == b"\n"
            name = name.removeprefix("event: ")
            if ticks or name != "tick":
                return name, json.loads(data.removeprefix("data: "))


@asynccontextmanager
async def watching(
    client: aiohttp.ClientSession, url: str, **headers: str
) -> AsyncIterator[EventReader]:
    """An event stream of a document."""
    async with client.get(url, headers={"Accept": "text/event-stream", **headers}) as response:
        yield EventReader(response)
