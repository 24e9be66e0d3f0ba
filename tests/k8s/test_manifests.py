"""What the manifests say is valid, and agrees with the code."""

import json
import re
import tomllib

import pytest
import yaml
from click.testing import CliRunner

from lingua_scheduler.cli.app import app
from lingua_scheduler.cli.up.local_scheduler import STOP_SLACK_S
from lingua_scheduler.services.console.http.routes import HEALTH
from lingua_scheduler.services.runtime.addresses import split_address
from lingua_scheduler.services.runtime.rpc.health import LIVENESS
from lingua_scheduler.services.runtime.settings.settings import (
    Settings,
    load_settings,
    unknown_variables,
)
from tests.k8s.helm.chart import CHART
from tests.k8s.manifests import (
    COMPONENTS,
    CONSOLE,
    POD_IP,
    POD_NAME,
    ROOT,
    SECRET_FOLDERS,
    SECRETS,
    Manifests,
    Resource,
    container_of,
    everything_in,
    labels_of,
    name_of,
    pod_of,
    port_of,
    render,
    secret_mounts,
)
from tests.k8s.validity import VERSIONS, InvalidError, validate

DEFAULTS = Settings()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_resource_is_valid_at_the_strictest(manifests: Manifests, version: str) -> None:
    for each in manifests.resources:
        validate(each, version)


