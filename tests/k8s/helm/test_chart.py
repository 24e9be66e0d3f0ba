"""The Helm chart: it renders what kustomize renders, is valid, and refuses wrong values."""

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from lingua_scheduler.services.runtime.settings.settings import load_settings, unknown_variables
from tests.k8s.helm.chart import (
    CHART,
    LAYERS,
    HelmError,
    differences,
    helm,
    is_hook,
    rendered,
    values_of,
    with_values,
)
from tests.k8s.manifests import (
    ROOT,
    Manifests,
    container_of,
    labels_of,
    name_of,
    pod_of,
    render,
)
from tests.k8s.validity import VERSIONS, validate

DIGEST = f"sha256:{'0' * 64}"
# Whatever the layers leave out.
OPTIONS: dict[str, Any] = {
    "image": {
        "repository": "registry.example.com/lingua",
        "digest": DIGEST,
        "pullPolicy": "Always",
        "pullSecrets": ["registry"],
    },
    "auth": {"jwks": True},
    "settings": {
        "LINGUA_DRAIN_GRACE_MS": "30500",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel:4317",
    },
    "extraEnv": [{"name": "LINGUA_LANGUAGES", "value": "en,es"}],
    "ipFamily": "IPv6",
    "pool": {"resources": {"requests": {"cpu": "2"}}},
    "topologySpread": "DoNotSchedule",
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "speech", "operator": "Exists"}],
    "priorityClassName": "high",
    "podAnnotations": {"team": "speech"},
    "networkPolicies": {"dnsCidrs": ["169.254.20.10/32"], "redis": {"ports": [6379, 26379]}},
    "monitoring": {"labels": {"release": "prometheus"}, "dashboards": {"enabled": True}},
}


@pytest.fixture(params=LAYERS)
def chart(request: pytest.FixtureRequest) -> Manifests:
    """The chart with the values of each layer in turn."""
    return rendered(request.param)


@pytest.fixture
def optional() -> Manifests:
    """The chart for production with all other options."""
    return with_values("overlays/production", **OPTIONS)


@pytest.mark.parametrize("layer", LAYERS)
def test_the_chart_and_kustomize_render_the_same(layer: str) -> None:
    assert differences(rendered(layer), render(layer)) == []


@pytest.mark.parametrize("layer", LAYERS)
def test_helm_finds_nothing_wrong_with_the_chart(layer: str) -> None:
    helm("lint", "--strict", *values_of(layer), CHART)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_option_is_valid_at_the_strictest(optional: Manifests, version: str) -> None:
    """What the layers render is, because kustomize renders the same."""
    for each in optional.resources:
        validate(each, version)


