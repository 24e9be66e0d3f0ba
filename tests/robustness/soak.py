"""Steady traffic for a long time: memory, file descriptors and tasks of every process stay flat.

    python -m tests.robustness.soak --minutes 20

Sessions come and go all the while, and others vanish without Close. What is compared are the
medians of the first and the last quarter of the time after the warm-up. Ends with 1 where something
grew, or a promise was broken.
"""

import argparse
import asyncio
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.robustness.history import History
from tests.robustness.report import plain
from tests.robustness.store import AOF
from tests.robustness.traffic.client import Talker, vanish
from tests.robustness.validate import validate
from tests.robustness.world import World

SAMPLE_S = 5.0
# Of the whole time: caches fill, pools of connections grow to what they need.
WARM_UP = 0.25
# How long one session talks; then another takes its place.
SESSION_S = 20.0
PEOPLE = 12
# Sessions a second that vanish without Close.
VANISHING = 3.0
# What may be more at the end than at the beginning.
MORE_MB = 6.0
MORE_FILES = 4
# Connections of sessions that vanish linger for seconds. A leak would be hundreds.
MORE_FILES_OF_A_GATEWAY = 20
MORE_TASKS = 6
# Records of jobs and sessions come to their end within the warm-up.
SHORT_LIVED = {"job_record_ttl_ms": 30_000, "kept_result_ms": 30_000, "resume_within_ms": 30_000}


class Sample(NamedTuple):
    """One process at one moment; tasks: -1 where it cannot be asked."""

    mb: float
    files: int
    tasks: int


def look(world: World, name: str) -> Sample:
    """A process as it is now."""
    pid = world.processes[name].process.pid
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    files = len(os.listdir(f"/proc/{pid}/fd"))
    tasks = world.tasks(name) if name in world.services else -1
    return Sample(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, files, tasks)


def redis_mb(world: World) -> Sample:
    """The memory that Redis uses for data, and its clients."""
    memory = world.store.ask("INFO", "memory")
    clients = world.store.ask("INFO", "clients")
    return Sample(memory["used_memory"] / 2**20, int(clients["connected_clients"]), -1)


async def person(world: World, at: int, ends: float, done: History) -> None:
    """Talks in one session after the other."""
    rng = random.Random(at)
    while time.monotonic() < ends:
        talker = Talker(f"client-{at}", world.gateways, rng)
        task = asyncio.create_task(talker.talk())
        await asyncio.sleep(min(SESSION_S * rng.uniform(0.5, 1.5), ends - time.monotonic() + 1))
        talker.stop()
        await task
        done.clients.append(talker.history)


async def vanishing(world: World, ends: float, per_s: float) -> int:
    """Sessions that vanish, so many a second; returns how many there were."""
    rng, count = random.Random(-1), 0
    async with asyncio.TaskGroup() as gone:
        while per_s and time.monotonic() < ends:
            gone.create_task(vanish(world.gateways, rng, 0.0))
            count += 1
            await asyncio.sleep(1 / per_s)
    return count


def medians(samples: Sequence[Sample]) -> Sample:
    """Of each kind of value."""
    columns = list(zip(*samples, strict=True))
    mb, files, tasks = (statistics.median(column) for column in columns)
    return Sample(mb, round(files), round(tasks))


def is_flat(name: str, first: Sample, last: Sample) -> bool:
    """Whether a process has grown by no more than it may."""
    more_files = MORE_FILES_OF_A_GATEWAY if name.startswith("gateway-") else MORE_FILES
    return (
        last.mb <= first.mb + MORE_MB
        and last.files <= first.files + more_files
        and last.tasks <= first.tasks + MORE_TASKS
    )


async def soak(
    world: World, minutes: float, vanishing_per_s: float
) -> tuple[dict[str, list[Sample]], History, int]:
    """Traffic, and a sample of everything now and then; the last is how many have vanished."""
    ends = time.monotonic() + 60 * minutes
    done = History(name="soak", seed=0)
    people = [asyncio.create_task(person(world, at, ends, done)) for at in range(PEOPLE)]
    gone = asyncio.create_task(vanishing(world, ends, vanishing_per_s))
    samples: defaultdict[str, list[Sample]] = defaultdict(list)
    while time.monotonic() < ends:
        await asyncio.sleep(SAMPLE_S)
        for name in world.processes:
            samples[name].append(await asyncio.to_thread(look, world, name))
        samples["redis"].append(await asyncio.to_thread(redis_mb, world))
    await asyncio.gather(*people)
    done.nodes = [node.history() for node in world.nodes.values()]
    done.leases_left = await world.leases_left(16)
    done.logged = world.new_faults()
    return samples, done, await gone


def main() -> None:
    """Prints a row a process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--vanishing", type=float, default=VANISHING, help="sessions a second")
    chosen = parser.parse_args()
    with World(AOF, **SHORT_LIVED) as world:
        samples, done, gone = asyncio.run(soak(world, chosen.minutes, chosen.vanishing))
    rows = [("process", "MB", "files", "tasks", "most MB", "")]
    grown = 0
    for name, taken in samples.items():
        after = taken[int(len(taken) * WARM_UP) :]
        quarter = max(1, len(after) // 4)
        first, last = medians(after[:quarter]), medians(after[-quarter:])
        flat = is_flat(name, first, last)
        grown += not flat
        rows.append(
            (
                name,
                f"{first.mb:.1f} -> {last.mb:.1f}",
                f"{first.files} -> {last.files}",
                f"{first.tasks} -> {last.tasks}" if first.tasks >= 0 else "",
                f"{max(each.mb for each in taken):.1f}",
                "flat" if flat else "GROWS",
            )
        )
    violations = validate(done)
    utterances = sum(len(client.outcomes()) for client in done.clients)
    print(
        f"{chosen.minutes:g} minutes, {len(done.clients)} sessions, {utterances} utterances;"
        f" {gone} sessions vanished"
    )
    print(plain(rows))
    for each in violations[:20]:
        print(f"VIOLATION {each}")
    sys.exit(1 if grown or violations else 0)


if __name__ == "__main__":
    main()
