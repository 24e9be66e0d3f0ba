"""Jobs in another cell than their own: the real scripts, and calls and answers that get lost."""

import asyncio
import gc
import random
from collections.abc import Iterator

import pytest
import redis

from .cells_world import AFTER, BEFORE, FINE, Placed, World, job_in, lost
from .scripts import HIT, MAX_DURATION, UNAVAILABLE, clocked_scripts

pytestmark = pytest.mark.asyncio
JOB = job_in(0)
DOWN = "SCHEDULER_DEPENDENCY_DOWN"
FULL = "ALL_CANDIDATES_FULL_OR_FAILED"


class Fates:
    """Decides which calls get lost: by cell and script, the next ones."""

    def __init__(self) -> None:
        self.next: dict[tuple[int, str], list[str]] = {}

    def __call__(self, cell: int, name: str) -> str:
        waiting = self.next.get((cell, name))
        return waiting.pop(0) if waiting else FINE


@pytest.fixture
def fates() -> Fates:
    return Fates()


@pytest.fixture
def world(client: redis.Redis, prefix: str, fates: Fates) -> Iterator[World]:
    """Three cells; a node with one slot in the second one only."""
    world = World(client, prefix, fate=fates)
    world.cells[1].join("n1", most=1)
    yield world
    for key in client.scan_iter(f"{prefix}:*", count=10_000):
        client.unlink(key)


async def test_a_job_finds_a_node_in_another_cell(world: World) -> None:
    placed = await world.allocate(JOB)
    assert placed.key == (1, "n1", 1)
    assert world.leases() == {(1, "n1"): [f"{JOB}:1"]}
    assert await world.commit(JOB, placed) == "committed"
    assert await world.complete(JOB, placed) == ("completed", "done")
    assert world.leases() == {}
    assert world.cells[0].job(JOB)["state"] == "done"


async def test_a_job_with_room_at_home_asks_no_other_cell(world: World) -> None:
    world.cells[0].join("n0", most=1)
    placed = await world.allocate(JOB)
    await world.commit(JOB, placed)
    await world.complete(JOB, placed)
    assert placed.cell == 0
    assert [link.calls for link in world.links] == [["allocate", "commit", "complete"], [], []]


async def test_a_repeated_allocation_finds_the_attempt_in_the_other_cell(world: World) -> None:
    first = await world.allocate(JOB)
    world.cells[0].join("n0", most=1)
    again = await world.allocate(JOB)
    assert again.existing
    assert again.key == first.key
    await world.commit(JOB, first)
    assert (await world.allocate(JOB, 2)).key == first.key


@pytest.mark.parametrize(
    ("cell", "script", "fate"),
    [
        (0, "allocate", AFTER),
        (1, "take", BEFORE),
        (1, "take", AFTER),
        (0, "allocate", BEFORE),
    ],
)
async def test_an_answer_that_is_lost_on_the_way_there_makes_no_second_attempt(
    world: World, fates: Fates, cell: int, script: str, fate: str
) -> None:
    fates.next[cell, script] = [fate]
    assert await lost(world.allocate(JOB)) in (DOWN, "NO_CAPABLE_NODE")
    assert (await world.allocate(JOB)).key == (1, "n1", 1)
    assert world.leases() == {(1, "n1"): [f"{JOB}:1"]}


async def test_an_answer_to_the_confirmation_that_is_lost_makes_no_second_attempt(
    world: World, fates: Fates
) -> None:
    world.cells[2].join("n2", most=1)
    fates.next[0, "allocate"] = [FINE, AFTER]
    assert await lost(world.allocate(JOB)) == DOWN
    again = await world.allocate(JOB)
    assert again.existing
    assert sum(len(held) for held in world.leases().values()) == 1


async def test_a_slot_that_was_never_confirmed_becomes_free_by_itself(
    world: World, fates: Fates
) -> None:
    fates.next[0, "allocate"] = [FINE, BEFORE]
    assert await lost(world.allocate(JOB)) == DOWN
    assert world.leases() == {(1, "n1"): [f"{JOB}:1"]}
    world.advance(5_000)
    assert world.leases() == {}
    assert (await world.allocate(job_in(2))).cell == 1


