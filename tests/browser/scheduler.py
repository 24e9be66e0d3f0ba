"""A scheduler for talk pages: services and nodes as processes."""

import json
import urllib.request
from collections.abc import Sequence

from tests.browser.hearing_node import PROGRAM
from tests.support.node_process import NodeProcess
from tests.support.process import SOON_S
from tests.support.scheduler import Scheduler
from tests.support.services import GatewayProcess, addresses


class TalkScheduler(Scheduler):
    """A scheduler with one gateway, which serves the page and can be killed and restarted."""

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

    def add_hearing_nodes(self, count: int = 1, **options: str | int) -> Sequence[NodeProcess]:
        """Starts nodes that keep what they hear; returns when all are connected."""
        first = len(self.nodes)
        new = [
            NodeProcess(
                f"n{first + at}",
                program=PROGRAM,
                dispatchers=addresses(self.dispatchers),
                **options,
            )
            for at in range(count)
        ]
        self.nodes += new
        for node in new:
            node.start()
        for node in new:
            node.wait_ready()
        return new

    def until_offered(self, *languages: str, token: str = "") -> None:
        """Returns when the gateway offers these languages, and no others."""
        self.gateway.wait_for(lambda: self._offered(token) == set(languages), f"at {languages}")

    def _offered(self, token: str) -> set[str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"{self.url}/v1/languages", headers=headers)
        with urllib.request.urlopen(request, timeout=SOON_S) as response:
            return {each["src"] for each in json.load(response)["directions"]}
