"""How many cores and how large a Redis a number of simultaneous speakers needs.

    python bench/capacity.py                          for 100 to 1,000,000 speakers
    python bench/capacity.py --speakers 50000 --speaking-share 0.5 --json
    python bench/capacity.py --measured growth.json   with the costs of another machine

Costs are measured (`bench/growth.py`); everything else is an assumption and an option.
docs/performance.md has the conclusions and the limits of this model.
"""

import argparse
import json
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

SPEAKERS = (100, 1000, 10_000, 100_000, 1_000_000)
KIB_A_GIB = 1024 * 1024
CHUNKS_A_S = 10


@dataclass(frozen=True)
class Costs:
    """Measured CPU and memory: `costs` in the JSON of growth.py."""

    gateway_ms: float = 1.2
    dispatcher_ms: float = 1.5
    pool_ms: float = 0.7
    redis_ms: float = 0.48
    """CPU per job at half of saturation, where fewer jobs share a message."""
    relay_ms: float = 1.1
    """Additional CPU per job for dispatchers if there is more than one."""
    chunk_us: float = 100.0
    """CPU of the gateway per chunk of 100 ms."""
    dispatcher_beat_us: float = 530.0
    pool_beat_us: float = 25.0
    redis_beat_us: float = 25.0
    """CPU per heartbeat of a node."""
    session_kib: float = 82.0
    node_kib: float = 35.0
    """Memory of a gateway per session, of a dispatcher per node."""
    redis_session_kib: float = 0.4
    redis_node_kib: float = 0.6
    redis_job_kib: float = 1.2
    """Memory of Redis."""


@dataclass(frozen=True)
class Assumptions:
    """Assumptions about people, nodes and operators. Each is an option of the command."""

    speaking_share: float = 0.4
    """Share of time that a person speaks: two people take turns, think and listen."""
    utterance_s: float = 5.0
    """Mean length of an utterance; MaxDuration cuts at 10 s."""
    job_s: float = 1.5
    """Seconds that a node needs for an utterance."""
    node_slots: int = 4
    """Jobs that a node runs at once."""
    node_utilisation: float = 0.6
    beat_s: float = 5.0
    """LINGUA_NODE_HEARTBEAT_MS."""
    utilisation: float = 0.5
    """Share of a core that a service process may use; above it, queues grow."""
    redis_utilisation: float = 0.5
    """Share of its one core that a Redis primary may use."""
    spare: int = 1
    """Extra replicas of each service, so that one may fail or be replaced."""
    job_record_s: float = 3600.0
    """LINGUA_JOB_RECORD_TTL_MS: how long Redis remembers a job."""
    audio_kbit_s: float = 256.0
    """16 kHz, 16 bit, mono."""
    speech_kbit_s: float = 256.0
    """Of the translated speech, which is assumed to be as long as the original."""
    process_mib: float = 150.0
    """Memory of a service process without sessions and nodes."""


@dataclass(frozen=True)
class Plan:
    """The total. A replica is one process, which uses at most one core."""

    speakers: int
    jobs_per_s: float
    chunks_per_s: float
    nodes: int
    cells: int
    """Deployments, each with its own Redis primary: see `plan`."""
    gateways: int
    dispatchers: int
    pools: int
    cores: int
    """Of gateways, dispatchers and pool services, one each, and one for each Redis primary."""
    busy_cores: float
    """Cores in use."""
    redis_gib_a_cell: float
    services_gib: float
    edge_mbit_s: float
    """Between clients and gateways, both directions together."""
    inside_mbit_s: float
    """Gateways to dispatchers to nodes and back, with a second dispatcher for relayed jobs."""


