"""What the session gateway counts. Never a session or node id as a label."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from lingua_scheduler.services.runtime.errors import (
    LinguaError,
    QuotaExceededError,
    reason_name,
)
from lingua_scheduler.services.runtime.quotas import QuotaMetrics
from lingua_scheduler.v1 import common_pb2, session_pb2

# The scheduler's own share is milliseconds; a node's is up to its time-out.
_SHORT = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_LONG = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)

# What a session's core counts, and what that means.
_COUNTED = {
    "chunk": ("chunks", "Audio chunks taken in."),
    "repeated_chunk": ("repeated_chunks", "Audio chunks that had come before."),
    "refused_chunk": ("refused_chunks", "Audio chunks refused: see the errors to their clients."),
    "gap": ("gaps", "Audio chunks that came out of sequence."),
    "repeated_end": ("duplicate_finalizes", "Ends of an utterance that was about to be cut."),
    "empty_end": ("empty_finalizes", "Ends of an utterance with no audio."),
    "fragment_kept": ("fragments", "Short fragments kept for the next utterance."),
    "result": ("results", "Results delivered to clients."),
    "late_result": ("late_results", "Results that came too late, or twice."),
    "deadline_missed": ("deadline_misses", "Utterances without a result at their deadline."),
    "retried": ("submit_retries", "Utterances whose job could not be made at once."),
}


# What it counts and is counted by its reason when it is sent.
_COUNTED_WHEN_SENT = frozenset({"missing"})

# Why an utterance is likely to be missing: from 0, or the first would be no increase.
_LIKELY_MISSING = (
    common_pb2.ERROR_REASON_DEADLINE_EXCEEDED,
    common_pb2.ERROR_REASON_JOB_FAILED,
    common_pb2.ERROR_REASON_JOB_TIMEOUT,
    common_pb2.ERROR_REASON_QUOTA_EXCEEDED,
)


class GatewayMetrics:
    """The metrics of one session gateway process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sessions = Gauge(
            "lingua_gateway_sessions", "Sessions whose client is connected here.", registry=registry
        )
        self.opened = Counter(
            "lingua_gateway_sessions_opened",
            "Sessions that began here, by how: new or resume.",
            ["how"],
            registry=registry,
        )
        self.ended = Counter(
            "lingua_gateway_sessions_ended",
            "Sessions that ended here, by how: closed, left, or the reason of the error.",
            ["how"],
            registry=registry,
        )
        self._refused = Counter(
            "lingua_gateway_opens_refused",
            "Sessions that were not opened or resumed, by reason.",
            ["reason"],
            registry=registry,
        )
        self._missing = Counter(
            "lingua_gateway_missing",
            "Utterances delivered as missing, by reason.",
            ["reason"],
            registry=registry,
        )
        self._finalized = Counter(
            "lingua_gateway_finalized", "Utterances cut, by reason.", ["reason"], registry=registry
        )
        self.jobs = Gauge(
            "lingua_gateway_jobs", "Jobs under way at dispatchers.", registry=registry
        )
        self.timers = Gauge("lingua_gateway_timers", "Timers of sessions.", registry=registry)
        self.dispatcher_up = Gauge(
            "lingua_gateway_dispatcher_up", "1 while there is a dispatcher.", registry=registry
        )
        self._audio = Counter(
            "lingua_gateway_audio_seconds", "Audio in the utterances cut.", registry=registry
        )
        self._dispatch = Histogram(
            "lingua_gateway_dispatch_seconds",
            "From the cut of an utterance to its acceptance by a node.",
            buckets=_SHORT,
            registry=registry,
        )
        self._node = Histogram(
            "lingua_gateway_node_seconds",
            "From the acceptance by a node to its result.",
            buckets=_LONG,
            registry=registry,
        )
        self._wait = Histogram(
            "lingua_gateway_deliver_seconds",
            "From a result to its delivery: the wait for those before it.",
            buckets=_SHORT,
            registry=registry,
        )
        self._result = Histogram(
            "lingua_gateway_result_seconds",
            "From the cut of an utterance to the delivery of its result.",
            buckets=_LONG,
            registry=registry,
        )
        self._quotas = QuotaMetrics(registry, "sessions")
        for reason in _LIKELY_MISSING:
            self._missing.labels(_word(reason))
        # To find a child by its label takes longer than to count.
        self._finalized_by: dict[int, Counter] = {}
        self._counters = {
            what: Counter(f"lingua_gateway_{name}", words, registry=registry)
            for what, (name, words) in _COUNTED.items()
        }

    def count(self, what: str) -> None:
        """Counts what a core asks to be counted."""
        if what not in _COUNTED_WHEN_SENT:
            self._counters[what].inc()

    def finalized(self, reason: common_pb2.FinalizeReason.ValueType, audio_ms: int) -> None:
        """Counts an utterance that was cut."""
        counter = self._finalized_by.get(reason)
        if counter is None:
            name = common_pb2.FinalizeReason.Name(reason).removeprefix("FINALIZE_REASON_")
            counter = self._finalized_by[reason] = self._finalized.labels(name.lower())
        counter.inc()
        self._audio.inc(audio_ms / 1000)

    def timed(self, timings: session_pb2.ResultTimings) -> None:
        """Measures where the time of a result went."""
        dispatch_s, node_s = timings.dispatch_ms / 1000, timings.node_ms / 1000
        wait_s = timings.deliver_ms / 1000
        self._dispatch.observe(dispatch_s)
        self._node.observe(node_s)
        self._wait.observe(wait_s)
        self._result.observe(dispatch_s + node_s + wait_s)

    def missing(self, reason: common_pb2.ErrorReason.ValueType) -> None:
        """Counts an utterance that its client is told to be missing."""
        self._missing.labels(_word(reason)).inc()

    def refused(self, error: LinguaError) -> None:
        """Counts a session that could not be opened or resumed."""
        self._refused.labels(_word(error.reason)).inc()
        if isinstance(error, QuotaExceededError):
            self._quotas.refused(error)


def _word(reason: common_pb2.ErrorReason.ValueType) -> str:
    return reason_name(reason).lower()
