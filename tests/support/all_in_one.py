"""All services in one process, each of which a test uses as if it were alone."""

import subprocess
from typing import Any

from tests.support.nursery import ForkedProcess
from tests.support.services import PATIENT_REDIS_MS, ServiceProcess

SERVICES = ("pool", "dispatcher", "gateway")


class AllInOneProcess(ServiceProcess):
    """The process. It keeps its addresses over a restart.

    Attributes:
        pool: a part of it.
        dispatcher: a part of it.
        gateway: a part of it.
    """

    service = "all"
    package = "all_in_one"

    def __init__(self, *, redis_url: str, prefix: str, **settings: Any) -> None:
        settings = {"redis_timeout_ms": PATIENT_REDIS_MS, **settings}
        super().__init__(redis_url=redis_url, prefix=prefix, **settings)
        self.pool, self.dispatcher, self.gateway = (Part(self, service) for service in SERVICES)

    @property
    def parts(self) -> tuple["Part", "Part", "Part"]:
        """Its services."""
        return self.pool, self.dispatcher, self.gateway

    def listens(self) -> dict[str, str]:
        """Settings that say where the services listen at the first start."""
        kinds = ("listen", "metrics_listen")
        return {f"{service}_{what}": "127.0.0.1:0" for service in SERVICES for what in kinds}

    def wait_ready(self) -> None:
        """Returns when all services answer calls."""
        self.wait_for(lambda: self.output().count("\n") == len(SERVICES), "ready")
        for part, line in zip(self.parts, self.output().splitlines(), strict=True):
            _, service, address, metrics_address = line.split()
            assert service == part.service
            self.has_addresses(part, address, metrics_address)

    def wait_listening(self) -> None:
        """Returns when the services listen, which they do before they have found Redis."""
        self.wait_for(lambda: len(self._events("listening")) >= len(SERVICES), "listening")
        for part, event in zip(self.parts, self._events("listening")[-3:], strict=True):
            assert event["service"] == part.service
            self.has_addresses(part, event["address"], event["metrics"])

    def has_addresses(self, part: "Part", address: str, metrics_address: str) -> None:
        """A service listens there, and will after a restart."""
        part.address, part.metrics_address = address, metrics_address
        if part is self.gateway:
            # It is not there yet if the gateway listens but has not found Redis.
            for record in self._events("listening for web")[-1:]:
                part.web_address = self._settings["gateway_web_listen"] = record["address"]
        self._settings[f"{part.service}_listen"] = address
        self._settings[f"{part.service}_metrics_listen"] = metrics_address


class Part(ServiceProcess):
    """One service of the process. To kill, start or freeze it is to do that to all of them.

    Attributes:
        web_address: where the gateway serves browsers; empty for the other services.
    """

    service = ""

    def __init__(self, host: AllInOneProcess, service: str) -> None:
        self.host = host
        self.service = service
        self.title = f"{service} of all"
        self.prefix = host.prefix
        self.address = self.metrics_address = self.web_address = ""

    @property
    def _process(self) -> "ForkedProcess | subprocess.Popen[bytes] | None":
        return self.host._process

    def start(self) -> None:
        """Starts the process, unless another part of it has."""
        if self._process is None or self._process.poll() is not None:
            self.host.start()

    def wait_ready(self) -> None:
        """Returns when all services answer calls."""
        self.host.wait_ready()

    def wait_listening(self) -> None:
        """Returns when all services listen."""
        self.host.wait_listening()

    def stop(self) -> None:
        """Kills the process if it runs, and removes its folder."""
        self.host.stop()

    def output(self) -> str:
        """What the process has written to stdout since its last start."""
        return self.host.output()

    def log(self) -> str:
        """What the process has written to stderr, over all starts."""
        return self.host.log()