def test_what_the_guide_shows_is_valid_too() -> None:
    guide = (ROOT / "docs" / "kubernetes.md").read_text()
    shown = re.findall(r"^```yaml\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    assert shown
    for each in shown:
        validate(yaml.safe_load(each), VERSIONS[0])


def test_the_validator_finds_an_unknown_field(manifests: Manifests) -> None:
    broken = {**manifests.one("Service", "lingua-pool"), "specs": {}}
    with pytest.raises(InvalidError, match="specs"):
        validate(broken, VERSIONS[0])


def test_the_validator_finds_an_unknown_field_of_a_custom_resource(secured: Manifests) -> None:
    for each in secured.of("PodMonitor", "PrometheusRule", "GRPCRoute", "BackendTrafficPolicy"):
        broken = {**each, "spec": {**each["spec"], "selectors": {}}}
        with pytest.raises(InvalidError, match="selectors"):
            validate(broken, VERSIONS[0])


def test_every_file_is_part_of_something() -> None:
    kustomizations = [path.read_text() for path in ROOT.glob("k8s/**/kustomization.yaml")]
    for path in [*ROOT.glob("k8s/**/*.yaml"), *ROOT.glob("k8s/**/*.env")]:
        if path.name != "kustomization.yaml" and CHART not in path.parents:
            assert any(path.name in text for text in kustomizations), path


def test_everything_is_in_one_namespace_that_admits_only_restricted_pods(
    manifests: Manifests,
) -> None:
    (namespace,) = manifests.of("Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    others = [each for each in manifests.resources if each is not namespace]
    assert {each["metadata"]["namespace"] for each in others} == {name_of(namespace)}


# ---- settings ----


def test_every_variable_is_a_setting_with_a_valid_value(manifests: Manifests) -> None:
    for component, deployment in manifests.processes():
        environ = manifests.environment(deployment)
        settings = load_settings(environ)
        assert unknown_variables(environ) == []
        # The console asks the services.
        assert bool(settings.redis_url) == (component != CONSOLE)
        assert settings.instance_id == POD_NAME
        assert settings.log_format == "json"


def test_every_service_listens_for_others_on_the_ports_of_the_defaults(
    manifests: Manifests,
) -> None:
    for component, deployment in manifests.processes():
        settings = load_settings(manifests.environment(deployment))
        for setting, port in (
            (f"{component}_listen", "web" if component == CONSOLE else "grpc"),
            (f"{component}_metrics_listen", "metrics"),
            (f"{component}_health_listen", "health"),
            *((("gateway_web_listen", "web"),) if component == "gateway" else ()),
        ):
            host, number = split_address(getattr(settings, setting))
            assert host == "0.0.0.0"
            assert number == port_of(deployment, component, port)
            # By default there is no port for health alone.
            if default := getattr(DEFAULTS, setting):
                assert number == split_address(default)[1]


def test_every_service_is_found_by_all_its_pods(manifests: Manifests) -> None:
    for component, deployment in manifests.services():
        address = getattr(load_settings(manifests.environment(deployment)), f"{component}_address")
        name, port = split_address(address.removeprefix("dns:///"))
        service = manifests.one("Service", name)["spec"]
        assert address.startswith("dns:///")
        assert service["clusterIP"] == "None"
        assert manifests.selected(service["selector"]) == [name_of(deployment)]
        ports = [port]
        if component == "gateway":
            ports.append(split_address(DEFAULTS.gateway_web_listen)[1])
        found = [(each["port"], each["targetPort"]) for each in service["ports"]]
        assert found == [(each, each) for each in ports]
        assert port == port_of(deployment, component, "grpc")


def test_a_dispatcher_is_reached_by_the_address_of_its_pod(manifests: Manifests) -> None:
    deployment = manifests.deployment("dispatcher")
    settings = load_settings(manifests.environment(deployment))
    port = port_of(deployment, "dispatcher", "grpc")
    assert settings.dispatcher_advertise == f"{POD_IP}:{port}"


def test_every_container_runs_a_real_command(manifests: Manifests) -> None:
    for each in manifests.of("Deployment"):
        args = container_of(each)["args"]
        ran = CliRunner().invoke(app, [*args, "--help"])
        assert ran.exit_code == 0, f"{args}: {ran.output}"
    for component, deployment in manifests.processes():
        is_small = manifests.layer == "overlays/small"
        runs = "all" if is_small and component != CONSOLE else component
        assert container_of(deployment)["args"] == ["serve", runs]
        assert name_of(deployment) == f"lingua-{runs}"


def test_what_is_referred_to_is_there_or_the_operators(manifests: Manifests) -> None:
    there = {(each["kind"], name_of(each)) for each in manifests.resources}
    for each in manifests.workloads():
        named = list(everything_in(each))
        for key, kind in (("configMapRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            for name in (held["name"] for found, held in named if found == key):
                assert (kind, name) in there or (kind == "Secret" and name in SECRETS), name
        assert set(secret_mounts(each).values()) <= SECRET_FOLDERS.keys()
        account = pod_of(each).get("serviceAccountName")
        assert account is None or ("ServiceAccount", account) in there


def test_every_image_is_that_of_this_version(manifests: Manifests) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for each in manifests.of("Deployment"):
        assert container_of(each)["image"] == f"lingua-scheduler:{version}"


# ---- probes and ends ----


def test_only_readiness_asks_whether_the_service_serves(manifests: Manifests) -> None:
    for component, deployment in manifests.services():
        if manifests.layer == "overlays/small":
            # All services of a process become ready together; test_probes asks each of them.
            component = "gateway"
        container, port = container_of(deployment), port_of(deployment, component, "health")
        asked = {"port": port, "service": COMPONENTS[component]}
        assert container["readinessProbe"]["grpc"] == asked
        assert container["livenessProbe"]["grpc"] == {"port": port, "service": LIVENESS}
        assert container["startupProbe"]["grpc"] == {"port": port, "service": LIVENESS}


def test_the_console_is_asked_by_http_whether_it_serves(manifests: Manifests) -> None:
    deployment = manifests.deployment(CONSOLE)
    asked = {"port": port_of(deployment, CONSOLE, "health"), "path": HEALTH}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container_of(deployment)[probe]["httpGet"] == asked


def test_the_console_has_one_address_for_all_its_pods(manifests: Manifests) -> None:
    service = manifests.one("Service", "lingua-console")["spec"]
    assert manifests.selected(service["selector"]) == ["lingua-console"]
    (port,) = service["ports"]
    assert port["port"] == port["targetPort"] == split_address(DEFAULTS.console_listen)[1]


def test_a_pod_has_time_to_leave_the_endpoints_to_drain_and_to_end(manifests: Manifests) -> None:
    for _, deployment in manifests.processes():
        settings = load_settings(manifests.environment(deployment))
        leaves_s = container_of(deployment)["lifecycle"]["preStop"]["sleep"]["seconds"]
        # Until the answers of the cluster's DNS are over.
        assert leaves_s > 5
        grace_s = pod_of(deployment)["terminationGracePeriodSeconds"]
        assert grace_s > leaves_s + settings.drain_grace_ms / 1000 + STOP_SLACK_S


def test_a_roll_out_takes_no_pod_before_its_successor_is_ready(manifests: Manifests) -> None:
    for _, deployment in manifests.processes():
        assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


# ---- what a pod may and gets ----


def test_every_pod_is_restricted(manifests: Manifests) -> None:
    for each in manifests.workloads():
        pod, container = pod_of(each), container_of(each)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        assert pod["automountServiceAccountToken"] is False
        # They would begin with LINGUA_, as settings do.
        assert pod["enableServiceLinks"] is False


def test_every_service_has_an_account_of_its_own_without_a_token(manifests: Manifests) -> None:
    for _, deployment in manifests.processes():
        account = manifests.one("ServiceAccount", name_of(deployment))
        assert pod_of(deployment)["serviceAccountName"] == name_of(account)
        assert account["automountServiceAccountToken"] is False


def test_every_pod_asks_for_what_it_needs_and_only_memory_is_limited(manifests: Manifests) -> None:
    for each in manifests.workloads():
        resources = container_of(each)["resources"]
        assert resources["requests"].keys() == {"cpu", "memory"}
        assert resources["limits"].keys() == {"memory"}


def test_the_pods_of_a_service_are_spread_over_machines_and_zones(manifests: Manifests) -> None:
    for _, deployment in manifests.processes():
        constraints = pod_of(deployment)["topologySpreadConstraints"]
        assert [each["topologyKey"] for each in constraints] == [
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
        ]
        for each in constraints:
            assert each["labelSelector"]["matchLabels"].items() <= labels_of(deployment).items()
            assert "app.kubernetes.io/component" in each["matchLabelKeys"]


# ---- who selects whom ----


def test_a_workload_selects_its_own_pods_and_no_others(manifests: Manifests) -> None:
    for each in manifests.workloads():
        selector = each["spec"]["selector"]["matchLabels"]
        assert manifests.selected(selector) == [name_of(each)]


def test_every_service_may_lose_one_pod_at_a_time_to_maintenance(manifests: Manifests) -> None:
    for _, deployment in manifests.processes():
        budget = manifests.one("PodDisruptionBudget", name_of(deployment))["spec"]
        assert manifests.selected(budget["selector"]["matchLabels"]) == [name_of(deployment)]
        assert budget["maxUnavailable"] == 1


def test_every_service_grows_by_itself_and_nothing_else_says_how_many(
    production: Manifests,
) -> None:
    for _, deployment in production.services():
        scaler = production.one("HorizontalPodAutoscaler", name_of(deployment))["spec"]
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name_of(deployment)}
        assert scaler["scaleTargetRef"] == target
        assert 3 <= scaler["minReplicas"] < scaler["maxReplicas"]
        assert "replicas" not in deployment["spec"]


def test_every_service_of_every_pod_is_scraped(secured: Manifests) -> None:
    (monitor,) = secured.of("PodMonitor")
    names = {name_of(deployment) for _, deployment in secured.processes()}
    assert set(secured.selected(monitor["spec"]["selector"]["matchLabels"])) == names
    endpoints = monitor["spec"]["podMetricsEndpoints"]
    assert {each["path"] for each in endpoints} == {"/metrics"}
    scraped = [each["port"] for each in endpoints]
    for component, deployment in secured.processes():
        ports = {each["name"]: each["containerPort"] for each in container_of(deployment)["ports"]}
        found = [ports[name] for name in scraped if name in ports]
        assert found.count(port_of(deployment, component, "metrics")) == 1
    # The job that its series have; the rules find ours by that.
    job = f"{monitor['metadata']['namespace']}/{name_of(monitor)}"
    assert "jobLabel" not in monitor["spec"]
    assert "lingua" in job


def test_the_rules_of_the_operator_are_those_of_prometheus(secured: Manifests) -> None:
    (rules,) = secured.of("PrometheusRule")
    alerts = yaml.safe_load((ROOT / "monitoring" / "alerts.yml").read_text())
    # Kustomize writes long strings with other line breaks, which mean nothing to Prometheus.
    made, wanted = (
        re.sub(r"(\\n|\s)+", " ", json.dumps(each, sort_keys=True))
        for each in (rules["spec"], alerts)
    )
    assert made == wanted, "run 'make rules' and commit the result"


# ---- tokens and TLS ----


def test_the_base_leaves_it_to_the_overlays_who_may_call() -> None:
    base = render("base")
    for _, deployment in base.processes():
        settings = load_settings(base.environment(deployment))
        # With this alone, the services refuse to listen.
        assert (settings.auth, settings.listen_without_auth) == ("off", False)
        assert secret_mounts(deployment) == {}


def test_production_asks_who_calls_and_has_tls_on_every_line(secured: Manifests) -> None:
    for _, deployment in secured.processes():
        settings = load_settings(secured.environment(deployment))
        assert settings.auth == "on"
        assert settings.tls_server_name
        # Who is called by others than services cannot ask for certificates.
        assert bool(settings.tls_client_ca_file) == (name_of(deployment) == "lingua-pool")
        folders = secret_mounts(deployment)
        for path in (
            settings.auth_secret_file,
            settings.tls_cert_file,
            settings.tls_key_file,
            settings.tls_ca_file,
            settings.tls_client_ca_file or settings.tls_ca_file,
        ):
            folder, _, name = path.rpartition("/")
            assert name in SECRET_FOLDERS[folders[folder]]


def test_production_limits_what_a_tenant_may_use_as_the_defaults_do(secured: Manifests) -> None:
    defaults = load_settings({"LINGUA_AUTH": "on"})
    for _, deployment in secured.services():
        settings = load_settings(secured.environment(deployment))
        for name in ("quota_sessions", "quota_jobs", "quota_audio_s_per_minute"):
            assert getattr(settings, name) == getattr(defaults, name) > 0


# ---- the overlay small ----


def test_small_has_two_pods_with_all_services_and_nothing_of_single_ones(small: Manifests) -> None:
    deployment, console = small.workloads()
    assert (name_of(deployment), name_of(console)) == ("lingua-all", "lingua-console")
    assert (deployment["spec"]["replicas"], console["spec"]["replicas"]) == (2, 1)
    assert small.of("HorizontalPodAutoscaler") == []
    for kind in ("ServiceAccount", "PodDisruptionBudget"):
        names = [name_of(each) for each in small.of(kind)]
        assert names == [name_of(deployment), name_of(console)]


def test_small_and_production_can_run_side_by_side_while_one_replaces_the_other(
    small: Manifests, production: Manifests
) -> None:
    """Services and policies are the same, and find the pods of both; no pod belongs to two."""
    for each in (*small.of("Service"), *small.of("NetworkPolicy")):
        if name_of(each) != "lingua-metrics":
            assert production.one(each["kind"], name_of(each)) == each
    # The console is the same in both, but for the number of its pods.
    pods, console = small.workloads()
    twin = production.deployment(CONSOLE)
    assert {**console, "spec": {**console["spec"], "replicas": 2}} == twin
    for workload in (each for each in production.workloads() if each is not twin):
        assert not small.selected(workload["spec"]["selector"]["matchLabels"])
        assert not production.selected(pods["spec"]["selector"]["matchLabels"])


# ---- the overlay dev ----


def test_dev_says_in_so_many_words_that_everybody_may_call(dev: Manifests) -> None:
    for _, deployment in dev.processes():
        settings = load_settings(dev.environment(deployment))
        assert settings.auth == "off"
        assert settings.listen_without_auth


def test_dev_has_one_pod_of_each_and_no_scaler(dev: Manifests) -> None:
    assert {each["spec"]["replicas"] for each in dev.workloads()} == {1}
    assert dev.of("HorizontalPodAutoscaler") == []


def test_dev_has_a_redis_that_never_evicts_at_the_address_of_its_secret(dev: Manifests) -> None:
    redis = dev.one("StatefulSet", "redis")
    args = container_of(redis)["args"]
    assert args[args.index("--maxmemory-policy") + 1] == "noeviction"
    service = dev.one("Service", "redis")["spec"]
    assert dev.selected(service["selector"]) == ["redis"]
    (port,) = (each["port"] for each in service["ports"])
    pool = dev.one("Deployment", "lingua-pool")
    assert load_settings(dev.environment(pool)).redis_url == f"redis://redis:{port}/0"


def test_simulated_nodes_find_the_dispatchers(dev: Manifests) -> None:
    nodes: Resource = dev.one("Deployment", "sim-nodes")
    environ = dev.environment(nodes)
    assert unknown_variables(environ) == []
    assert load_settings(environ).dispatcher_address == "dns:///lingua-dispatcher:7720"
