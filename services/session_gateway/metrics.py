"""Metrics of the session gateway. Ids of sessions or nodes are never labels."""

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.metrics_core import CounterMetricFamily, Metric

from lingua_scheduler.services.runtime.auth.quotas import QuotaMetrics
from lingua_scheduler.services.runtime.errors import (
    LinguaError,
    QuotaExceededError,
    reason_name,
)
from lingua_scheduler.services.runtime.telemetry.tallies import Durations, Tally
from lingua_scheduler.services.session_gateway.session.speech import Reason
from lingua_scheduler.v1 import common_pb2, instances_pb2, rooms_pb2, session_pb2

# The scheduler takes milliseconds; a node may take as long as its timeout.
_SHORT = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_LONG = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)

# Counters of session cores: the name within the core, the metric, and its description.
_COUNTED = {
    "chunk": ("chunks", "Audio chunks accepted."),
    "repeated_chunk": ("repeated_chunks", "Audio chunks received more than once."),
    "refused_chunk": ("refused_chunks", "Audio chunks refused with an error to their client."),
    "gap": ("gaps", "Audio chunks received out of sequence."),
    "repeated_end": (
        "duplicate_finalizes",
        "Final chunks for an utterance whose end was already decided.",
    ),
    "empty_end": ("empty_finalizes", "Final chunks without any audio to finalize."),
    "fragment_kept": ("fragments", "Short fragments kept for the next utterance."),
    "result": ("results", "Results delivered to clients."),
    "late_result": ("late_results", "Results that arrived too late, or twice."),
    "deadline_missed": ("deadline_misses", "Utterances without a result at their deadline."),
    "turn_moved": (
        "turns_moved",
        "Utterances that brought held audio along because the node that held it was unavailable.",
    ),
    "held_lost": ("held_lost", "Utterances whose audio was lost while a node held it."),
    "retried": ("submit_retries", "Submissions of jobs that failed and were retried."),
}

_CUT_BY = {
    value.number: value.name.removeprefix("FINALIZE_REASON_").lower()
    for value in common_pb2.FinalizeReason.DESCRIPTOR.values
    if value.number
}

# Likely reasons for a missing utterance. Their series start at 0, so that the first counts.
_LIKELY_MISSING = (
    common_pb2.ERROR_REASON_DEADLINE_EXCEEDED,
    common_pb2.ERROR_REASON_JOB_FAILED,
    common_pb2.ERROR_REASON_JOB_TIMEOUT,
    common_pb2.ERROR_REASON_QUOTA_EXCEEDED,
    common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN,
)


class RoomMetrics:
    """The metrics of rooms at a gateway."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.rooms = Gauge(
            "lingua_gateway_rooms", "Rooms with members at this gateway.", registry=registry
        )
        self.listeners = Gauge(
            "lingua_gateway_room_listeners",
            "Listeners that are connected here, by transport.",
            ["transport"],
            registry=registry,
        )
        for transport in ("grpc", "web"):
            self.listeners.labels(transport)
        self._outcomes = Counter(
            "lingua_gateway_room_outcomes",
            "Outcomes that were read for listeners, once for all who get them in the same form.",
            registry=registry,
        )
        self._written = Counter(
            "lingua_gateway_room_deliveries",
            "Outcomes that were sent to listeners.",
            registry=registry,
        )
        self._gaps = Counter(
            "lingua_gateway_room_gaps",
            "Times that listeners were told that outcomes are no longer kept.",
            registry=registry,
        )
        self.catch_ups = Counter(
            "lingua_gateway_room_catch_ups",
            "Reads for listeners that were behind the others.",
            registry=registry,
        )
        self.news = Counter(
            "lingua_gateway_room_news",
            "Messages of Redis that something has happened in a room.",
            registry=registry,
        )
        self._refused = Counter(
            "lingua_gateway_room_refused",
            "Listeners that could not join, by reason and transport.",
            ["reason", "transport"],
            registry=registry,
        )

    def delivered(self, items: Sequence[object], gaps: int, listeners: int) -> None:
        """Counts outcomes, and gaps, that are sent to so many listeners."""
        self._outcomes.inc(len(items) - gaps)
        self._written.inc((len(items) - gaps) * listeners)
        if gaps:
            self._gaps.inc(gaps * listeners)

    def refused(self, error: LinguaError, transport: str) -> None:
        """Counts a listener that could not join."""
        self._refused.labels(reason_name(error.reason), transport).inc()


class WebMetrics:
    """The metrics of the web entry of a gateway."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.connections = Gauge(
            "lingua_gateway_web_connections",
            "Open connections of the web entry, WebSockets and others.",
            registry=registry,
        )
        self.requests = Counter(
            "lingua_gateway_web_requests",
            "HTTP requests that have ended, by path and status. 101: a WebSocket that was closed.",
            ["path", "status"],
            registry=registry,
        )
        self.closed = Counter(
            "lingua_gateway_web_closed",
            "WebSockets that were closed, by close code; 1000 also if the client left.",
            ["code"],
            registry=registry,
        )


