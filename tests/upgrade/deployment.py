"""A scheduler whose processes are replaced one by one, as a rolling update of Kubernetes does it.

A place, such as "gateway-0", has an address that stays; what serves there changes. A node is told
the address of one dispatcher, so that jobs have to be relayed.
"""

import asyncio
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

from tests.robustness.leases import leases_left
from tests.robustness.network import Network
from tests.robustness.processes import settings
from tests.robustness.store import AOF, running_store
from tests.support.all_in_one import SERVICES
from tests.upgrade.releases import Release
from tests.upgrade.services import END_S, ReleasedNode, ReleasedService, Speakers

SPLIT, ALL = "split", "all"
INSTANCES = 2
WEB = "web"
# The slots of the nodes: the first dispatcher has few, so it often needs those of the second.
NODES = (1, 1, 3, 3)


class Deployment:
    """Two places for each service, or for processes with all of them. A context manager.

    Args:
        topology: SPLIT or ALL.
        release: what runs at first.
        pinned: clients, gateways and dispatchers are told the address of one gateway, dispatcher
            and pool service each, so that all of these have work. Otherwise they are told all, and
            choose.
        options: settings of all services.

    Attributes:
        places: who serves now, by the name of the place.
        ran: all processes of services that there ever were.
    """

    def __init__(
        self, topology: str, release: Release, *, pinned: bool = True, **options: Any
    ) -> None:
        self.kinds = SERVICES if topology == SPLIT else (ALL,)
        self.places: dict[str, ReleasedService] = {}
        self.ran: list[ReleasedService] = []
        self.nodes: list[ReleasedNode] = []
        self._release = release
        self._pinned = pinned
        self._network = Network()
        self._settings = settings(**options)
        self._prefix = f"test:{uuid.uuid4().hex[:8]}"
        self._redis_url = ""
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._network)
            store = stack.enter_context(running_store(AOF))
            self._redis_url = store.url
            stack.callback(self._stop)
            for at in range(INSTANCES):
                for target in (*SERVICES, WEB):
                    self._network.link("all", f"{target}-{at}")
            for kind in self.kinds:
                for at in range(INSTANCES):
                    place = f"{kind}-{at}"
                    self._serves(place, self._started(place, self._release))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def addresses(self, target: str) -> list[str]:
        """Where a service is, or the web entries."""
        links = self._network.links
        return [links[f"all>{target}-{at}"].address for at in range(INSTANCES)]

    def releases(self, kind: str) -> set[str]:
        """The names of the releases that serve now."""
        kind = kind if kind in self.kinds else ALL
        return {each.release.name for name, each in self.places.items() if name.startswith(kind)}

    # ---- who comes and goes ----

    async def add_nodes(self, releases: list[Release]) -> None:
        """Starts nodes with the SDK of each release in turn, at each dispatcher in turn."""
        to = self.addresses("dispatcher")
        for at, slots in enumerate(NODES):
            release = releases[at % len(releases)]
            where = to[at // len(releases) % len(to)]
            node = ReleasedNode(f"node-{at}", release, slots=slots, dispatchers=where)
            self.nodes.append(node)
            node.start()
        for node in self.nodes:
            await asyncio.to_thread(node.wait_ready)

    def add_speakers(self, release: Release, **options: Any) -> Speakers:
        """People with the SDK of a release, who begin to talk."""
        speakers = Speakers(
            release,
            gateways=self.addresses("gateway"),
            pinned=self._pinned,
            web=self.addresses(WEB),
            **options,
        )
        self._stack.callback(speakers.stop)
        speakers.start()
        return speakers

    async def replace(self, place: str, release: Release) -> None:
        """Starts a process, waits until it is ready, and then has the one before it end."""
        before = self.places[place]
        new = await asyncio.to_thread(self._started, place, release)
        self._serves(place, new)
        before.terminate()
        code = await before.exit_code(END_S)
        assert code == 0, f"{place} of {before.release.version} ended with {code}:\n{before.log()}"

    async def replace_all(self, release: Release) -> None:
        """Ends all processes at once, and then starts others on what they have left in Redis."""
        before = list(self.places.values())
        for each in before:
            each.terminate()
        for each in before:
            await each.exit_code(END_S)
        places = list(self.places)
        starting = (asyncio.to_thread(self._started, place, release) for place in places)
        for place, new in zip(places, await asyncio.gather(*starting), strict=True):
            self._serves(place, new)

    async def crash(self, place: str) -> None:
        """Kills a process with -9, and starts another of the same release in its place."""
        before = self.places[place]
        before.kill()
        self._serves(place, await asyncio.to_thread(self._started, place, before.release))

    def _started(self, place: str, release: Release) -> ReleasedService:
        kind, _, at = place.partition("-")
        peers = {}
        for peer in ("pool", "dispatcher"):
            all_of_them = self.addresses(peer)
            peers[f"{peer}_address"] = (
                all_of_them[int(at)] if self._pinned else ",".join(all_of_them)
            )
        made = ReleasedService(
            kind,
            release,
            redis_url=self._redis_url,
            prefix=self._prefix,
            **{**self._settings, **peers},
            instance_id=f"{place}-{release.name}-{len(self.ran)}",
        )
        self.ran.append(made)
        made.start()
        made.wait_ready()
        return made

    def _serves(self, place: str, service: ReleasedService) -> None:
        self.places[place] = service
        at = place.partition("-")[2]
        for name, told in service.told.items():
            self._network.links[f"all>{name}-{at}"].target = told["address"]
            if told["web"]:
                self._network.links[f"all>{WEB}-{at}"].target = told["web"]

    def _stop(self) -> None:
        for each in (*self.nodes, *reversed(self.ran)):
            each.stop()

    # ---- looking ----

    async def leases_left(self, within: float) -> list[str]:
        """Waits until no slot is in use; returns what still is after `within` seconds."""
        return await leases_left(self.addresses("pool")[0], within)

    def faults(self) -> list[str]:
        """Lines of the logs of all services that only a bug writes."""
        return [f"{each.title}: {line}" for each in self.ran for line in each.faults()]

    def logs(self) -> dict[str, str]:
        """What each process has written to stderr, by instance."""
        logs = {
            f"{at}-{each.kind}-{each.release.name}": each.log() for at, each in enumerate(self.ran)
        }
        return {**logs, **{node.node_id: node.log() for node in self.nodes}}


async def until(condition: Callable[[], bool], within: float) -> bool:
    """Waits for a condition; returns whether it holds."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True
