"""What the pool service counts. Never a node or session id as a label."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from lingua_scheduler.services.runtime.errors import LinguaError, reason_name
from lingua_scheduler.v1 import common_pb2, pool_pb2

# From a local Redis to one that is about to time out.
_SELECTION_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


class PoolMetrics:
    """The metrics of one pool service process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.selection_seconds = Histogram(
            "lingua_pool_selection_seconds",
            "Time of an Allocate's script, its wait and round trip included.",
            buckets=_SELECTION_BUCKETS,
            registry=registry,
        )
        self._allocations = Counter(
            "lingua_pool_allocations",
            "Allocate calls by outcome: reserved, existing, or the reason of the refusal.",
            ["outcome"],
            registry=registry,
        )
        self._placements = Counter(
            "lingua_pool_placements",
            "Reservations by how the node was chosen.",
            ["path"],
            registry=registry,
        )
        self._affinity = Counter(
            "lingua_pool_affinity",
            "Jobs whose session was bound to a node, by kind of binding and what became of it.",
            ["kind", "outcome"],
            registry=registry,
        )
        self._empty = Counter(
            "lingua_pool_empty",
            "Allocate calls for which no capable node was known.",
            registry=registry,
        )
        self.commits = Counter(
            "lingua_pool_commits", "Commit calls by outcome.", ["outcome"], registry=registry
        )
        self.releases = Counter(
            "lingua_pool_releases", "Release calls by cause.", ["cause"], registry=registry
        )
        self.completions = Counter(
            "lingua_pool_completions",
            "Complete calls by how the attempt ended.",
            ["outcome"],
            registry=registry,
        )
        self.beats = Counter("lingua_pool_beats", "Heartbeats taken in.", registry=registry)
        self.expelled = Counter(
            "lingua_pool_nodes_expelled",
            "Nodes taken out of their pools because they fell silent.",
            registry=registry,
        )
        self.nodes = Gauge(
            "lingua_pool_nodes", "Known nodes by health.", ["health"], registry=registry
        )
        self.slots = Gauge(
            "lingua_pool_slots", "Slots of ready nodes.", ["src", "tgt"], registry=registry
        )
        self.free_slots = Gauge(
            "lingua_pool_free_slots",
            "Slots of ready nodes that are free.",
            ["src", "tgt"],
            registry=registry,
        )

    def allocated(self, response: pool_pb2.AllocateResponse) -> None:
        """Counts an allocation that was answered with a node."""
        if response.existing:
            self._allocations.labels("existing").inc()
            return
        placement = response.placement
        self._allocations.labels("reserved").inc()
        self._placements.labels(
            _word(pool_pb2.PlacementPath.Name(placement.path), "PLACEMENT_PATH_")
        ).inc()
        if placement.binding_kind:
            self._affinity.labels(
                _word(pool_pb2.BindingKind.Name(placement.binding_kind), "BINDING_KIND_"),
                _word(pool_pb2.BindingOutcome.Name(placement.binding), "BINDING_OUTCOME_"),
            ).inc()

    def refused(self, error: LinguaError) -> None:
        """Counts an allocation that was refused."""
        self._allocations.labels(reason_name(error.reason).lower()).inc()
        if error.reason == common_pb2.ERROR_REASON_NO_CAPABLE_NODE:
            self._empty.inc()


def _word(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower()
