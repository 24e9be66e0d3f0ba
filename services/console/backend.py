"""Makes the backend of the HTTP server from the parts of the console."""

import time
from collections.abc import Callable
from functools import partial

from lingua_scheduler.services.console.documents.backend import Backend
from lingua_scheduler.services.console.metrics import POLLED, ConsoleMetrics
from lingua_scheduler.services.runtime.instances import announced
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.version import version
from lingua_scheduler.v1 import instances_pb2


def build_backend(
    settings: Settings, metrics: ConsoleMetrics, address: Callable[[], str]
) -> Backend:
    """The documents, actions and pollers of a console with these settings.

    Args:
        settings: of the console.
        metrics: of the console.
        address: returns where it listens.

    Raises:
        SettingsError: the files for TLS or tokens are not valid.
    """
    own = instances_pb2.Instance(
        instance_id=settings.instance_id,
        service="console",
        version=version(),
        health=instances_pb2.INSTANCE_HEALTH_SERVING,
        started_ms=_now_ms(),
    )
    own.MergeFromString(announced(settings))
    # It has no Redis, so these would only look like differences.
    used = [each for each in own.settings if each.group != "redis"]
    del own.settings[:]
    own.settings.extend(used)

    def own_now() -> instances_pb2.Instance:
        own.announced_ms, own.address = _now_ms(), address()
        return own

    backend = Backend.of(
        settings,
        max_jobs=settings.console_jobs_max,
        trace_template=settings.console_trace_url,
        own=own_now,
    )
    problems = backend.sources.problems
    problems.on_error.append(lambda source: metrics.poll_errors.labels(source).inc())
    for source in POLLED:
        metrics.follow_age(source, partial(problems.age_s, source))
    return backend


def _now_ms() -> int:
    return int(time.time() * 1000)
