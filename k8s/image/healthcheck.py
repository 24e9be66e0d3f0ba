"""The container's HEALTHCHECK: whether the service in it serves. Kubernetes asks by its own probes.

    python healthcheck.py [PID of `lingua serve`, 1 in a container]

Exit code 0: it serves, or the container runs no service; 1: it does not, and stdout says why.
"""

import sys
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lingua_scheduler.cli.listening import reachable
from lingua_scheduler.services.runtime.settings import load_settings

ANSWER_WITHIN_S = 3.0


def service_of(pid: str) -> str:
    """What `lingua serve` was told to run there; "" where that is not what runs."""
    command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return command[command.index("serve") + 1] if "serve" in command else ""


def health(address: str) -> str:
    """What the server there says of itself, such as SERVING."""
    with grpc.insecure_channel(address) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=ANSWER_WITHIN_S
            )
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def main() -> int:
    """The exit code."""
    service = service_of(sys.argv[1] if len(sys.argv) > 1 else "1")
    if not service:
        return 0
    said = health(reachable(getattr(load_settings(), f"{service}_listen")))
    print(said)
    return 0 if said == "SERVING" else 1


if __name__ == "__main__":
    sys.exit(main())