async def test_an_attempt_whose_lease_ended_there_is_replaced(world: World) -> None:
    await world.allocate(JOB)
    world.advance(5_000)
    world.beat()
    again = await world.allocate(JOB)
    assert (again.attempt, again.existing) == (2, False)


async def test_a_job_whose_attempt_is_in_a_cell_that_is_away_is_not_started_twice(
    world: World,
) -> None:
    placed = await world.allocate(JOB)
    await world.commit(JOB, placed)
    world.cells[2].join("n2")
    world.links[1].up = False
    assert await lost(world.allocate(JOB, 2)) == DOWN
    world.links[1].up = True
    assert (await world.allocate(JOB, 2)).key == placed.key


async def test_a_job_whose_attempt_waits_in_a_cell_that_is_away_may_be_hedged(
    world: World,
) -> None:
    placed = await world.allocate(JOB)
    world.cells[2].join("n2")
    world.links[1].up = False
    assert await world.release(JOB, placed) == "nothing"
    assert (await world.allocate(JOB, 2)).key == (2, "n2", 2)


async def test_other_cells_are_asked_although_one_is_away(world: World) -> None:
    world.cells[2].join("n2")
    world.links[1].up = False
    assert (await world.allocate(JOB)).cell == 2


async def test_a_job_fails_fast_if_its_own_cell_is_away(world: World) -> None:
    world.links[0].up = False
    assert await lost(world.allocate(JOB)) == DOWN
    assert world.leases() == {}


async def test_a_refusal_counts_the_nodes_of_all_cells(world: World) -> None:
    for cell in world.cells:
        cell.join("full", most=1)
    for number in range(4):
        await world.allocate(job_in(number % 3, f"other{number}"))
    with pytest.raises(Exception, match="4 full"):
        await world.allocate(JOB)


async def test_two_callers_at_once_get_the_same_attempt(world: World) -> None:
    world.cells[2].join("n2")
    for round_ in range(20):
        job = job_in(0, f"j{round_}")
        world.cells[1].join("n1", most=50)
        world.cells[2].join("n2", most=50)
        both = await asyncio.gather(world.allocate(job), world.allocate(job))
        assert both[0].key == both[1].key
        held = [lease for leases in world.leases().values() for lease in leases]
        assert sum(lease.startswith(f"{job}:") for lease in held) == 1


async def test_home_does_not_confirm_an_attempt_that_is_no_longer_the_next_one(
    client: redis.Redis, prefix: str
) -> None:
    def fate(cell: int, name: str) -> str:
        # While the other cell is asked, somebody else has used up the number at home.
        if name == "take" and not world.cells[0].live("n0"):
            world.cells[0].join("n0")
            world.cells[0].place(JOB)
            world.cells[0].release("n0", JOB)
        return FINE

    world = World(client, prefix, fate=fate)
    world.cells[1].join("n1")
    placed = await world.allocate(JOB)
    assert placed.key == (2, "n0", 0)
    assert world.leases() == {(0, "n0"): [f"{JOB}:2"]}


async def test_calls_about_a_job_that_are_sent_together_are_carried_out_in_order(
    world: World,
) -> None:
    world.cells[2].join("n2")
    for round_ in range(10):
        job = job_in(0, f"j{round_}")
        first = await world.allocate(job)
        _, _, second = await asyncio.gather(
            world.commit(job, first),
            world.complete(job, first, failed=True),
            world.allocate(job, 2),
        )
        assert (second.attempt, second.existing) == (2, False)
        assert "1:acked_ms" in world.cells[0].job(job)
        await world.complete(job, second)


async def test_only_one_of_two_attempts_in_two_cells_is_committed(world: World) -> None:
    world.cells[2].join("n2")
    first = await world.allocate(JOB)
    second = await world.allocate(JOB, 2, excluded=[first.node])
    assert {first.cell, second.cell} == {1, 2}
    assert await world.commit(JOB, second) == "committed"
    assert await world.commit(JOB, first) == "superseded"
    assert world.leases() == {(second.cell, second.node): [f"{JOB}:2"]}
    assert await world.complete(JOB, second) == ("completed", "done")
    assert await world.complete(JOB, first) == ("superseded", "done")


