"""Services, nodes and clients of a release, each a process."""

import json
from typing import Any

from tests.robustness.history import ClientHistory, RoomHistory
from tests.robustness.processes import WorldNode
from tests.robustness.room_history import ListenerHistory
from tests.support.all_in_one import SERVICES
from tests.support.process import Process, environment
from tests.support.services import ServiceProcess
from tests.upgrade.releases import Release

# As a person or a container runs it: the command is the same in all releases.
_RUNNER = """
import sys
from lingua_scheduler.cli import main
sys.argv = ["lingua", "serve", {kind!r}, "--announce"]
main()
"""
_SPEAKERS = "import tests.upgrade.speakers as program; program.main()"
# More than a service may take to end (drain_grace_ms), and a client to hear everything.
END_S = 90.0


class ReleasedService(ServiceProcess):
    """A process of a release: `lingua serve pool`, `dispatcher`, `gateway` or `all`.

    Attributes:
        told: what it says of each of its services when it is ready: `address`, `web` and more.
    """

    package = ""

    def __init__(self, kind: str, release: Release, **settings: Any) -> None:
        # Read by the constructor of the base class.
        self.kind = self.service = kind  # type: ignore[misc]
        super().__init__(runner=_RUNNER.format(kind=kind), **settings)
        self.release = release
        self.nursery = release.nursery
        self.told: dict[str, dict[str, str]] = {}

    @property
    def services(self) -> tuple[str, ...]:
        """What it serves."""
        return SERVICES if self.kind == "all" else (self.kind,)

    def listens(self) -> dict[str, str]:
        """Settings that say where its services listen."""
        kinds = ("listen", "metrics_listen")
        return {f"{service}_{what}": "127.0.0.1:0" for service in self.services for what in kinds}

    def wait_ready(self) -> None:
        """Returns when all its services answer calls."""
        self.wait_for(lambda: self.output().count("\n") == len(self.services), "ready")
        self.told = {each["service"]: each for each in map(json.loads, self.output().splitlines())}

    async def count(self, service: str, name: str) -> float:
        """A metric of one of its services."""
        self.metrics_address = self.told[service]["metrics"]
        return await self.metric(name)


class ReleasedNode(WorldNode):
    """A node with the SDK of a release."""

    def __init__(self, node_id: str, release: Release, *, slots: int, dispatchers: str) -> None:
        super().__init__(node_id, slots=slots, dispatchers=dispatchers)
        self.release = release
        self.nursery = release.nursery


class Speakers(Process):
    """People with the SDK of a release, alone and in a room, in one process (speakers.py)."""

    def __init__(self, release: Release, **options: Any) -> None:
        super().__init__(f"speakers-{release.name}")
        self.release = release
        self.nursery = release.nursery
        self._options = options

    def start(self) -> None:
        """They begin to talk."""
        options = {
            "name": self.release.name,
            "heard": str(self.file("heard")),
            "history": str(self.file("history")),
            **self._options,
        }
        self.fork(_SPEAKERS, env={**environment(), "SPEAKERS": json.dumps(options)})

    def heard(self) -> dict[str, int]:
        """How many outcomes each of them has had."""
        assert self.process.poll() is None, f"{self.title} ended:\n{self.log()}"
        path = self.file("heard")
        return json.loads(path.read_text()) if path.exists() else {}

    def end(self) -> tuple[list[ClientHistory], list[RoomHistory]]:
        """They finish, and hand over what they have written down."""
        self.terminate()
        assert self.wait_end(END_S) == 0, self.log()
        told = json.loads(self.file("history").read_text())
        rooms = [_room(each) for each in told["rooms"]]
        return [_client(each) for each in told["clients"]], rooms


def _client(told: dict[str, Any]) -> ClientHistory:
    return ClientHistory(**{**told, "said": [(t, word) for t, word in told["said"]]})


def _room(told: dict[str, Any]) -> RoomHistory:
    speakers = [_client(each) for each in told["speakers"]]
    listeners = [ListenerHistory(**each) for each in told["listeners"]]
    return RoomHistory(**{**told, "speakers": speakers, "listeners": listeners})
