"""What the services really export: each is started as a process, and says it of itself."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

# Puts the service together as its own main does, and ends it as soon as it is ready.
_RUNNER = """
import asyncio, importlib, json, os, signal, sys
from prometheus_client import generate_latest
from lingua_scheduler.services.runtime.settings.settings import load_settings
from lingua_scheduler.services.runtime.telemetry import metrics

registries = []
make = metrics.new_registry
metrics.new_registry = lambda: registries.append(make()) or registries[0]

def ready(service, address, metrics, web):
    (registry,) = registries
    families = {}
    for collector in registry._collector_to_names:
        labels = getattr(collector, "_labelnames", ())
        for family in collector.collect():
            seen = {label for sample in family.samples for label in sample.labels}
            # Of a counter that has counted nothing yet.
            seen.update(getattr(family, "_labelnames", ()))
            families[family.name] = [family.type, sorted({*labels, *seen} - {"le"})]
    json.dump([families, generate_latest(registry).decode()], sys.stdout)
    os.kill(os.getpid(), signal.SIGTERM)

main = importlib.import_module(f"lingua_scheduler.services.{sys.argv[1]}.main")
asyncio.run(main.serve(load_settings(), ready))
"""

SERVICES = {
    "pool": "pool_service",
    "dispatcher": "dispatcher",
    "gateway": "session_gateway",
    "console": "console",
}

# Series that a metric of each type has, and the labels that they have besides its own.
_SERIES: dict[str, dict[str, set[str]]] = {
    "counter": {"_total": set()},
    "gauge": {"": set()},
    "info": {"_info": set()},
    "histogram": {"_bucket": {"le"}, "_count": set(), "_sum": set()},
}


@dataclass(frozen=True)
class Exported:
    """What one service exports.

    Attributes:
        families: type and labels of every metric, by its name without a suffix.
        text: what /metrics shows just after the start.
    """

    families: dict[str, tuple[str, frozenset[str]]]
    text: str

    def series(self) -> dict[str, frozenset[str]]:
        """The labels of every series, by the name that queries call it by."""
        found: dict[str, frozenset[str]] = {}
        for name in self.families:
            found.update(self.series_of(name))
        return found

    def series_of(self, name: str) -> dict[str, frozenset[str]]:
        """The same of one metric."""
        kind, labels = self.families[name]
        return {name + suffix: labels | more for suffix, more in _SERIES[kind].items()}


def exported_by(service: str, redis_url: str, prefix: str) -> Exported:
    """Starts a service, and returns what it exports."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LINGUA_")}
    settings = {
        "LINGUA_REDIS_URL": redis_url,
        "LINGUA_REDIS_PREFIX": prefix,
        f"LINGUA_{service.upper()}_LISTEN": "127.0.0.1:0",
        f"LINGUA_{service.upper()}_METRICS_LISTEN": "127.0.0.1:0",
        "LINGUA_GATEWAY_WEB_LISTEN": "127.0.0.1:0",
        # Nobody listens there: what a service exports does not depend on others.
        "LINGUA_POOL_ADDRESS": "127.0.0.1:1",
        "LINGUA_DISPATCHER_ADDRESS": "127.0.0.1:1",
        "LINGUA_REDIS_TIMEOUT_MS": "4000",
        "LINGUA_DRAIN_GRACE_MS": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", _RUNNER, SERVICES[service]],
        env={**kept, **settings},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    families, text = json.loads(done.stdout)
    return Exported(
        families={name: (kind, frozenset(labels)) for name, (kind, labels) in families.items()},
        text=text,
    )
