"""A container of the manifests as a process of this machine, probed as a kubelet would."""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.k8s.manifests import Manifests, container_of, pod_of, secret_mounts
from tests.support.commands import LINGUA
from tests.support.process import START_S, CommandProcess, environment

WITHIN_S = START_S
# The kubelet's own is 1 s; a busy machine is no reason for a probe to fail.
PROBE_S = 5.0


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as once:
        return int(once.getsockname()[1])


class PodProcess(CommandProcess):
    """The container of one service, with its arguments, variables and probes.

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
        deployment = manifests.one("Deployment", f"lingua-{component}")
        self._container = container_of(deployment)
        self.port = free_port()
        self._health_port = free_port()
        said = manifests.environment(deployment)
        for mounted_at, secret in secret_mounts(deployment).items():
            said = {
                key: value.replace(mounted_at, str(secrets / secret)) for key, value in said.items()
            }
        self.environ = {
            **environment(),
            **said,
            f"LINGUA_{component.upper()}_LISTEN": f"127.0.0.1:{self.port}",
            f"LINGUA_{component.upper()}_METRICS_LISTEN": f"127.0.0.1:{free_port()}",
            f"LINGUA_{component.upper()}_HEALTH_LISTEN": f"127.0.0.1:{self._health_port}",
            **instead,
        }
        before_term_s = self._container["lifecycle"]["preStop"]["sleep"]["seconds"]
        self.ends_within_s = pod_of(deployment)["terminationGracePeriodSeconds"] - before_term_s
        """From SIGTERM to the kill."""
        arguments = self._container["args"]
        super().__init__(f"pod-{component}", [*LINGUA, *arguments], env=self.environ)

    def passes(self, probe: str) -> bool:
        """Whether a probe finds what it asks for now."""
        return self._serves(self._container[probe]["grpc"]["service"])

    def becomes(self, probe: str, passing: bool) -> None:
        """Returns when a probe passes, or fails."""
        what = f"as the {probe} should find it (passing: {passing})"
        self.wait_for(lambda: self.passes(probe) == passing, what, WITHIN_S)

    def _serves(self, service: str) -> bool:
        request: Any = health_pb2.HealthCheckRequest(service=service)
        with grpc.insecure_channel(f"127.0.0.1:{self._health_port}") as channel:
            try:
                answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=PROBE_S)
            except grpc.RpcError as error:
                # A name that the server does not know is not a matter of time.
                if error.code() == grpc.StatusCode.NOT_FOUND:
                    raise
                return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
