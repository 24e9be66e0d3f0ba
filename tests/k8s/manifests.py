"""The manifests of k8s/ as kubectl renders them, and what a pod gets from them."""

import base64
import functools
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lingua_scheduler.services.dispatcher.main import DispatcherService
from lingua_scheduler.services.pool_service.main import PoolService
from lingua_scheduler.services.session_gateway.main import SessionGatewayService

ROOT = Path(__file__).parents[2]
LAYERS = ("base", "overlays/dev", "overlays/production", "overlays/small")
COMPONENTS = {
    "pool": PoolService.grpc_name,
    "dispatcher": DispatcherService.grpc_name,
    "gateway": SessionGatewayService.grpc_name,
}
CONSOLE = "console"
# Ports of a pod that runs all services: a name has at most 15 characters.
_SHORT = {"pool": "pool", "dispatcher": "disp", "gateway": "gate", CONSOLE: "console"}

# What the cluster and its operator give to a pod.
POD_IP = "10.1.2.3"
POD_NAME = "lingua-pod-5d9c7b8f66-x2x4z"
SECRETS = {"lingua-redis": {"url": "rediss://user:secret@redis.example.com:6379/0"}}
# As files; docs/security.md says how they are made.
SECRET_FOLDERS = {
    "lingua-auth": {"secret"},
    **{f"lingua-{component}-tls": {"tls.crt", "tls.key", "ca.crt"} for component in COMPONENTS},
    "lingua-console-tls": {"tls.crt", "tls.key", "ca.crt"},
}

Resource = dict[str, Any]


class Manifests:
    """All resources of one layer, such as `overlays/dev`."""

    def __init__(self, layer: str, resources: list[Resource]) -> None:
        self.layer = layer
        self.resources = resources

    def of(self, *kinds: str) -> list[Resource]:
        """All of these kinds."""
        return [each for each in self.resources if each["kind"] in kinds]

    def one(self, kind: str, name: str) -> Resource:
        """The one with this name; of what a hash is added to, the name without it."""
        (found,) = (
            each
            for each in self.of(kind)
            if re.fullmatch(rf"{name}(-[a-z0-9]{{10}})?", name_of(each))
        )
        return found

    def workloads(self) -> list[Resource]:
        """All that make pods."""
        return self.of("Deployment", "StatefulSet")

    def services(self) -> list[tuple[str, Resource]]:
        """Our three, each with its component and its Deployment, which may have all three."""
        return [(each, self.deployment(each)) for each in COMPONENTS]

    def processes(self) -> list[tuple[str, Resource]]:
        """The three services and the console."""
        return [*self.services(), (CONSOLE, self.deployment(CONSOLE))]

    def deployment(self, component: str) -> Resource:
        """The one whose pods run a service."""
        (found,) = (
            each
            for each in self.of("Deployment")
            if f"lingua-scheduler/{component}" in labels_of(each)
        )
        return found

    def selected(self, selector: Mapping[str, str]) -> list[str]:
        """The names of the workloads whose pods have these labels."""
        return [
            name_of(each)
            for each in self.workloads()
            if selector.items() <= labels_of(each).items()
        ]

    def environment(self, workload: Resource) -> dict[str, str]:
        """The variables of its container, as the kubelet would set them."""
        container = container_of(workload)
        environ: dict[str, str] = {}
        for source in container.get("envFrom", []):
            environ |= self.one("ConfigMap", source["configMapRef"]["name"])["data"]
        for variable in container.get("env", []):
            environ[variable["name"]] = self._value(variable, environ)
        return environ

    def _value(self, variable: Resource, environ: Mapping[str, str]) -> str:
        if "value" in variable:
            return re.sub(r"\$\((\w+)\)", lambda name: environ[name[1]], variable["value"])
        source = variable["valueFrom"]
        if "fieldRef" in source:
            return {"metadata.name": POD_NAME, "status.podIP": POD_IP}[
                source["fieldRef"]["fieldPath"]
            ]
        wanted = source["secretKeyRef"]
        for secret in self.of("Secret"):
            if name_of(secret) == wanted["name"]:
                return base64.b64decode(secret["data"][wanted["key"]]).decode()
        return SECRETS[wanted["name"]][wanted["key"]]


def name_of(resource: Resource) -> str:
    """Its name."""
    return str(resource["metadata"]["name"])


def labels_of(workload: Resource) -> dict[str, str]:
    """Of its pods."""
    labels: dict[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return labels


def pod_of(workload: Resource) -> Resource:
    """What its pods are like."""
    pod: Resource = workload["spec"]["template"]["spec"]
    return pod


def container_of(workload: Resource) -> Resource:
    """The one container of its pods."""
    (container,) = pod_of(workload)["containers"]
    found: Resource = container
    return found


def secret_mounts(workload: Resource) -> dict[str, str]:
    """Where the files of Secrets are in its container: the folder, and the Secret."""
    secrets = {
        each["name"]: each["secret"]["secretName"] for each in pod_of(workload).get("volumes", [])
    }
    mounts = container_of(workload).get("volumeMounts", [])
    return {each["mountPath"]: secrets[each["name"]] for each in mounts if each["name"] in secrets}


def port_of(workload: Resource, component: str, kind: str) -> int:
    """A port of its container: that of a service for grpc, metrics or health."""
    names = {kind, f"{kind}-{_SHORT[component]}"}
    (port,) = (p["containerPort"] for p in container_of(workload)["ports"] if p["name"] in names)
    return int(port)


def everything_in(value: object) -> Iterator[tuple[str, Any]]:
    """All keys of a document with what they hold, however deep."""
    if isinstance(value, dict):
        for key, held in value.items():
            yield key, held
            yield from everything_in(held)
    elif isinstance(value, list):
        for held in value:
            yield from everything_in(held)


@functools.cache
def render(layer: str) -> Manifests:
    """The layer as `kubectl apply -k` would apply it; the test is skipped without kubectl."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl on the PATH: install the client of Kubernetes, 1.21 or later")
    done = subprocess.run(
        ["kubectl", "kustomize", str(ROOT / "k8s" / layer)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    # Kustomize warns of what is deprecated.
    assert not done.stderr, done.stderr
    return Manifests(layer, list(yaml.safe_load_all(done.stdout)))