@pytest.mark.parametrize("cell", [0, 1])
@pytest.mark.parametrize("fate", [BEFORE, AFTER])
@pytest.mark.parametrize("script", ["commit", "complete", "release"])
async def test_a_call_whose_answer_is_lost_can_be_repeated(
    world: World, fates: Fates, script: str, fate: str, cell: int
) -> None:
    placed = await world.allocate(JOB)
    if script == "complete":
        await world.commit(JOB, placed)
    fates.next[cell, script] = [fate]
    await lost(getattr(world, script)(JOB, placed))
    await getattr(world, script)(JOB, placed)
    state = world.cells[0].job(JOB)["state"]
    assert state == {"commit": "acked", "complete": "done", "release": "retrying"}[script]
    held = {(1, "n1"): [f"{JOB}:1"]} if script == "commit" else {}
    assert world.leases() == held


async def test_a_result_does_not_wait_for_the_cell_of_its_node(world: World) -> None:
    placed = await world.allocate(JOB)
    await world.commit(JOB, placed)
    world.links[1].up = False
    assert await world.complete(JOB, placed) == ("completed", "done")


async def test_a_result_does_not_overtake_the_acknowledgement(world: World) -> None:
    placed = await world.allocate(JOB)
    await asyncio.gather(world.commit(JOB, placed), world.complete(JOB, placed))
    record = world.cells[0].job(JOB)
    assert (record["state"], "1:acked_ms" in record) == ("done", True)


async def test_a_caller_that_leaves_at_any_moment_leaves_no_call_behind(
    world: World, recwarn: pytest.WarningsRecorder
) -> None:
    placed = await world.allocate(JOB)
    for steps in range(12):
        call = asyncio.ensure_future(world.complete(JOB, placed))
        for _ in range(steps):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
    gc.collect()
    assert not [each for each in recwarn if "never awaited" in str(each.message)]


async def test_a_turn_stays_with_its_node_in_another_cell(world: World) -> None:
    world.cells[1].join("n1", most=5)
    world.cells[2].join("n2", most=5)
    bound = {"tenant": "t1", "session_id": "s", "reason": MAX_DURATION}
    first = await world.allocate(job_in(0, "a"), utterance_index=1, **bound)
    world.cells[0].join("n0", most=5)
    second = await world.allocate(job_in(0, "b"), utterance_index=2, **bound)
    assert second.key == (1, first.node, first.cell)
    assert second.binding == HIT


async def test_a_turn_follows_its_node_to_the_cell_it_has_moved_to(world: World) -> None:
    node = next(
        name
        for name in (f"n{number}" for number in range(100))
        if world.attempts.across._cells.of_new_node(name).number == 2
    )
    world.cells[0].join(node)
    bound = {"tenant": "t1", "session_id": "s", "reason": MAX_DURATION}
    first = await world.allocate(job_in(0, "a"), utterance_index=1, **bound)
    assert first.key == (1, node, 0)
    await world.complete(job_in(0, "a"), first)
    world.cells[0].remove(node)
    world.cells[2].join(node)
    second = await world.allocate(job_in(0, "b"), utterance_index=2, **bound)
    assert (second.node, second.cell, second.binding) == (node, 2, HIT)


async def test_a_turn_waits_for_its_node_in_a_cell_that_is_away(world: World) -> None:
    bound = {"tenant": "t1", "session_id": "s", "reason": MAX_DURATION}
    await world.allocate(job_in(0, "a"), utterance_index=1, **bound)
    world.cells[2].join("n2")
    world.links[1].up = False
    waits = world.allocate(job_in(0, "b"), utterance_index=2, wait_for_bound_node=True, **bound)
    assert await lost(waits) == "BOUND_NODE_FULL"
    placed = await world.allocate(job_in(0, "b"), utterance_index=2, **bound)
    assert (placed.node, placed.binding) == ("n2", UNAVAILABLE)


