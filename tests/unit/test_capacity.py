"""The arithmetic of bench/capacity.py, with numbers that are easy to follow by hand."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "bench"))

from capacity import SPEAKERS, Assumptions, Costs, plan

COSTS = Costs(
    gateway_ms=1.0,
    dispatcher_ms=2.0,
    pool_ms=0.5,
    redis_ms=0.5,
    relay_ms=0.0,
    chunk_us=100.0,
    dispatcher_beat_us=0.0,
    pool_beat_us=0.0,
    redis_beat_us=0.0,
    session_kib=64.0,
    node_kib=0.0,
    redis_session_kib=0.0,
    redis_node_kib=0.0,
    redis_job_kib=1.0,
)
ASSUMED = Assumptions(
    speaking_share=0.5,
    utterance_s=5.0,
    job_s=2.0,
    node_slots=4,
    node_utilisation=0.5,
    utilisation=0.5,
    redis_utilisation=0.5,
    spare=1,
    job_record_s=1024.0,
    process_mib=0.0,
)


def test_a_thousand_speakers_by_hand():
    seen = plan(1000, COSTS, ASSUMED)
    # 500 speak; one job each every 5 s, ten chunks each a second.
    assert (seen.jobs_per_s, seen.chunks_per_s) == (100.0, 5000.0)
    # 200 jobs are under way, two on each node.
    assert seen.nodes == 100
    # 0.1 s of CPU a second for jobs and 0.5 for chunks, half of a core each, and one to spare.
    assert seen.gateways == 3
    assert (seen.dispatchers, seen.pools, seen.cells) == (2, 2, 1)
    assert seen.cores == 3 + 2 + 2 + 1
    assert seen.busy_cores == pytest.approx(0.6 + 0.2 + 0.05 + 0.05)
    assert seen.redis_gib_a_cell == pytest.approx(100 * 1024 / 1024**2, abs=0.01)
    assert seen.services_gib == pytest.approx(1000 * 64 / 1024**2, abs=0.01)
    # Audio there and speech back, 256 kbit/s each, of 500; inside twice, and once more by relay.
    assert (seen.edge_mbit_s, seen.inside_mbit_s) == (256.0, 768.0)


def test_a_redis_primary_that_would_be_more_than_half_busy_is_one_cell_too_few():
    assert plan(10_000, COSTS, ASSUMED).cells == 1
    assert plan(10_010, COSTS, ASSUMED).cells == 2


def test_every_cell_has_its_own_spare_replicas():
    one, two = plan(10_000, COSTS, ASSUMED), plan(20_000, COSTS, ASSUMED)
    assert two.cells == 2
    assert (two.gateways, two.dispatchers, two.pools) == tuple(
        2 * each for each in (one.gateways, one.dispatchers, one.pools)
    )


def test_heartbeats_of_idle_nodes_are_counted():
    beating = replace(COSTS, dispatcher_beat_us=300.0)
    more = plan(1000, beating, ASSUMED).busy_cores - plan(1000, COSTS, ASSUMED).busy_cores
    assert more == pytest.approx(100 / 5 * 300e-6, abs=0.01)


def test_a_lone_dispatcher_relays_nothing():
    relaying = replace(COSTS, relay_ms=1.0)
    lone = replace(ASSUMED, spare=0)
    assert plan(1000, relaying, lone).busy_cores == plan(1000, COSTS, lone).busy_cores
    assert plan(1000, relaying, lone).inside_mbit_s == 512.0
    assert plan(1000, relaying, ASSUMED).busy_cores == pytest.approx(0.9 + 0.1)


def test_cores_per_speaker_do_not_grow_with_their_number():
    per_speaker = [plan(speakers).cores / speakers for speakers in SPEAKERS]
    assert per_speaker[-1] <= per_speaker[0]
    assert per_speaker[-1] == pytest.approx(per_speaker[-2], rel=0.1)