def test_everything_is_in_the_namespace_of_the_release_and_says_which(chart: Manifests) -> None:
    _, namespace = LAYERS[chart.layer]
    for each in chart.resources:
        assert each["metadata"]["namespace"] == namespace
        assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == "lingua"
        assert each["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"


def test_the_chart_is_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == version


def test_every_file_of_values_is_compared() -> None:
    compared = {name for files, _ in LAYERS.values() for name in files}
    assert {path.name for path in (CHART / "values").iterdir()} == compared


# ---- options ----


def test_options_reach_every_pod_of_the_services(optional: Manifests) -> None:
    for component, deployment in optional.processes():
        pod, container = pod_of(deployment), container_of(deployment)
        assert container["image"] == f"registry.example.com/lingua@{DIGEST}"
        assert container["imagePullPolicy"] == "Always"
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert pod["nodeSelector"] == {"disk": "fast"}
        assert pod["priorityClassName"] == "high"
        assert {each["whenUnsatisfiable"] for each in pod["topologySpreadConstraints"]} == {
            "DoNotSchedule"
        }
        requests = {"cpu": "2" if component == "pool" else "1", "memory": "512Mi"}
        assert container["resources"] == {"requests": requests, "limits": {"memory": "1Gi"}}
        # preStop, drain, and ten seconds.
        assert pod["terminationGracePeriodSeconds"] == 10 + 31 + 10
        environ = optional.environment(deployment)
        settings = load_settings(environ)
        assert unknown_variables(environ) == []
        assert settings.languages == "en,es"
        assert settings.auth_jwks_file == "/etc/lingua/auth/jwks.json"
        assert settings.pool_listen == "[::]:7710"
    dispatcher = optional.environment(optional.deployment("dispatcher"))
    assert dispatcher["LINGUA_DISPATCHER_ADVERTISE"].startswith("[")


def test_policies_let_dns_caches_and_all_ports_of_redis_through(optional: Manifests) -> None:
    (dns,) = optional.one("NetworkPolicy", "lingua-dns")["spec"]["egress"]
    assert {"ipBlock": {"cidr": "169.254.20.10/32"}} in dns["to"]
    (redis,) = optional.one("NetworkPolicy", "lingua-to-redis")["spec"]["egress"]
    assert [each["port"] for each in redis["ports"]] == [6379, 26379]


def test_dashboards_are_those_of_the_repository(optional: Manifests) -> None:
    shown = {
        name: text
        for each in optional.of("ConfigMap")
        if "grafana_dashboard" in each["metadata"]["labels"]
        for name, text in each["data"].items()
    }
    folder = ROOT / "monitoring" / "dashboards"
    assert shown == {f"lingua-{path.name}": path.read_text() for path in folder.glob("*.json")}


def test_a_changed_setting_restarts_the_pods_and_another_value_does_not() -> None:
    def checksums(**values: Any) -> set[str]:
        return {
            each["spec"]["template"]["metadata"]["annotations"]["checksum/settings"]
            for _, each in with_values(**values).processes()
        }

    (before,) = checksums()
    (changed,) = checksums(settings={"LINGUA_LOG_LEVEL": "debug"})
    assert before != changed
    assert checksums(console={"replicas": 3}) == {before}


def test_without_a_console_nothing_of_it_is_left() -> None:
    without = with_values(console={"enabled": False})
    names = {name_of(each) for each in without.resources if each["kind"] != "NetworkPolicy"}
    assert "lingua-console" not in names
    assert "lingua-gateway" in names


def test_an_ingress_of_ones_own_gets_services_and_nothing_else() -> None:
    entries = with_values(ingress={"type": "entries"})
    assert entries.one("Service", "lingua-web-entry")
    assert entries.of("Gateway", "GRPCRoute", "HTTPRoute") == []


def test_the_pod_of_helm_test_is_restricted_and_belongs_to_nobody(chart: Manifests) -> None:
    (pod,) = chart.of("Pod")
    assert is_hook(pod)
    service = chart.deployment("gateway")
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"] == container_of(service)["securityContext"]
    assert container["image"] == container_of(service)["image"]
    # No Service, no policy and no monitor of the services selects it.
    assert not pod["metadata"]["labels"].keys() & (
        labels_of(service).keys() - {"app.kubernetes.io/name"}
    )
    assert pod["metadata"]["labels"]["app.kubernetes.io/name"] == "lingua-test"


# ---- wrong values ----


@pytest.mark.parametrize(
    ("layer", "values", "says"),
    [
        ("base", {"layuot": "all"}, "Additional property layuot is not allowed"),
        ("base", {"layout": "both"}, 'layout must be one of the following: "split", "all"'),
        ("base", {"pool": {"replicas": "two"}}, "pool.replicas: Invalid type. Expected: integer"),
        ("base", {"pool": None}, "pool is required"),
        ("base", {"image": {"digest": "latest"}}, "image.digest: Does not match pattern"),
        ("base", {"redis": {"secret": {"name": ""}}}, "create a Secret with the URL of Redis"),
        (
            "base",
            {"settings": {"LINGUA_LOG_LEVL": "info"}},
            "settings: Additional property LINGUA_LOG_LEVL is not allowed",
        ),
        (
            "base",
            {"settings": {"LINGUA_REDIS_URL": "redis://redis"}},
            "settings: Additional property LINGUA_REDIS_URL is not allowed",
        ),
        (
            "base",
            {"settings": {"LINGUA_CELLS": 4}},
            "settings.LINGUA_CELLS: Invalid type. Expected: string, given: integer",
        ),
        (
            "base",
            {"settings": {"LINGUA_LOG_LEVEL": "loud"}},
            'must be one of the following: "debug", "info", "warning", "error"',
        ),
        ("base", {"pool": {"autoscaling": {"minReplicas": 7}}}, "minReplicas is 7, more than max"),
        ("base", {"ingress": {"type": "envoy-gateway"}}, "set tls.enabled=true"),
        ("overlays/production", {"ingress": {"hosts": {"web": ""}}}, "ingress.hosts.web is empty"),
        (
            "overlays/production",
            {"ingress": {"hosts": {"web": "nodes.example.com"}}},
            "ingress.hosts needs three different names",
        ),
        ("overlays/production", {"simNodes": {"enabled": True}}, "simulated nodes have no token"),
        (
            "overlays/production",
            {"nodes": {"en-es": {"image": "nodes:1"}}},
            "nodes.en-es.tokenSecret is missing",
        ),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(
    layer: str, values: dict[str, Any], says: str
) -> None:
    with pytest.raises(HelmError, match=re.escape(says)):
        with_values(layer, **values)


# ---- notes ----


def notes(folder: Path, layer: str) -> str:
    """What `helm install` says at the end; Helm shows it only with a cluster."""
    copied = folder / "chart"
    shutil.copytree(CHART, copied)
    text = copied / "templates" / "NOTES.txt"
    shown = text.with_name("notes.yaml")
    defined = '{{ define "notes" }}' + text.read_text() + "{{ end }}"
    shown.write_text(defined + 'notes: {{ include "notes" . | quote }}')
    text.unlink()
    made = helm(
        *("template", "lingua", copied, "--namespace", LAYERS[layer][1]),
        *(*values_of(layer), "--show-only", "templates/notes.yaml"),
    )
    return str(yaml.safe_load(made)["notes"])


@pytest.mark.parametrize(
    ("layer", "says", "is_silent_on"),
    [
        (
            "base",
            ["services refuse to start", "create secret generic lingua-redis"],
            ["lingua-auth"],
        ),
        ("overlays/dev", ["may do everything", "one Redis, without"], ["lingua-redis"]),
        (
            "overlays/production",
            ["lingua-auth", "lingua-pool-tls", "nodes.example.com:443", "192.0.2.10 is a"],
            ["NOT FOR PRODUCTION", "lingua-all"],
        ),
        (
            "overlays/small",
            ["deployment/lingua-all -- lingua nodes list"],
            ["lingua-pool-tls", "deployment/lingua-gateway"],
        ),
    ],
)
def test_the_notes_say_what_is_missing_and_what_to_do_next(
    tmp_path: Path, layer: str, says: list[str], is_silent_on: list[str]
) -> None:
    told = notes(tmp_path, layer)
    for each in says:
        assert each in told
    for each in is_silent_on:
        assert each not in told
    assert "kubectl -n lingua" in told
    assert f"helm -n {LAYERS[layer][1]} test lingua" in told