async def test_a_turn_waits_for_its_node_that_is_full_in_another_cell(world: World) -> None:
    bound = {"tenant": "t1", "session_id": "s", "reason": MAX_DURATION}
    await world.allocate(job_in(0, "a"), utterance_index=1, **bound)
    waits = world.allocate(job_in(0, "b"), utterance_index=2, wait_for_bound_node=True, **bound)
    assert await lost(waits) == "BOUND_NODE_FULL"


@pytest.mark.parametrize("strict", [False, True])
async def test_a_preferred_node_is_found_in_another_cell(world: World, strict: bool) -> None:
    world.cells[0].join("n0")
    world.cells[2].join("n2")
    placed = await world.allocate(JOB, preferred="n2", strict=strict)
    assert (placed.node, placed.cell) == ("n2", 2)


async def test_a_preferred_node_that_is_full_in_another_cell_is_passed_over(world: World) -> None:
    await world.allocate(job_in(0, "other"), preferred="n1")
    world.cells[0].join("n0")
    assert await lost(world.allocate(JOB, preferred="n1", strict=True)) == FULL
    assert (await world.allocate(JOB, preferred="n1")).node == "n0"


async def test_a_preferred_node_that_nobody_knows_is_an_error(world: World) -> None:
    assert await lost(world.allocate(JOB, preferred="nobody")) == "PREFERRED_NODE_NOT_CAPABLE"


async def test_a_tenant_is_limited_over_all_cells(world: World) -> None:
    world.cells[1].join("n1", most=9)
    limited = {"tenant": "t1", "limits": {"jobs": 2}}
    first = await world.allocate(job_in(0, "a"), **limited)
    await world.allocate(job_in(1, "b"), **limited)
    assert await lost(world.allocate(job_in(2, "c"), **limited)) == "QUOTA_EXCEEDED"
    assert (await world.allocate(job_in(0, "a"), **limited)).existing
    await world.complete(job_in(0, "a"), first, tenant="t1")
    assert not (await world.allocate(job_in(2, "c"), **limited)).existing


async def test_the_speech_of_a_tenant_is_limited_over_all_cells(world: World) -> None:
    world.cells[1].join("n1", most=9)
    speech = {"tenant": "t1", "limits": {"audio_ms_per_minute": 1_000}, "audio_ms": 1_000}
    await world.allocate(job_in(0, "a"), **speech)
    await world.allocate(job_in(0, "a"), **speech)
    assert await lost(world.allocate(job_in(2, "c"), **speech)) == "QUOTA_EXCEEDED"
    world.advance(60_000)
    world.beat()
    await world.allocate(job_in(2, "c"), **speech)


