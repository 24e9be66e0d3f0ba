"""The metrics of the dispatcher. Labels never contain the id of a node, job or session."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from lingua_scheduler.services.runtime.errors import reason_name
from lingua_scheduler.services.runtime.telemetry.tallies import Durations, Tally
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, instances_pb2, pool_pb2

# The scheduler itself takes milliseconds; a node may take up to its timeout.
_SHORT = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_LONG = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)

_CAUSES = dispatcher_pb2.JobReject.Cause


class DispatcherMetrics:
    """The metrics of one dispatcher process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.jobs = Gauge(
            "lingua_dispatcher_jobs", "Jobs that this instance is the home of.", registry=registry
        )
        self.nodes = Gauge(
            "lingua_dispatcher_nodes",
            "Nodes that are connected to this instance.",
            registry=registry,
        )
        self.dispatch_seconds = Durations(
            "lingua_dispatcher_dispatch_seconds",
            "Time from a job's submission until its assignment is sent to a node.",
            buckets=_SHORT,
            registry=registry,
        )
        self.ack_seconds = Durations(
            "lingua_dispatcher_ack_seconds",
            "Time from an assignment to its acknowledgement.",
            buckets=_SHORT,
            registry=registry,
        )
        self.job_seconds = Durations(
            "lingua_dispatcher_job_seconds",
            "Time from a job's submission to its result.",
            buckets=_LONG,
            registry=registry,
        )
        self._finished = Tally(
            "lingua_dispatcher_jobs_finished",
            "Jobs that ended, by outcome: done, or the reason of the failure.",
            "outcome",
            values=("done",),
            registry=registry,
        )
        self._retries = Tally(
            "lingua_dispatcher_retries",
            "Attempts that were followed by a retry, by reason.",
            "reason",
            values=(),
            registry=registry,
        )
        self.ack_timeouts = Counter(
            "lingua_dispatcher_ack_timeouts",
            "Assignments that were not acknowledged in time.",
            registry=registry,
        )
        self._rejects = Counter(
            "lingua_dispatcher_rejects",
            "Assignments that a node rejected, by cause.",
            ["cause"],
            registry=registry,
        )
        self.waits = Counter(
            "lingua_dispatcher_waits", "Times that a job had to wait for room.", registry=registry
        )
        self.waiting = Gauge(
            "lingua_dispatcher_waiting_jobs", "Jobs that wait for room.", registry=registry
        )
        self._queue_wait = Histogram(
            "lingua_dispatcher_queue_wait_seconds",
            "How long jobs waited for room, if they had to, by how the wait ended: placed on a "
            "node, or over without one.",
            ["outcome"],
            buckets=_LONG,
            registry=registry,
        )
        self._placed = Tally(
            "lingua_dispatcher_placed",
            "Attempts by where their node is connected: here, or to another dispatcher.",
            "where",
            values=("here", "elsewhere"),
            registry=registry,
        )
        self.relayed = Counter(
            "lingua_dispatcher_relayed",
            "Assignments relayed through another dispatcher.",
            registry=registry,
        )
        self.partials_dropped = Counter(
            "lingua_dispatcher_partials_dropped",
            "Partial results dropped because nobody wanted them or they came too often.",
            registry=registry,
        )
        self.orphans = Counter(
            "lingua_dispatcher_orphans",
            "Reports about attempts that have no home here.",
            registry=registry,
        )
        self.kept = Counter(
            "lingua_dispatcher_kept_results",
            "Results kept because no gateway took them.",
            registry=registry,
        )
        self.late_results = Counter(
            "lingua_dispatcher_late_results",
            "Orphaned results that were not kept: their attempt could no longer win, or there was "
            "no room.",
            registry=registry,
        )
        self.turns_broken = Counter(
            "lingua_dispatcher_turns_broken",
            "Results of nodes that did not have the beginning of the sentence.",
            registry=registry,
        )
        self._held = Tally(
            "lingua_dispatcher_audio_held",
            "Times that a node reported that it holds audio for the next job, by outcome: bound "
            "(the turn stays on the node), late (a later utterance was placed), limit (too often "
            "in a row), not_cut (the speaker had ended the sentence).",
            "outcome",
            values=("bound", "late", "limit", "not_cut"),
            registry=registry,
        )
        self.silent = Counter(
            "lingua_dispatcher_silent_nodes",
            "Nodes disconnected because they sent no heartbeat.",
            registry=registry,
        )
        self.invalid_reports = Counter(
            "lingua_dispatcher_invalid_reports",
            "Reports that exceeded a limit of the contract and failed their attempt, by kind.",
            ["kind"],
            registry=registry,
        )
        self.too_large = Counter(
            "lingua_dispatcher_too_large",
            "Events too large for a message, so that their job failed, by kind of peer.",
            ["peer"],
            registry=registry,
        )
        self.backpressure = Counter(
            "lingua_dispatcher_backpressure",
            "Times that something was refused because a peer read too slowly, by kind of peer.",
            ["peer"],
            registry=registry,
        )
        self.pool_up = Gauge(
            "lingua_dispatcher_pool_up", "1 while the pool service answers.", registry=registry
        )
        # Start at 0, or the first of a kind would not show as an increase.
        for outcome in ("placed", "over"):
            self._queue_wait.labels(outcome)

    def done(self, seconds: float) -> None:
        """Counts a job that succeeded, and the time since its submission."""
        self._finished.counts["done"] += 1
        self.job_seconds.observe(seconds)

    def held(self, outcome: str) -> None:
        """Counts what followed from a node's report that it holds audio."""
        self._held.counts[outcome] += 1

    def failed(self, reason: str) -> None:
        """Counts a job that ended without a result."""
        self._finished.counts[reason] += 1

    def retried(self, reason: common_pb2.ErrorReason.ValueType) -> None:
        """Counts an attempt that is followed by a retry."""
        self._retries.counts[reason_name(reason).lower()] += 1

    def rejected(self, cause: dispatcher_pb2.JobReject.Cause.ValueType) -> None:
        """Counts an assignment that a node rejected; a newer node's cause may be "unknown"."""
        known = cause in _CAUSES.values()
        word = _CAUSES.Name(cause).removeprefix("CAUSE_").lower() if known else "unknown"
        self._rejects.labels(word).inc()

    def waited(self, seconds: float, *, placed: bool) -> None:
        """Records a wait for room that has ended."""
        self._queue_wait.labels("placed" if placed else "over").observe(seconds)

    def placed(self, placement: pool_pb2.Placement, instance_id: str) -> None:
        """Counts an attempt by where its node is connected."""
        here = placement.owner_instance == instance_id
        self._placed.counts["here" if here else "elsewhere"] += 1

    def stats(self, *, jobs: int, waiting: int, nodes: int) -> instances_pb2.InstanceStats:
        """The counters as an instance announces them, and what it has now."""
        finished = self._finished.counts
        return instances_pb2.InstanceStats(
            jobs=jobs,
            jobs_waiting=waiting,
            jobs_done=finished["done"],
            jobs_failed=sum(finished.values()) - finished["done"],
            retries=sum(self._retries.counts.values()),
            nodes=nodes,
        )
