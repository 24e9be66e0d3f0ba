"""An Envoy in front of session gateways, set up as the production overlay sets up its own."""

import asyncio
import json
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingua_scheduler.services.runtime.addresses import join_address, split_address
from tests.support.process import Process

SOON_S = 20.0

_ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
_MANAGER = (
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3"
    ".HttpConnectionManager"
)
_TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
_HTTP_OPTIONS = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


@dataclass(frozen=True)
class BackendTls:
    """What certificates it accepts, and what it says when it connects."""

    authority: str
    name: str
    alpn: Sequence[str]

    def socket(self) -> dict[str, Any]:
        """As Envoy writes it."""
        context = {
            "@type": _TLS,
            "sni": self.name,
            "common_tls_context": {
                "alpn_protocols": list(self.alpn),
                "validation_context": {
                    "trusted_ca": {"inline_string": self.authority},
                    "match_typed_subject_alt_names": [
                        {"san_type": "DNS", "matcher": {"exact": self.name}}
                    ],
                },
            },
        }
        return {"name": "envoy.transport_sockets.tls", "typed_config": context}


class EnvoyProcess(Process):
    """Balances streams over the gateways that say SERVING.

    Args:
        binary: the server.
        gateways: their addresses.
        service: what their health service is asked for.
        web: the addresses of their web entries, if WebSockets are balanced as well.
        tls: how it calls them; None for plain text.
    """

    def __init__(
        self,
        *,
        binary: Path,
        gateways: Sequence[str],
        service: str,
        web: Sequence[str] = (),
        tls: BackendTls | None = None,
    ) -> None:
        super().__init__("envoy")
        self.address = ""
        self.web_address = ""
        self._binary = binary
        self._config = _config(gateways, service, web, tls)

    def start(self) -> None:
        """Starts the process; it is not ready yet."""
        config = self.file("envoy.json")
        config.write_text(json.dumps(self._config))
        self.spawn(
            [
                self._binary,
                *("--config-path", config),
                *("--admin-address-path", self.file("admin")),
                *("--concurrency", "1"),
                # Otherwise two of them on one machine would take each other for an old self.
                "--disable-hot-restart",
            ]
        )

    def wait_ready(self) -> None:
        """Returns when it listens and a gateway is healthy."""
        self.wait_for(self._is_ready, "ready")

    async def sends_to(self, gateways: set[str], cluster: str = "gateways") -> None:
        """Returns when it takes these gateways, and no others, for healthy."""
        deadline = time.monotonic() + SOON_S
        while (now := await asyncio.to_thread(self.healthy, cluster)) != gateways:
            assert time.monotonic() < deadline, f"it sends to {now}, not to {gateways}"
            await asyncio.sleep(0.02)

    def healthy(self, cluster: str = "gateways") -> set[str]:
        """The gateways that get streams, or with `web` WebSockets."""
        clusters = self._admin("clusters?format=json")["cluster_statuses"]
        (status,) = (each for each in clusters if each["name"] == cluster)
        return {
            _address(host["address"])
            for host in status.get("host_statuses", [])
            if host["health_status"] == {"eds_health_status": "HEALTHY"}
        }

    def _is_ready(self) -> bool:
        if not self.file("admin").exists() or not self.file("admin").read_text():
            return False
        listeners = self._admin("listeners?format=json").get("listener_statuses", [])
        if not listeners or not self.healthy():
            return False
        bound = {each["name"]: _address(each["local_address"]) for each in listeners}
        self.address, self.web_address = bound["clients"], bound.get("web", "")
        return True

    def _admin(self, path: str) -> dict[str, Any]:
        url = f"http://{self.file('admin').read_text().strip()}/{path}"
        with urllib.request.urlopen(url, timeout=SOON_S) as response:
            answer: dict[str, Any] = json.load(response)
        return answer


def _address(found: dict[str, Any]) -> str:
    return join_address(found["socket_address"]["address"], found["socket_address"]["port_value"])


def _socket(host: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}


def _config(
    gateways: Sequence[str], service: str, web: Sequence[str], tls: BackendTls | None
) -> dict[str, Any]:
    converse = f"/{service}/Converse"
    listeners = [_listener("clients", "HTTP2", _route(converse, "gateways"))]
    health: dict[str, Any] = {"grpc_health_check": {"service_name": service}}
    clusters = [_cluster("gateways", gateways, "http2_protocol_options", health, tls)]
    if web:
        routes = [_route(prefix, "web") for prefix in ("/v1/", "/page/")]
        routes += [{**routes[0], "match": {"path": path}} for path in ("/", "/room")]
        listeners.append(_listener("web", "HTTP1", *routes, upgrade="websocket"))
        health = {"http_health_check": {"path": "/healthz"}}
        clusters.append(_cluster("web", web, "http_protocol_options", health, tls))
    return {
        "admin": {"address": _socket("127.0.0.1", 0)},
        "static_resources": {"listeners": listeners, "clusters": clusters},
    }


def _route(prefix: str, cluster: str) -> dict[str, Any]:
    # 0: never. By itself it ends every stream after 15 s.
    return {"match": {"prefix": prefix}, "route": {"cluster": cluster, "timeout": "0s"}}


def _listener(name: str, codec: str, *routes: dict[str, Any], upgrade: str = "") -> dict[str, Any]:
    manager = {
        "@type": _MANAGER,
        "stat_prefix": name,
        "codec_type": codec,
        # 0: never. A session may be silent for long.
        "stream_idle_timeout": "0s",
        "upgrade_configs": [{"upgrade_type": upgrade}] if upgrade else [],
        "route_config": {"virtual_hosts": [{"name": name, "domains": ["*"], "routes": routes}]},
        "http_filters": [{"name": "router", "typed_config": {"@type": _ROUTER}}],
    }
    return {
        "name": name,
        "address": _socket("127.0.0.1", 0),
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }


def _cluster(
    name: str,
    hosts: Sequence[str],
    protocol: str,
    health: dict[str, Any],
    tls: BackendTls | None,
) -> dict[str, Any]:
    cluster: dict[str, Any] = {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "lb_policy": "LEAST_REQUEST",
        # What is not healthy gets nothing, even where no gateway is.
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "health_checks": [
            {
                "timeout": "2s",
                "interval": "0.2s",
                "no_traffic_interval": "0.2s",
                "unhealthy_threshold": 1,
                "healthy_threshold": 1,
                **health,
            }
        ],
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": _HTTP_OPTIONS,
                "explicit_http_config": {protocol: {}},
            }
        },
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [
                {
                    "lb_endpoints": [
                        {"endpoint": {"address": _socket(*split_address(host))}} for host in hosts
                    ]
                }
            ],
        },
    }
    if tls is not None:
        cluster["transport_socket"] = tls.socket()
    return cluster
