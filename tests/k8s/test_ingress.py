"""The ingress of production: it lets streams of clients and nodes through, and little else."""

import re
from typing import Any

from lingua_scheduler.services.runtime.settings.settings import Settings, load_settings
from lingua_scheduler.services.runtime.web import connections
from lingua_scheduler.services.session_gateway.web.talk_page import page_files
from lingua_scheduler.v1 import dispatcher_pb2, session_pb2
from tests.k8s.manifests import Manifests, Resource, name_of

UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
METHODS = {
    (service.full_name, method.name): method
    for module in (session_pb2, dispatcher_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}

SETTINGS = Settings()


def ms(duration: str) -> int:
    """A duration of the Gateway API, such as 1m30s."""
    return sum(int(n) * UNIT_MS[unit] for n, unit in re.findall(r"(\d+)(ms|s|m|h)", duration))


def matches_of(route: Resource) -> list[tuple[str, str]]:
    """Service and method of each call that a route lets through."""
    (rule,) = route["spec"]["rules"]
    return [(each["method"]["service"], each["method"]["method"]) for each in rule["matches"]]


def policy_of(manifests: Manifests, route: Resource) -> dict[str, Any]:
    """The policy that is attached to a route."""
    (found,) = (
        each["spec"]
        for each in manifests.of("BackendTrafficPolicy")
        if each["spec"]["targetRefs"]
        == [{"group": "gateway.networking.k8s.io", "kind": route["kind"], "name": name_of(route)}]
    )
    policy: dict[str, Any] = found
    return policy


def test_only_what_clients_members_and_nodes_may_call_comes_in(secured: Manifests) -> None:
    found = [each for route in secured.of("GRPCRoute") for each in matches_of(route)]
    rooms = ("CreateRoom", "CreateJoinToken", "GetRoom", "ListMembers", "CloseRoom")
    streams = [
        ("lingua_scheduler.v1.SessionGateway", "Converse"),
        ("lingua_scheduler.v1.SessionGateway", "Listen"),
        ("lingua_scheduler.v1.Dispatcher", "Connect"),
    ]
    assert sorted(found) == sorted(
        [*streams, *(("lingua_scheduler.v1.SessionGateway", each) for each in rooms)]
    )
    for each in found:
        method = METHODS[each]
        assert method.client_streaming == method.server_streaming == (each in streams)


def test_of_the_web_entry_only_what_pages_need_comes_in(secured: Manifests) -> None:
    (route,) = secured.of("HTTPRoute")
    (rule,) = route["spec"]["rules"]
    assert [each["path"] for each in rule["matches"]] == [
        {"type": "Exact", "value": "/v1/converse"},
        {"type": "Exact", "value": "/v1/listen"},
        {"type": "Exact", "value": "/v1/languages"},
        {"type": "PathPrefix", "value": "/v1/rooms/"},
        {"type": "Exact", "value": "/"},
        {"type": "Exact", "value": "/room"},
        {"type": "PathPrefix", "value": "/page/"},
    ]
    pages = {"/", "/room"}
    assert all(path in pages or path.startswith("/page/") for path in page_files())
    settings = load_settings(secured.environment(secured.deployment("gateway")))
    assert [settings.web_hosts] == route["spec"]["hostnames"]
    policy = policy_of(secured, route)
    limits = policy["timeout"]["http"]
    assert (ms(limits["requestTimeout"]), ms(limits["maxStreamDuration"])) == (0, 0)
    assert ms(limits["streamIdleTimeout"]) > SETTINGS.session_idle_ms
    assert 0 < ms(limits["connectionIdleTimeout"]) < 1000 * connections._REQUEST_WITHIN_S
    assert policy["healthCheck"]["active"]["http"]["path"] == "/healthz"


def test_the_talk_page_is_off_in_production_until_somebody_wants_it(
    secured: Manifests, dev: Manifests
) -> None:
    on = {
        given: load_settings(given.environment(given.deployment("gateway"))).talk_page
        for given in (secured, dev)
    }
    assert on == {secured: False, dev: True}


def test_no_two_routes_have_the_same_name(secured: Manifests) -> None:
    names = [
        name
        for route in secured.of("GRPCRoute", "HTTPRoute")
        for name in route["spec"]["hostnames"]
    ]
    assert len(names) == len(set(names)) == 3


def test_every_route_has_a_listener_with_tls_and_a_backend(secured: Manifests) -> None:
    (gateway,) = secured.of("Gateway")
    listeners = {each["name"]: each for each in gateway["spec"]["listeners"]}
    for route in secured.of("GRPCRoute", "HTTPRoute"):
        (parent,) = route["spec"]["parentRefs"]
        listener = listeners[parent["sectionName"]]
        assert parent["name"] == name_of(gateway)
        assert listener["protocol"] == "HTTPS"
        assert [listener["hostname"]] == route["spec"]["hostnames"]
        (rule,) = route["spec"]["rules"]
        (backend,) = rule["backendRefs"]
        service = secured.one("Service", backend["name"])["spec"]
        assert [each["port"] for each in service["ports"]] == [backend["port"]]
        assert "clusterIP" not in service
        pods = secured.deployment("dispatcher" if "nodes" in name_of(route) else "gateway")
        assert secured.selected(service["selector"]) == [name_of(pods)]


def test_a_stream_may_last_for_ever_and_goes_only_to_who_serves(secured: Manifests) -> None:
    for route in secured.of("GRPCRoute"):
        policy = policy_of(secured, route)
        limits = policy["timeout"]["http"]
        assert (ms(limits["requestTimeout"]), ms(limits["maxStreamDuration"])) == (0, 0)
        check = policy["healthCheck"]["active"]
        assert check["type"] == "GRPC"
        assert check["grpc"]["service"] == matches_of(route)[0][0]


def test_tls_goes_on_to_the_pods_by_the_name_of_their_certificates(secured: Manifests) -> None:
    (policy,) = secured.of("BackendTLSPolicy")
    behind = {
        rule["backendRefs"][0]["name"]
        for route in secured.of("GRPCRoute", "HTTPRoute")
        for rule in route["spec"]["rules"]
    }
    assert {each["name"] for each in policy["spec"]["targetRefs"]} == behind
    settings = load_settings(secured.environment(secured.deployment("gateway")))
    assert policy["spec"]["validation"]["hostname"] == settings.tls_server_name
    (proxy,) = secured.of("EnvoyProxy")
    assert proxy["spec"]["backendTLS"]["alpnProtocols"] == ["h2"]
    (ingress,) = secured.of("Gateway")
    assert ingress["spec"]["infrastructure"]["parametersRef"]["name"] == name_of(proxy)


def test_silence_ends_a_stream_no_sooner_than_the_services_would(secured: Manifests) -> None:
    routes = {matches_of(route)[0][1]: route for route in secured.of("GRPCRoute")}
    idle = {
        method: ms(policy_of(secured, route)["timeout"]["http"]["streamIdleTimeout"])
        for method, route in routes.items()
    }
    assert idle["Converse"] > SETTINGS.session_idle_ms
    assert idle["Connect"] > SETTINGS.heartbeat_stale_ms
