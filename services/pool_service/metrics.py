"""Metrics of the pool service. Node and session ids are never labels."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from lingua_scheduler.services.pool_service import codes
from lingua_scheduler.services.pool_service.fleet.capacity import Sample
from lingua_scheduler.services.pool_service.fleet.directions import Direction, Directions
from lingua_scheduler.services.runtime.auth.quotas import QuotaMetrics
from lingua_scheduler.services.runtime.errors import (
    LinguaError,
    QuotaExceededError,
    reason_name,
)
from lingua_scheduler.services.runtime.telemetry.tallies import Durations, Tally
from lingua_scheduler.v1 import common_pb2, instances_pb2, pool_pb2

# From a local Redis to one that nearly times out.
_SELECTION_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)

_DIRECTION = ["kind", "src", "tgt"]
# Refusals that more nodes would prevent.
_NO_ROOM = (
    common_pb2.ERROR_REASON_NO_CAPABLE_NODE,
    common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED,
)


def _words(enum: Any, prefix: str) -> dict[int, str]:
    return {value: name.removeprefix(prefix).lower() for name, value in enum.items()}


_PATHS = _words(pool_pb2.PlacementPath, "PLACEMENT_PATH_")
_BINDINGS = _words(pool_pb2.BindingOutcome, "BINDING_OUTCOME_")
_KINDS = _words(pool_pb2.BindingKind, "BINDING_KIND_")


class PoolMetrics:
    """The metrics of one pool service process.

    Counters are per process. The gauges show state that all instances share, as of
    `lingua_pool_sampled_timestamp_seconds`: every instance shows the same, so do not add them up.
    """

    def __init__(self, registry: CollectorRegistry, directions: Directions | None = None) -> None:
        self._directions = directions or Directions()
        self._shown: set[Direction] = set()
        self.selection_seconds = Durations(
            "lingua_pool_selection_seconds",
            "Time of an Allocate's script, its wait and round trip included.",
            buckets=_SELECTION_BUCKETS,
            registry=registry,
        )
        # Created with 0, so that the first one is an increase.
        refusals = (*_NO_ROOM, common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN)
        self._allocations = Tally(
            "lingua_pool_allocations",
            "Allocate calls by outcome: reserved, existing, or the reason of the refusal.",
            "outcome",
            values=("reserved", *(reason_name(reason).lower() for reason in refusals)),
            registry=registry,
        ).counts
        self._placements = Tally(
            "lingua_pool_placements",
            "Reservations by how the node was chosen.",
            "path",
            values=[_PATHS[path] for path in _PATHS if path],
            registry=registry,
        ).counts
        self.elsewhere = Counter(
            "lingua_pool_placed_elsewhere",
            "Reservations on a node of another cell than the job's own.",
            registry=registry,
        )
        self._affinity = Counter(
            "lingua_pool_affinity",
            "Jobs whose session was bound to a node, by kind of binding and outcome.",
            ["kind", "outcome"],
            registry=registry,
        )
        self._empty = Counter(
            "lingua_pool_empty",
            "Allocate calls for which no capable node was known.",
            registry=registry,
        )
        self._refusals = Counter(
            "lingua_pool_refusals",
            "Allocate calls that failed for lack of nodes or slots, by direction and reason.",
            [*_DIRECTION, "reason"],
            registry=registry,
        )
        self.reserves = Tally(
            "lingua_pool_reserves",
            "Reserve calls by outcome: reserved, existing, or the reason of the refusal.",
            "outcome",
            values=("reserved", "existing"),
            registry=registry,
        ).counts
        self.commits = Tally(
            "lingua_pool_commits",
            "Commit calls by outcome.",
            "outcome",
            values=[outcome.decode() for outcome in codes.COMMIT_OUTCOMES],
            registry=registry,
        ).counts
        self.releases = Tally(
            "lingua_pool_releases",
            "Release calls by cause.",
            "cause",
            values=codes.RELEASE_CAUSES.values(),
            registry=registry,
        ).counts
        self.completions = Tally(
            "lingua_pool_completions",
            "Complete calls by how the attempt ended.",
            "outcome",
            values=codes.ATTEMPT_OUTCOMES.values(),
            registry=registry,
        ).counts
        self.beats = Counter("lingua_pool_beats", "Heartbeats processed.", registry=registry)
        self.expelled = Counter(
            "lingua_pool_nodes_expelled",
            "Nodes taken out of their pools because they fell silent.",
            registry=registry,
        )
        self.nodes = Gauge(
            "lingua_pool_nodes", "Known nodes by health.", ["health"], registry=registry
        )
        self._late = Gauge(
            "lingua_pool_late_nodes",
            "Nodes whose heartbeat is late: over half of the time after which they get no jobs.",
            registry=registry,
        )
        self._ejected = Gauge(
            "lingua_pool_ejected_nodes",
            "Ready nodes that get no jobs for a while, because they failed too often.",
            registry=registry,
        )
        self._whole_slots = Gauge(
            "lingua_pool_fleet_slots",
            "Slots of all nodes that may be chosen, each counted once.",
            registry=registry,
        )
        self._whole_free = Gauge(
            "lingua_pool_fleet_free_slots",
            "Free slots of all nodes that may be chosen, each counted once.",
            registry=registry,
        )
        self._cell_nodes = Gauge(
            "lingua_pool_cell_nodes",
            "Known nodes by cell; none for a cell that is away.",
            ["cell"],
            registry=registry,
        )
        self._cell_slots = Gauge(
            "lingua_pool_cell_slots",
            "Slots of the nodes that may be chosen, by cell.",
            ["cell"],
            registry=registry,
        )
        self._cell_free = Gauge(
            "lingua_pool_cell_free_slots",
            "Free slots of the nodes that may be chosen, by cell.",
            ["cell"],
            registry=registry,
        )
        self._cells_shown: set[int] = set()
        self._slots = Gauge(
            "lingua_pool_slots",
            "Slots of the nodes that may be chosen; a node counts in each of its directions.",
            _DIRECTION,
            registry=registry,
        )
        self._free = Gauge(
            "lingua_pool_free_slots",
            "Free slots of the nodes that may be chosen, by direction.",
            _DIRECTION,
            registry=registry,
        )
        self._utilization = Gauge(
            "lingua_pool_utilization_ratio",
            "Share of the slots that are taken, by direction; 1 if there is no slot.",
            _DIRECTION,
            registry=registry,
        )
        self._sampled = Gauge(
            "lingua_pool_sampled_timestamp_seconds",
            "When the gauges of nodes and slots were last read.",
            registry=registry,
        )
        self.fleet_watchers = Gauge(
            "lingua_pool_fleet_watchers",
            "WatchFleet streams, such as those of consoles.",
            registry=registry,
        )
        self._fleet_sampled = Gauge(
            "lingua_pool_fleet_sampled_timestamp_seconds",
            "When all nodes were last read for WatchFleet; 0: never.",
            registry=registry,
        )
        self._fleet_sample = Gauge(
            "lingua_pool_fleet_sample_seconds",
            "How long it took to read all nodes for WatchFleet the last time.",
            registry=registry,
        )
        self._quotas = QuotaMetrics(registry, "jobs", "audio")

    def allocated(self, existing: int, path: int, binding: int, binding_kind: int) -> None:
        """Counts an allocation that returned a node; all arguments but `existing` are enums."""
        if existing:
            self._allocations["existing"] += 1
            return
        self._allocations["reserved"] += 1
        self._placements[_PATHS[path]] += 1
        if binding_kind:
            self._affinity.labels(_KINDS[binding_kind], _BINDINGS[binding]).inc()

    def refused(self, error: LinguaError, criteria: pool_pb2.NodeCriteria) -> None:
        """Counts an allocation that was refused."""
        reason = reason_name(error.reason).lower()
        self._allocations[reason] += 1
        if error.reason == common_pb2.ERROR_REASON_NO_CAPABLE_NODE:
            self._empty.inc()
        if isinstance(error, QuotaExceededError):
            self._quotas.refused(error)
        if error.reason in _NO_ROOM:
            self._refusals.labels(*self._directions.asked_for(criteria), reason).inc()

    def fleet_sampled(self, took_s: float) -> None:
        """Notes that all nodes were read for WatchFleet."""
        self._fleet_sampled.set_to_current_time()
        self._fleet_sample.set(took_s)

    def stats(self) -> instances_pb2.InstanceStats:
        """The counters as an instance announces them."""
        placed = self._allocations["reserved"] + self._allocations.get("existing", 0)
        return instances_pb2.InstanceStats(
            allocations=placed, allocations_refused=sum(self._allocations.values()) - placed
        )

    def show(self, sample: Sample, at: float) -> None:
        """Sets the gauges.

        Args:
            sample: the values.
            at: time of the sample, in seconds since the epoch.
        """
        for health in common_pb2.NodeHealth.values()[1:]:
            word = _word(common_pb2.NodeHealth.Name(health), "NODE_HEALTH_")
            self.nodes.labels(word).set(sample.fleet.by_health[health])
        self._late.set(sample.fleet.late)
        self._ejected.set(sample.fleet.ejected)
        self._whole_slots.set(sample.whole.slots)
        self._whole_free.set(sample.whole.free)
        self._show_cells(sample)
        for direction, (slots, free) in sample.rooms.items():
            self._slots.labels(*direction).set(slots)
            self._free.labels(*direction).set(free)
            self._utilization.labels(*direction).set(1 - free / slots if slots else 1)
            # Created with 0, so that the first refusal is an increase.
            for reason in _NO_ROOM:
                self._refusals.labels(*direction, reason_name(reason).lower())
        # Removed one by one, so that a scrape never misses the others.
        for direction in self._shown - sample.rooms.keys():
            for gauge in (self._slots, self._free, self._utilization):
                gauge.remove(*direction)
        self._shown = set(sample.rooms)
        self._sampled.set(at)

    def _show_cells(self, sample: Sample) -> None:
        for number, cell in sample.cells.items():
            self._cell_nodes.labels(number).set(cell.fleet.by_health.total())
            self._cell_slots.labels(number).set(cell.whole.slots)
            self._cell_free.labels(number).set(cell.whole.free)
        for number in self._cells_shown - sample.cells.keys():
            for gauge in (self._cell_nodes, self._cell_slots, self._cell_free):
                gauge.remove(number)
        self._cells_shown = set(sample.cells)


def _word(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower()
