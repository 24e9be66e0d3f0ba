"""One short round in CI: a process of each kind is struck while people talk; all is validated.

The long run is `make robustness`.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from tests.robustness.network import CUT
from tests.robustness.report import Report
from tests.robustness.rounds import run_round
from tests.robustness.store import AOF
from tests.robustness.validate import validate
from tests.robustness.world import World
from tests.support.audio import FORMAT
from tests.support.listening_node import audio_of
from tests.support.raw_gateway import RawGateway

PEOPLE = 6
ROOMS = 1
SEED = 7


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Two of each service, four nodes, and a Redis that comes back with its data."""
    with World(AOF) as made:
        yield made


@pytest.mark.parametrize(
    "faults",
    [
        ["kill -9 of a gateway", "kill -9 of a pool"],
        ["kill -9 of a dispatcher", "node answers twice"],
        ["kill -9 of a node", "answers lost: pool and Redis"],
        ["loss: dispatcher and pool", "loss: gateway and dispatcher"],
        ["pool service restarted while Redis is away"],
        ["pool services and a node away together"],
        # test_all_in_one has the same with other processes, which takes less time.
        pytest.param(["dispatchers killed with full nodes"], marks=pytest.mark.long),
    ],
    ids=" + ".join,
)
async def test_a_round_of_faults_breaks_no_promise(
    world: World, faults: list[str], tmp_path: Path
) -> None:
    await check_round(world, faults, tmp_path)


async def check_round(
    world: World, faults: list[str], folder: Path, *, hostile: bool = False
) -> None:
    """Runs a round and validates it."""
    history = await run_round(world, faults, SEED, people=PEOPLE, rooms=ROOMS, hostile=hostile)
    report = Report(folder)
    violations = validate(history)
    report.add(history, violations, world.logs())
    print(report.markdown())
    assert not violations, "\n".join(map(str, violations))


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(["hostile peers"], marks=pytest.mark.long),
        ["kill -9 of a dispatcher"],
    ],
    ids=" + ".join,
)
async def test_honest_people_and_nodes_see_nothing_of_hostile_ones(
    world: World, faults: list[str], tmp_path: Path
) -> None:
    await check_round(world, faults, tmp_path, hostile=True)


async def test_a_relay_that_breaks_costs_a_running_job_neither_its_attempt_nor_a_wait(
    world: World,
) -> None:
    """The node was never away: only the way from the job's home to the node's dispatcher was."""
    await world.all_up()
    # A hostile node of the test before may not be forgotten yet.
    node = next(each for each in await world.known_nodes() if each.node_id in world.nodes)
    home = next(name for name in world.of("dispatcher") if name != node.owner_instance)
    world.nodes[node.node_id].order(work_ms=1000)
    gateway = RawGateway(world.services[home].address)
    try:
        pair = common_pb2.LanguagePair(src="en", tgt="es")
        spec = dispatcher_pb2.JobSpec(
            session_id="relayed",
            pair=pair,
            audio=audio_of(2, 4),
            audio_format=FORMAT,
            reason=common_pb2.FINALIZE_REASON_IS_FINAL,
            preferred_node_id=node.node_id,
            strict=True,
        )
        job = await gateway.submit(spec)
        await gateway.accepted(job)
        link = world.network.links[f"dispatchers>{node.owner_instance}"]
        world.network.change(link, CUT)
        await asyncio.sleep(0.2)
        world.network.heal()
        delivered = await gateway.delivered(job)
    finally:
        await gateway.cut()
        world.nodes[node.node_id].order()
    assert delivered.attempts == 1
    assert delivered.result.texts.source == "2 4"