class Walk:
    """Random calls for few jobs on few slots, of which many get lost."""

    JOBS = tuple(job_in(number % 3, f"j{number}") for number in range(4))

    def __init__(self, client: redis.Redis, prefix: str, seed: int, **options: object) -> None:
        self.chance = random.Random(seed)
        self.world = World(client, prefix, fate=self._fate, **options)  # type: ignore[arg-type]
        self.slots = {(0, "a"): 1, (1, "b"): 1, (2, "c"): 2}
        for (cell, node), most in self.slots.items():
            self.world.cells[cell].join(node, most=most)
        # What callers were told and have not given up, and who may win.
        self.told: dict[str, list[Placed]] = {job: [] for job in self.JOBS}
        self.committed: dict[str, Placed] = {}
        self.done: dict[str, Placed] = {}

    def _fate(self, cell: int, name: str) -> str:
        return self.chance.choices((FINE, BEFORE, AFTER), (10, 1, 1))[0]

    async def run(self, steps: int) -> None:
        random.seed(self.chance.random())
        often = (self.allocate, self.hedge, self.commit)
        for _ in range(steps):
            move = self.chance.choice(
                (*often * 3, self.complete, self.release, self.time, self.outage)
            )
            await move(self.chance.choice(self.JOBS))
            for (cell, node), held in self.world.leases().items():
                assert len(held) <= self.slots[cell, node], (node, held)
        # Nothing is left once nobody asks any more.
        self.world.advance(60_000)
        assert self.world.leases() == {}

    async def allocate(self, job: str) -> None:
        lives = [each for each in self.told[job] if self.world.is_alive(job, each)]
        callers = self.chance.choice((1, 1, 2))
        answers = [asyncio.ensure_future(self.world.allocate(job)) for _ in range(callers)]
        found = [each.result() for each in answers if not await lost(each)]
        for placed in found:
            if placed.is_over:
                assert placed.node == self.done.get(job, placed).node
                self.done[job] = placed
                return
            assert job not in self.done
            if lives:
                assert placed.key in {each.key for each in lives}, (placed, lives)
            assert self.world.is_alive(job, placed), placed
            self.tell(job, placed)
        assert len({placed.key for placed in found}) <= 1, found

    async def hedge(self, job: str) -> None:
        if job in self.done or not self.told[job]:
            return
        number = max(each.attempt for each in self.told[job]) + 1
        answer = asyncio.ensure_future(self.world.allocate(job, number))
        if not await lost(answer) and not answer.result().is_over:
            self.tell(job, answer.result())

    async def commit(self, job: str) -> None:
        if not self.told[job]:
            return
        placed = self.chance.choice(self.told[job])
        winner = self.committed.get(job)
        lives = winner is not None and self.world.is_alive(job, winner)
        call = asyncio.ensure_future(self.world.commit(job, placed))
        won = ("committed", "already", "committed_late")
        if not await lost(call) and call.result() in won and job not in self.done:
            assert not lives or winner is None or winner.key == placed.key, (winner, placed)
            self.committed[job] = placed

    async def complete(self, job: str) -> None:
        if not self.told[job]:
            return
        placed = self.chance.choice(self.told[job])
        call = asyncio.ensure_future(self.world.complete(job, placed))
        if not await lost(call):
            if call.result() == ("completed", "done"):
                assert job not in self.done, (self.done[job], placed)
                self.done[job] = placed
            self.given_up(job, placed)

    async def release(self, job: str) -> None:
        if self.told[job]:
            placed = self.chance.choice(self.told[job])
            await lost(self.world.release(job, placed))
            if self.committed.get(job) != placed:
                self.given_up(job, placed)

    async def time(self, job: str) -> None:
        self.world.advance(self.chance.choice((500, 1_000, 5_000)))
        self.world.beat()

    async def outage(self, job: str) -> None:
        link = self.chance.choice(self.world.links)
        link.up = self.chance.random() < 0.7

    def tell(self, job: str, placed: Placed) -> None:
        if placed.key not in {each.key for each in self.told[job]}:
            self.told[job].append(placed)

    def given_up(self, job: str, placed: Placed) -> None:
        self.told[job] = [each for each in self.told[job] if each.key != placed.key]


WALKS, STEPS = 40, 60


@pytest.mark.parametrize("share", range(4))
async def test_no_job_has_two_attempts_whatever_gets_lost(
    client: redis.Redis, prefix: str, share: int
) -> None:
    for seed in range(share, WALKS, 4):
        walk = Walk(client, f"{prefix}:{seed}", seed)
        try:
            await walk.run(STEPS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    for key in client.scan_iter(f"{prefix}:*", count=10_000):
        client.unlink(key)


FAULTS = {
    "an attempt in another cell does not count as alive": (
        "if cell and (state == 'reserved' or state == 'running') then",
        "if false then",
    ),
    "two attempts win": (
        "if winner and winner ~= attempt and attempt_alive(P, job, winner, now) then",
        "if false then",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_walks_can_fail(client: redis.Redis, prefix: str, fault: str) -> None:
    line, instead = FAULTS[fault]
    sources = {name: source.replace(line, instead) for name, source in clocked_scripts().items()}
    failed = False
    for seed in range(WALKS):
        try:
            await Walk(client, f"{prefix}:{seed}", seed, sources=sources).run(STEPS)
        except AssertionError:
            failed = True
            break
    for key in client.scan_iter(f"{prefix}:*", count=10_000):
        client.unlink(key)
    assert failed
