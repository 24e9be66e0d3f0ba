"""Nodes in the chart, and how KEDA scales them: before their slots run out."""

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from tests.k8s.helm.chart import with_values
from tests.k8s.manifests import Manifests, container_of, labels_of, pod_of
from tests.k8s.validity import VERSIONS, validate
from tests.monitoring.rules import ALERTS_FILE, RECORDING

SLOTS, FREE, MOST = 2, 4, 50
GROUP: dict[str, Any] = {
    "image": "registry.example.com/interpreter:1",
    "command": ["python", "-m", "interpreter"],
    "tokenSecret": "node-token",
    "resources": {"limits": {"nvidia.com/gpu": 1}},
    "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
    "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    "keda": {
        "serverAddress": "http://prometheus-operated.monitoring:9090",
        "directions": [
            {"kind": "speech", "src": "en", "tgt": "zh-Hant"},
            {"kind": "speech", "src": "zh-Hant", "tgt": "en"},
        ],
        "slotsPerNode": SLOTS,
        "freeSlots": FREE,
        "maxReplicas": MOST,
        "authenticationRef": "prometheus",
    },
}


@pytest.fixture
def nodes() -> Manifests:
    """The chart for production with a group of nodes."""
    return with_values("overlays/production", nodes={"en-zh": GROUP})


def trigger(nodes: Manifests) -> dict[str, str]:
    """How KEDA finds out how many nodes there should be."""
    (found,) = nodes.one("ScaledObject", "lingua-nodes-en-zh")["spec"]["triggers"]
    metadata: dict[str, str] = found["metadata"]
    return metadata


def test_nodes_and_their_scaler_are_valid_at_the_strictest(nodes: Manifests) -> None:
    for each in nodes.resources:
        if "nodes" in each["metadata"]["name"]:
            validate(each, VERSIONS[0])


def test_a_node_is_restricted_and_gets_what_it_needs_to_connect(nodes: Manifests) -> None:
    deployment = nodes.one("Deployment", "lingua-nodes-en-zh")
    service = nodes.deployment("gateway")
    container = container_of(deployment)
    assert container["securityContext"] == container_of(service)["securityContext"]
    assert pod_of(deployment)["securityContext"] == pod_of(service)["securityContext"]
    environ = {each["name"]: each.get("value") for each in container["env"]}
    assert environ["LINGUA_DISPATCHER_ADDRESS"] == "dns:///lingua-dispatcher:7720"
    assert environ["LINGUA_TLS_SERVER_NAME"] == "lingua.internal"
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    for file in (environ["LINGUA_TOKEN_FILE"], environ["LINGUA_TLS_CA_FILE"]):
        assert str(file).rpartition("/")[0] in mounts
    assert "/models" in mounts
    # KEDA sets them.
    assert "replicas" not in deployment["spec"]


def test_a_node_may_reach_the_dispatchers_and_is_no_service(nodes: Manifests) -> None:
    labels = labels_of(nodes.one("Deployment", "lingua-nodes-en-zh"))
    for name, direction in (("lingua-nodes", "podSelector"), ("lingua-from-nodes", "ingress")):
        policy = nodes.one("NetworkPolicy", name)["spec"]
        selector = policy["podSelector"]
        if direction == "ingress":
            selector = policy["ingress"][0]["from"][0]["podSelector"]
        assert selector["matchLabels"].items() <= labels.items()
    for each in nodes.of("Service"):
        assert not each["spec"]["selector"].items() <= labels.items()


def test_without_keda_the_values_say_how_many_nodes_there_are() -> None:
    fixed = {"image": "nodes:1", "replicas": 3}
    rendered = with_values(nodes={"some": fixed})
    assert rendered.one("Deployment", "lingua-nodes-some")["spec"]["replicas"] == 3
    assert rendered.of("ScaledObject") == []


# ---- KEDA ----


def test_the_query_names_series_that_are_recorded(nodes: Manifests) -> None:
    query = trigger(nodes)["query"]
    promql_parser.parse(query)
    for name in ("direction:lingua_pool_slots:min", "direction:lingua_pool_free_slots:min"):
        assert name in query
        assert name in RECORDING
    # As the labels of metrics.
    assert 'src="zh-hant"' in query


def pods(wanted: float, present: int) -> int:
    """How many pods an autoscaler makes of a metric with an average for each pod.

    It changes nothing within a tenth; a scale-down is not looked at here.
    """
    if wanted / (SLOTS * present) <= 1.1:
        return present
    return min(MOST, math.ceil(wanted / SLOTS))


@pytest.mark.parametrize("present", [3, 10, 40])
def test_nodes_are_added_as_soon_as_fewer_slots_are_free_than_there_should_be(
    nodes: Manifests, promtool: str, tmp_path: Path, present: int
) -> None:
    """Whatever the number of nodes: the tolerance of autoscalers does not use up what is free."""
    slots = SLOTS * present
    for free in (FREE + 1, FREE - 1, 0):
        # Prometheus evaluates the query that KEDA sends, over the rules.
        wanted = 1.1 * (slots - free + FREE)
        check(promtool, tmp_path, trigger(nodes)["query"], slots=slots, free=free, gives=wanted)
        if free > FREE:
            assert pods(wanted, present) == present
        else:
            assert pods(wanted, present) * SLOTS - (slots - free) >= FREE


def check(promtool: str, folder: Path, query: str, *, slots: int, free: int, gives: float) -> None:
    """Lets promtool compare what a query gives.

    Two pool services export the same; the other direction of the nodes has one slot less taken.
    """
    given: dict[str, str] = {}
    for instance in ("a", "b"):
        of = f'job="lingua-pool", instance="{instance}"'
        given[f"lingua_pool_sampled_timestamp_seconds{{{of}}}"] = "0+15x20"
        for src, tgt, less in (("en", "zh-hant", 0), ("zh-hant", "en", 1)):
            labels = f'{{kind="speech", src="{src}", tgt="{tgt}", {of}}}'
            given[f"lingua_pool_slots{labels}"] = f"{slots}x20"
            given[f"lingua_pool_free_slots{labels}"] = f"{free + less}x20"
        other = f'{{kind="speech", src="en", tgt="fr", {of}}}'
        given[f"lingua_pool_slots{other}"] = "900x20"
        given[f"lingua_pool_free_slots{other}"] = "0x20"
    test = {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in given.items()],
        "promql_expr_test": [
            {
                "expr": query,
                "eval_time": "2m",
                "exp_samples": [{"labels": "{}", "value": gives}],
            }
        ],
    }
    path = folder / "test.yml"
    path.write_text(
        json.dumps(
            {"rule_files": [str(ALERTS_FILE)], "evaluation_interval": "15s", "tests": [test]}
        )
    )
    done = subprocess.run(
        [promtool, "test", "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_data_the_number_of_nodes_stays(nodes: Manifests) -> None:
    assert trigger(nodes)["ignoreNullValues"] == "false"
    assert nodes.one("ScaledObject", "lingua-nodes-en-zh")["spec"]["minReplicaCount"] >= 1
