"""Metrics of the console."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge

from lingua_scheduler.services.console.services.problems import Source

POLLED: tuple[Source, ...] = ("fleet", "jobs", "instances")
"""The sources that are read all the time."""
SOURCES: tuple[Source, ...] = (*POLLED, "sessions", "rooms")
"""All sources. Sessions and rooms are read only while somebody looks at them."""


class ConsoleMetrics:
    """The metrics of one console process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.connections = Gauge(
            "lingua_console_connections", "Open connections of browsers.", registry=registry
        )
        self.viewers = Gauge(
            "lingua_console_viewers", "Event streams that browsers read.", registry=registry
        )
        self.watched = Gauge(
            "lingua_console_watched_documents",
            "Distinct documents that are computed for event streams.",
            registry=registry,
        )
        self.requests = Counter(
            "lingua_console_requests",
            "HTTP requests that have ended, by path and status.",
            ["path", "status"],
            registry=registry,
        )
        self.actions = Counter(
            "lingua_console_actions",
            "Actions that were asked for, by action and outcome (OK, or a reason).",
            ["action", "outcome"],
            registry=registry,
        )
        self.poll_errors = Counter(
            "lingua_console_poll_errors",
            "Reads from the services that failed, by source.",
            ["source"],
            registry=registry,
        )
        self._age = Gauge(
            "lingua_console_source_age_seconds",
            "Seconds since a source was last read, by source.",
            ["source"],
            registry=registry,
        )
        # Exported from 0 on, so that the first error is an increase.
        for source in SOURCES:
            self.poll_errors.labels(source)

    def follow_age(self, source: str, age_s: Callable[[], float]) -> None:
        """Exports the age of a source whenever metrics are read."""
        self._age.labels(source).set_function(age_s)
