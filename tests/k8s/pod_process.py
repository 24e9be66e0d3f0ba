"""A container of the manifests as a process of this machine, probed as a kubelet would."""

import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.k8s.manifests import (
    COMPONENTS,
    CONSOLE,
    Manifests,
    container_of,
    pod_of,
    port_of,
    secret_mounts,
)
from tests.support.commands import LINGUA
from tests.support.ports import free_port
from tests.support.process import START_S, CommandProcess, environment

WITHIN_S = START_S
# The kubelet's own is 1 s; a busy machine is no reason for a probe to fail.
PROBE_S = 5.0


class PodProcess(CommandProcess):
    """The container of a service, with its arguments, variables and probes. It may run others, too.

    Args:
        manifests: describe it.
        component: such as `pool`.
        instead: variables that differ from the manifests.
        secrets: a folder that has a folder of files for each Secret that the container mounts.
    """

    def __init__(
        self,
        manifests: Manifests,
        component: str,
        *,
        instead: Mapping[str, str],
        secrets: Path = Path("/nowhere"),
    ) -> None:
        deployment = manifests.deployment(component)
        self._container = container_of(deployment)
        runs = [each for each, found in manifests.services() if found is deployment]
        self.ports = {each: free_port() for each in runs}
        """Where each service listens."""
        self._health_ports = {
            port_of(deployment, each, "health"): (free_port(), COMPONENTS[each]) for each in runs
        }
        said = manifests.environment(deployment)
        for mounted_at, secret in secret_mounts(deployment).items():
            said = {
                key: value.replace(mounted_at, str(secrets / secret)) for key, value in said.items()
            }
        self.environ = {
            **environment(),
            **said,
            **instead,
        }
        for each, (health, _) in zip(runs, self._health_ports.values(), strict=True):
            listens = {"": self.ports[each], "METRICS_": free_port(), "HEALTH_": health}
            for kind, port in listens.items():
                self.environ[f"LINGUA_{each.upper()}_{kind}LISTEN"] = f"127.0.0.1:{port}"
        if "gateway" in runs:
            self.environ["LINGUA_GATEWAY_WEB_LISTEN"] = "127.0.0.1:0"
        before_term_s = self._container["lifecycle"]["preStop"]["sleep"]["seconds"]
        self.ends_within_s = pod_of(deployment)["terminationGracePeriodSeconds"] - before_term_s
        """From SIGTERM to the kill."""
        arguments = self._container["args"]
        super().__init__(f"pod-{component}", [*LINGUA, *arguments], env=self.environ)

    def passes(self, probe: str) -> bool:
        """Whether a probe finds what it asks for now."""
        asked = self._container[probe]["grpc"]
        return self._serves(self._health_ports[asked["port"]][0], asked["service"])

    def serving(self) -> list[bool]:
        """Whether each service of the pod serves now."""
        return [self._serves(port, name) for port, name in self._health_ports.values()]

    def becomes(self, probe: str, passing: bool) -> None:
        """Returns when a probe passes, or fails."""
        what = f"as the {probe} should find it (passing: {passing})"
        self.wait_for(lambda: self.passes(probe) == passing, what, WITHIN_S)

    def _serves(self, port: int, service: str) -> bool:
        request: Any = health_pb2.HealthCheckRequest(service=service)
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            try:
                answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=PROBE_S)
            except grpc.RpcError as error:
                # A name that the server does not know is not a matter of time.
                if error.code() == grpc.StatusCode.NOT_FOUND:
                    raise
                return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


class ConsolePod(CommandProcess):
    """The container of the console.

    Args:
        manifests: describe it.
        instead: variables that differ from the manifests.
        secrets: a folder that has a folder of files for each Secret that the container mounts.
    """

    def __init__(self, manifests: Manifests, *, instead: Mapping[str, str], secrets: Path) -> None:
        deployment = manifests.deployment(CONSOLE)
        container = container_of(deployment)
        self._probe = container["readinessProbe"]["httpGet"]
        self.port, self._health_port = free_port(), free_port()
        said = manifests.environment(deployment)
        for mounted_at, secret in secret_mounts(deployment).items():
            said = {
                key: value.replace(mounted_at, str(secrets / secret)) for key, value in said.items()
            }
        self.environ = {
            **environment(),
            **said,
            **instead,
            "LINGUA_CONSOLE_LISTEN": f"127.0.0.1:{self.port}",
            "LINGUA_CONSOLE_METRICS_LISTEN": "127.0.0.1:0",
            "LINGUA_CONSOLE_HEALTH_LISTEN": f"127.0.0.1:{self._health_port}",
        }
        super().__init__("pod-console", [*LINGUA, *container["args"]], env=self.environ)

    def becomes_ready(self) -> None:
        """Returns when its readiness probe passes."""
        self.wait_for(self._passes, "ready", WITHIN_S)

    def _passes(self) -> bool:
        url = f"http://127.0.0.1:{self._health_port}{self._probe['path']}"
        try:
            with urllib.request.urlopen(url, timeout=PROBE_S) as response:
                return bool(response.status == 200)
        except OSError:
            return False