class GatewayMetrics:
    """The metrics of one session gateway process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._sessions = Gauge(
            "lingua_gateway_sessions",
            "Sessions whose client is connected here, by transport: grpc or web.",
            ["transport"],
            registry=registry,
        )
        self.opened = Counter(
            "lingua_gateway_sessions_opened",
            "Sessions that started here, by how (new or resume) and transport.",
            ["how", "transport"],
            registry=registry,
        )
        self.ended = Counter(
            "lingua_gateway_sessions_ended",
            "Sessions that ended here, by how (closed, left, or the reason of an error) and "
            "transport.",
            ["how", "transport"],
            registry=registry,
        )
        self._refused = Counter(
            "lingua_gateway_opens_refused",
            "Sessions that were not opened or resumed, by reason and transport.",
            ["reason", "transport"],
            registry=registry,
        )
        self._missing = Tally(
            "lingua_gateway_missing",
            "Utterances delivered as missing, by reason.",
            "reason",
            values=[_word(reason) for reason in _LIKELY_MISSING],
            registry=registry,
        ).counts
        self.jobs = Gauge(
            "lingua_gateway_jobs",
            "Jobs submitted to dispatchers that have no result.",
            registry=registry,
        )
        self.timers = Gauge(
            "lingua_gateway_timers", "Timers that sessions have set.", registry=registry
        )
        self.held_bytes = Gauge(
            "lingua_gateway_held_bytes",
            "Bytes of audio kept because nodes hold it.",
            registry=registry,
        )
        self.dispatcher_up = Gauge(
            "lingua_gateway_dispatcher_up", "1 while connected to a dispatcher.", registry=registry
        )
        self._dispatch = Durations(
            "lingua_gateway_dispatch_seconds",
            "From the cut of an utterance to its acceptance by a node.",
            buckets=_SHORT,
            registry=registry,
        )
        self._node = Durations(
            "lingua_gateway_node_seconds",
            "From the acceptance by a node to its result.",
            buckets=_LONG,
            registry=registry,
        )
        self._wait = Durations(
            "lingua_gateway_deliver_seconds",
            "From a result to its delivery: the wait for earlier results.",
            buckets=_SHORT,
            registry=registry,
        )
        self._result = Durations(
            "lingua_gateway_result_seconds",
            "From the cut of an utterance to the delivery of its result.",
            buckets=_LONG,
            registry=registry,
        )
        self._room_result = Durations(
            "lingua_gateway_room_result_seconds",
            "From the cut of an utterance to its result in a room, in each language.",
            buckets=_LONG,
            registry=registry,
        )
        self._room_missing = Tally(
            "lingua_gateway_room_missing",
            "Utterances that are missing in a language of their room, by reason.",
            "reason",
            values=[_word(reason) for reason in _LIKELY_MISSING],
            registry=registry,
        ).counts
        self._quotas = QuotaMetrics(registry, "sessions", "rooms")
        for transport in ("grpc", "web"):
            self._sessions.labels(transport)
        self.counts = dict.fromkeys(_COUNTED, 0)
        """The counters of all session cores, by their name within the core."""
        self._finalized = Tally(
            "lingua_gateway_finalized",
            "Utterances cut, by reason.",
            "reason",
            values=_CUT_BY.values(),
            registry=registry,
        ).counts
        self._audio_ms = 0
        # Over all transports.
        self._connected = 0
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Exports the counters that are plain numbers."""
        for counter, (name, description) in _COUNTED.items():
            yield CounterMetricFamily(f"lingua_gateway_{name}", description, self.counts[counter])
        yield CounterMetricFamily(
            "lingua_gateway_audio_seconds", "Audio in the utterances cut.", self._audio_ms / 1000
        )

    def connected(self, transport: str) -> None:
        """Counts a session whose client is connected here from now on."""
        self._sessions.labels(transport).inc()
        self._connected += 1

    def disconnected(self, transport: str) -> None:
        """Counts a session whose client is no longer connected here."""
        self._sessions.labels(transport).dec()
        self._connected -= 1

    def stats(self) -> instances_pb2.InstanceStats:
        """The counters as an instance announces them."""
        return instances_pb2.InstanceStats(
            sessions=self._connected,
            results=self.counts["result"],
            missing=sum(self._missing.values()),
            result_bounds_ms=[round(1000 * bound) for bound in self._result.bounds],
            result_counts=self._result.counts,
        )

    def finalized(self, reason: Reason, audio_ms: int) -> None:
        """Counts an utterance that was cut."""
        self._finalized[_CUT_BY[reason]] += 1
        self._audio_ms += audio_ms

    def timed(self, timings: session_pb2.ResultTimings) -> None:
        """Observes the timings of a result."""
        dispatch, node, wait = timings.dispatch_ms, timings.node_ms, timings.deliver_ms
        self._dispatch.observe(dispatch / 1000)
        self._node.observe(node / 1000)
        self._wait.observe(wait / 1000)
        self._result.observe((dispatch + node + wait) / 1000)

    def published(self, event: rooms_pb2.RoomEvent, after_ms: float) -> None:
        """Counts the outcome of an utterance in one language of its room, so long after the cut."""
        if event.HasField("result"):
            self._room_result.observe(after_ms / 1000)
        else:
            self._room_missing[_word(event.missing.why.reason)] += 1

    def missing(self, reason: common_pb2.ErrorReason.ValueType) -> None:
        """Counts an utterance that is reported as missing."""
        self._missing[_word(reason)] += 1

    def refused(self, error: LinguaError, transport: str) -> None:
        """Counts a session that was not opened or resumed."""
        self._refused.labels(_word(error.reason), transport).inc()
        if isinstance(error, QuotaExceededError):
            self.quota_refused(error)

    def quota_refused(self, error: QuotaExceededError) -> None:
        """Counts what was refused because its tenant has reached a limit."""
        self._quotas.refused(error)


def _word(reason: common_pb2.ErrorReason.ValueType) -> str:
    return reason_name(reason).lower()
