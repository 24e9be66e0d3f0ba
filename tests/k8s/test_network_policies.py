"""The network policies allow the lines of the architecture's picture, and nothing else."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest

from lingua_scheduler.services.runtime.addresses import split_address
from lingua_scheduler.services.runtime.settings.settings import Settings
from tests.k8s.manifests import Manifests, container_of, labels_of, name_of, port_of

SETTINGS = Settings()
POOL, DISPATCHER, GATEWAY = (
    split_address(getattr(SETTINGS, f"{service}_listen"))[1]
    for service in ("pool", "dispatcher", "gateway")
)
WEB = split_address(SETTINGS.gateway_web_listen)[1]
CONSOLE = split_address(SETTINGS.console_listen)[1]
REDIS, DNS, OTLP = 6379, 53, 4317


@dataclass(frozen=True)
class Place:
    """Where a connection begins or ends: a pod of ours, or one of another namespace."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    ports: Mapping[str, int] = field(default_factory=dict, hash=False)
    namespace: Mapping[str, str] | None = field(default=None, hash=False)
    """Labels of the other namespace; None: our own."""


INGRESS = Place("ingress", namespace={"lingua-scheduler/ingress": "true"})
MONITORING = Place("monitoring", namespace={"lingua-scheduler/monitoring": "true"})
CLUSTER_DNS = Place("dns", namespace={"kubernetes.io/metadata.name": "kube-system"})
STRANGER = Place("stranger", namespace={"kubernetes.io/metadata.name": "default"})
ELSEWHERE = (INGRESS, MONITORING, CLUSTER_DNS, STRANGER)


class Network:
    """What the policies of a layer let through."""

    def __init__(self, manifests: Manifests) -> None:
        self._policies = [each["spec"] for each in manifests.of("NetworkPolicy")]
        self.pods = [
            Place(
                name_of(each).removeprefix("lingua-"),
                labels_of(each),
                {
                    port["name"]: port["containerPort"]
                    for port in container_of(each).get("ports", [])
                },
            )
            for each in manifests.workloads()
        ]

    def edges(self, ports: set[int]) -> set[tuple[str, str, int]]:
        """From where to where, and by which port."""
        places = [*self.pods, *ELSEWHERE]
        return {
            (source.name, target.name, port)
            for source, target, port in product(places, places, ports)
            if (source.namespace is None or target.namespace is None)
            and self._may(source, "Egress", "to", target, target, port)
            and self._may(target, "Ingress", "from", source, target, port)
        }

    def _may(
        self, pod: Place, direction: str, ends: str, peer: Place, target: Place, port: int
    ) -> bool:
        if pod.namespace is not None:
            return True
        about = [
            each
            for each in self._policies
            if direction in each["policyTypes"] and _matches(each["podSelector"], pod.labels)
        ]
        assert about, f"no policy is about {pod.name}, so it may do anything"
        return any(
            any(_is_peer(each, peer) for each in rule[ends])
            and any(_number(each["port"], target) == port for each in rule["ports"])
            for policy in about
            for rule in policy.get(direction.lower(), [])
        )


def _matches(selector: dict[str, Any], labels: Mapping[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels"}
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def _is_peer(peer: dict[str, Any], place: Place) -> bool:
    if "namespaceSelector" in peer:
        assert peer.keys() == {"namespaceSelector"}
        return place.namespace is not None and _matches(peer["namespaceSelector"], place.namespace)
    if "ipBlock" in peer:
        return False
    return place.namespace is None and _matches(peer["podSelector"], place.labels)


def _number(port: int | str, target: Place) -> int | None:
    return port if isinstance(port, int) else target.ports.get(port)


SERVICES = ("pool", "dispatcher", "gateway")
PROCESSES = (*SERVICES, "console")
PICTURE = {
    ("ingress", "gateway", GATEWAY),
    ("ingress", "gateway", WEB),
    ("gateway", "dispatcher", DISPATCHER),
    ("ingress", "dispatcher", DISPATCHER),
    ("dispatcher", "dispatcher", DISPATCHER),
    ("dispatcher", "pool", POOL),
    ("console", "pool", POOL),
    ("console", "dispatcher", DISPATCHER),
    ("console", "gateway", GATEWAY),
} | {
    ("monitoring", service, split_address(getattr(SETTINGS, f"{service}_metrics_listen"))[1])
    for service in PROCESSES
}
BESIDES = {
    "base": {(service, "dns", DNS) for service in PROCESSES},
    "overlays/dev": {(pod, "dns", DNS) for pod in (*PROCESSES, "redis", "sim-nodes")}
    | {(service, "redis", REDIS) for service in SERVICES}
    | {("sim-nodes", "dispatcher", DISPATCHER)},
    "overlays/production": {(service, "dns", DNS) for service in PROCESSES}
    | {(service, "monitoring", OTLP) for service in PROCESSES},
    "overlays/small": {
        (pod, to, port)
        for pod in ("all", "console")
        for to, port in (("dns", DNS), ("monitoring", OTLP))
    },
}
# Nobody in the cluster reaches the console: operators use `kubectl port-forward`.
PORTS = {port for *_, port in PICTURE} | {REDIS, DNS, OTLP, CONSOLE}


def picture(manifests: Manifests) -> set[tuple[str, str, int]]:
    """The lines between pods: a pod may have the ends of several."""
    pods = {each: name_of(found).removeprefix("lingua-") for each, found in manifests.services()}
    return {(pods.get(source, source), pods.get(to, to), port) for source, to, port in PICTURE}


def test_only_the_lines_of_the_picture_are_open(manifests: Manifests) -> None:
    health = {port_of(found, each, "health") for each, found in manifests.processes()}
    assert Network(manifests).edges(PORTS | health) == picture(manifests) | BESIDES[manifests.layer]


def test_no_policy_names_a_port_that_nobody_has(manifests: Manifests) -> None:
    for each in manifests.of("NetworkPolicy"):
        for direction in ("ingress", "egress"):
            for rule in each["spec"].get(direction, []):
                named = {port["port"] for port in rule["ports"]} - PORTS
                assert all(name.partition("-")[0] == "metrics" for name in named)


def test_every_pod_is_closed_unless_something_opens_it(manifests: Manifests) -> None:
    closed = manifests.one("NetworkPolicy", "lingua-nothing-else")["spec"]
    assert closed == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_may_reach_a_redis_outside_the_cluster(
    secured: Manifests, service: str
) -> None:
    policy = secured.one("NetworkPolicy", "lingua-to-redis")["spec"]
    selected = secured.selected(policy["podSelector"]["matchLabels"])
    assert name_of(secured.deployment(service)) in selected
    (rule,) = policy["egress"]
    # Its own addresses, and not whole networks.
    for peer in rule["to"]:
        assert ipaddress.ip_network(peer["ipBlock"]["cidr"]).num_addresses <= 16
    assert [port["port"] for port in rule["ports"]] == [REDIS]


def test_the_console_may_not_reach_redis(secured: Manifests) -> None:
    policy = secured.one("NetworkPolicy", "lingua-to-redis")["spec"]
    assert "lingua-console" not in secured.selected(policy["podSelector"]["matchLabels"])
