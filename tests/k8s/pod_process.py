"""A container of the manifests as a process of this machine, probed as a kubelet would."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.k8s.manifests import Manifests, container_of, pod_of, secret_mounts

# A process imports for about a second; on a machine that runs other tests, for some more.
WITHIN_S = 30.0
# The kubelet's own is 1 s; a busy machine is no reason for a probe to fail.
PROBE_S = 5.0


def free_port() -> int:
    """One that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as once:
        return int(once.getsockname()[1])


class PodProcess:
    """The container of one service, with its arguments, variables and probes. A context manager.

    Args:
        manifests: what it is described by.
        component: such as `pool`.
        log: where its stderr goes.
        instead: variables that are others than the manifests say.
        secrets: the folder with a folder of files for each Secret that it mounts.
    """

    def __init__(
        self,
        manifests: Manifests,
        component: str,
        *,
        log: Path,
        instead: Mapping[str, str],
        secrets: Path = Path("/nowhere"),
    ) -> None:
        deployment = manifests.one("Deployment", f"lingua-{component}")
        self._container = container_of(deployment)
        self._log = log
        self.port = free_port()
        self._health_port = free_port()
        said = manifests.environment(deployment)
        for mounted_at, secret in secret_mounts(deployment).items():
            said = {
                key: value.replace(mounted_at, str(secrets / secret)) for key, value in said.items()
            }
        self.environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith("LINGUA_")},
            **said,
            f"LINGUA_{component.upper()}_LISTEN": f"127.0.0.1:{self.port}",
            f"LINGUA_{component.upper()}_METRICS_LISTEN": f"127.0.0.1:{free_port()}",
            f"LINGUA_{component.upper()}_HEALTH_LISTEN": f"127.0.0.1:{self._health_port}",
            **instead,
        }
        before_term_s = self._container["lifecycle"]["preStop"]["sleep"]["seconds"]
        self.ends_within_s = pod_of(deployment)["terminationGracePeriodSeconds"] - before_term_s
        """From SIGTERM to the kill."""

    def __enter__(self) -> Self:
        with self._log.open("ab") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "lingua_scheduler.cli", *self._container["args"]],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stderr=err,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()

    def passes(self, probe: str) -> bool:
        """Whether a probe finds what it asks for now."""
        return self._serves(self._container[probe]["grpc"]["service"])

    def becomes(self, probe: str, passing: bool) -> None:
        """Returns when a probe passes, or fails."""
        deadline = time.monotonic() + WITHIN_S
        while self.passes(probe) != passing:
            assert self.process.poll() is None, f"it ended:\n{self._log.read_text()}"
            assert time.monotonic() < deadline, f"{probe}:\n{self._log.read_text()}"
            time.sleep(0.05)

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
