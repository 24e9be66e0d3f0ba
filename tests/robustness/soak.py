"""Steady traffic for a long time: memory, file descriptors and tasks of every service stay flat.

    python -m tests.robustness.soak --minutes 20

Sessions come and go all the while, and others vanish without Close. `growth.py` has the verdict:
it compares the medians of the first and the last quarter after the warm-up, by kind of service. The
exit code is 1 if a kind of service grew or a promise was broken.
"""

import argparse
import asyncio
import os
import random
import sys
import time
from collections import defaultdict
from pathlib import Path

from tests.robustness.growth import Sample, growth_by_kind
from tests.robustness.history import History
from tests.robustness.report import KINDS_HEAD, Report, plain
from tests.robustness.rounds import talker
from tests.robustness.store import AOF
from tests.robustness.traffic.client import vanish, vanish_from_web
from tests.robustness.validate import validate
from tests.robustness.world import World
from tests.support.javascript import why_not

SAMPLE_S = 5.0
# How long one session talks; then another takes its place.
SESSION_S = 20.0
PEOPLE = 12
# Sessions a second that vanish without Close.
VANISHING = 3.0
# Records of jobs and sessions come to their end within the warm-up.
SHORT_LIVED = {"job_record_ttl_ms": 30_000, "kept_result_ms": 30_000, "resume_within_ms": 30_000}


def look(world: World, name: str) -> Sample:
    """A process as it is now."""
    pid = world.processes[name].process.pid
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    files = len(os.listdir(f"/proc/{pid}/fd"))
    tasks = world.tasks(name) if name in world.hosts else -1
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
        one = talker(world, at, rng)
        task = asyncio.create_task(one.talk())
        await asyncio.sleep(min(SESSION_S * rng.uniform(0.5, 1.5), ends - time.monotonic() + 1))
        one.stop()
        await task
        done.clients.append(one.history)


async def vanishing(world: World, ends: float, per_s: float) -> int:
    """Sessions that vanish, so many a second; returns how many there were."""
    rng, count = random.Random(-1), 0
    async with asyncio.TaskGroup() as gone:
        while per_s and time.monotonic() < ends:
            if count % 2:
                gone.create_task(vanish(world.gateways, rng, 0.0))
            else:
                gone.create_task(vanish_from_web(world.web_gateways, rng, 0.0))
            count += 1
            await asyncio.sleep(1 / per_s)
    return count


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
    """Prints a row for each kind of service."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--vanishing", type=float, default=VANISHING, help="sessions a second")
    chosen = parser.parse_args()
    with World(AOF, **SHORT_LIVED) as world:
        samples, done, gone = asyncio.run(soak(world, chosen.minutes, chosen.vanishing))
    growths = growth_by_kind(samples)
    rows = [("service", "MB", "files", "tasks", "most MB", "")]
    for each in growths:
        first, last = each.first, each.last
        rows.append(
            (
                f"{each.instances} x {each.kind}",
                f"{first.mb:.1f} -> {last.mb:.1f}",
                f"{first.files} -> {last.files}",
                f"{first.tasks} -> {last.tasks}" if first.tasks >= 0 else "",
                f"{each.most_mb:.1f}",
                "flat" if each.is_flat else "GROWS",
            )
        )
    violations = validate(done)
    report = Report()
    report.add(done, violations, {})
    print(f"{chosen.minutes:g} minutes; {gone} sessions vanished")
    if reason := why_not():
        print(f"JavaScript clients: none ({reason})")
    print(plain([KINDS_HEAD, *(kind.cells() for kind in report.kinds.values())]))
    print(plain(rows))
    for violation in violations[:20]:
        print(f"VIOLATION {violation}")
    sys.exit(1 if violations or not all(each.is_flat for each in growths) else 0)


if __name__ == "__main__":
    main()
