"""A scheduler for talk pages: services and nodes as processes."""

import json
import urllib.request
from typing import Any

from tests.browser.hearing_node import PROGRAM
from tests.support.node_process import NodeProcess
from tests.support.process import SOON_S, START_S
from tests.support.scheduler import Scheduler
from tests.support.services import GatewayProcess, addresses


class TalkScheduler(Scheduler):
    """A scheduler with one gateway, which serves the page and can be killed and restarted.

    By default it cuts no utterance that a test speaks, however long a busy machine takes for it.
    """

    def __init__(self, *, redis_url: str, **settings: str | int) -> None:
        patient = {"max_duration_ms": 60_000, "pause_ms": 30_000}
        super().__init__(redis_url=redis_url, **{**patient, **settings})

    @property
    def gateway(self) -> GatewayProcess:
        """The gateway."""
        (gateway,) = self.gateways
        assert isinstance(gateway, GatewayProcess)
        return gateway

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{self.gateway.web_address}"

    def add_hearing_nodes(self, count: int = 1, **options: str | int) -> list[NodeProcess]:
        """Starts nodes that keep what they hear; returns when all are connected."""
        first = len(self.nodes)
        names = [f"n{first + at}" for at in range(count)]
        new = self.add_nodes_of(PROGRAM, *names, **options)
        for node in new:
            node.wait_ready()
        return new

    def add_nodes_of(self, program: str, *names: str, **options: str | int) -> list[NodeProcess]:
        """Starts nodes of a program; they are not connected yet."""
        to = addresses(self.dispatchers)
        new = [NodeProcess(name, program=program, dispatchers=to, **options) for name in names]
        self.nodes += new
        for node in new:
            node.start()
        return new

    def until_offered(self, *languages: str, token: str = "") -> None:
        """Returns when the gateway offers these languages to speak, and no others."""
        wanted = set(languages)
        self.gateway.wait_for(
            lambda: {each["src"] for each in self._offered(token)} == wanted, f"at {languages}"
        )

    def until_offers(self, src: str, tgt: str, *, within: float = START_S) -> None:
        """Returns when the gateway offers this direction, with speech."""
        wanted = (src, tgt, True)
        self.gateway.wait_for(
            lambda: wanted in [(e["src"], e["tgt"], e["speech"]) for e in self._offered()],
            f"at {wanted}",
            within,
        )

    def until_only_text(self, src: str, tgt: str) -> None:
        """Returns when the gateway offers this direction, without speech."""
        self.gateway.wait_for(
            lambda: (
                {
                    each["speech"]
                    for each in self._offered()
                    if each["src"] == src and each["tgt"] in (tgt, "*")
                }
                == {False}
            ),
            f"at the text of {src} in {tgt}",
        )

    def _offered(self, token: str = "") -> list[dict[str, Any]]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"{self.url}/v1/languages", headers=headers)
        with urllib.request.urlopen(request, timeout=SOON_S) as response:
            directions: list[dict[str, Any]] = json.load(response)["directions"]
            return directions