def plan(speakers: int, costs: Costs | None = None, assumed: Assumptions | None = None) -> Plan:
    """Compute the total. Cells share no state, so each is sized separately.

    All keys of a deployment are in one slot of Redis, whose single thread limits a cell. If there
    are more speakers than that, more cells are needed, which are independent deployments.
    """
    costs, assumed = costs or Costs(), assumed or Assumptions()
    speaking = speakers * assumed.speaking_share
    jobs, chunks = speaking / assumed.utterance_s, speaking * CHUNKS_A_S
    nodes = math.ceil(jobs * assumed.job_s / (assumed.node_slots * assumed.node_utilisation))
    beats = nodes / assumed.beat_s
    redis = jobs * costs.redis_ms / 1e3 + beats * costs.redis_beat_us / 1e6
    cells = max(1, math.ceil(redis / assumed.redis_utilisation))

    gateway = jobs * costs.gateway_ms / 1e3 + chunks * costs.chunk_us / 1e6
    pool = jobs * costs.pool_ms / 1e3 + beats * costs.pool_beat_us / 1e6
    alone = jobs * costs.dispatcher_ms / 1e3 + beats * costs.dispatcher_beat_us / 1e6
    relayed = _replicas(alone, cells, assumed) > 1
    dispatcher = alone + (jobs * costs.relay_ms / 1e3 if relayed else 0.0)

    gateways, dispatchers, pools = (
        cells * _replicas(load, cells, assumed) for load in (gateway, dispatcher, pool)
    )
    processes = gateways + dispatchers + pools
    redis_kib = (
        speakers * costs.redis_session_kib
        + nodes * costs.redis_node_kib
        + jobs * assumed.job_record_s * costs.redis_job_kib
    )
    service_kib = speakers * costs.session_kib + nodes * costs.node_kib
    both_ways = speaking * (assumed.audio_kbit_s + assumed.speech_kbit_s) / 1e3
    return Plan(
        speakers=speakers,
        jobs_per_s=round(jobs, 1),
        chunks_per_s=round(chunks, 1),
        nodes=nodes,
        cells=cells,
        gateways=gateways,
        dispatchers=dispatchers,
        pools=pools,
        cores=processes + cells,
        busy_cores=round(gateway + dispatcher + pool + redis, 2),
        redis_gib_a_cell=round(redis_kib / cells / KIB_A_GIB, 2),
        services_gib=round((service_kib + processes * assumed.process_mib * 1024) / KIB_A_GIB, 2),
        edge_mbit_s=round(both_ways, 1),
        inside_mbit_s=round(both_ways * (3 if relayed else 2), 1),
    )


def _replicas(load: float, cells: int, assumed: Assumptions) -> int:
    """Replicas of one service in one cell."""
    return max(1, math.ceil(load / cells / assumed.utilisation)) + assumed.spare


def table(plans: list[Plan]) -> str:
    """The table for terminals and docs/performance.md."""
    words = {
        "speakers": "speakers",
        "jobs_per_s": "jobs/s",
        "nodes": "nodes",
        "cells": "cells (Redis primaries)",
        "gateways": "gateways",
        "dispatchers": "dispatchers",
        "pools": "pool services",
        "cores": "cores",
        "busy_cores": "busy cores",
        "redis_gib_a_cell": "GiB per Redis",
        "services_gib": "GiB services",
        "edge_mbit_s": "Mbit/s clients",
        "inside_mbit_s": "Mbit/s inside",
    }
    lines = [f"| {' | '.join(words.values())} |", "|" + "---|" * len(words)]
    lines += [f"| {' | '.join(_cell(getattr(each, name)) for name in words)} |" for each in plans]
    return "\n".join(lines)


def _cell(value: float) -> str:
    whole = isinstance(value, int) or value >= 100
    return f"{value:,.0f}" if whole else f"{value:,.1f}"


def _costs_of(file: Path | None) -> Costs:
    if file is None:
        return Costs()
    return Costs(**json.loads(file.read_text(encoding="utf-8"))["costs"])


def main() -> None:
    """Compute and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--speakers", type=int, nargs="+", default=list(SPEAKERS))
    parser.add_argument("--measured", type=Path, help="the JSON of bench/growth.py")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    for field in fields(Assumptions):
        option = f"--{field.name.replace('_', '-')}"
        parser.add_argument(option, type=type(field.default), default=field.default)
    given = parser.parse_args()
    costs = _costs_of(given.measured)
    assumed = Assumptions(
        **{field.name: getattr(given, field.name) for field in fields(Assumptions)}
    )
    plans = [plan(speakers, costs, assumed) for speakers in given.speakers]
    if given.json:
        result: dict[str, Any] = {
            "costs": asdict(costs),
            "assumptions": asdict(assumed),
            "plans": [asdict(each) for each in plans],
        }
        print(json.dumps(result, indent=2))
    else:
        print(table(plans))


if __name__ == "__main__":
    main()
