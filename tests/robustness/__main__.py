"""The long run: worlds with each kind of Redis in turn, and faults from a seed until time is over.

    python -m tests.robustness --minutes 30 --seed 1 --out /tmp/robustness

Ends with 1 where a promise was broken. For each violation it prints what repeats its round.
"""

import argparse
import asyncio
import os
import random
import sys
import time
from pathlib import Path

from tests.robustness import loss
from tests.robustness.faults.choice import ALL, draw, possible
from tests.robustness.report import HEAD, KINDS_HEAD, Report, plain
from tests.robustness.room_report import ROOMS_HEAD
from tests.robustness.rounds import JAVASCRIPT_EACH, PEOPLE, ROOMS, run_round
from tests.robustness.store import AOF, EMPTY, SENTINEL
from tests.robustness.validate import validate
from tests.robustness.validate.hostile import summary
from tests.robustness.world import SPLIT, TOPOLOGIES, World
from tests.support import javascript

# Of one world; then the next kind of Redis has its turn.
ROUNDS_A_WORLD = 12
STORES = (AOF, EMPTY, SENTINEL)


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.robustness", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None, help="of the whole run; else drawn")
    parser.add_argument("--rounds", type=int, default=0, help="at most so many")
    parser.add_argument("--store", choices=STORES, help="only this kind of Redis")
    parser.add_argument(
        "--topology",
        choices=tuple(TOPOLOGIES),
        default=SPLIT,
        help="a process for each service, processes that have all of them, or cells on two servers",
    )
    parser.add_argument("--faults", help="only this round, again and again: names with + between")
    parser.add_argument("--only", default="", help='draw from faults with these words: "loss: "')
    parser.add_argument("--hostile", action="store_true", help="hostile peers in every round")
    parser.add_argument("--people", type=int, default=PEOPLE)
    parser.add_argument("--rooms", type=int, default=ROOMS, help="beside them; 0: none")
    parser.add_argument("--out", type=Path, help="folder for the report, and for what went wrong")
    chosen = parser.parse_args()
    if chosen.seed is None:
        chosen.seed = random.SystemRandom().randrange(1_000_000)
    if chosen.faults:
        unknown = [name for name in names_of(chosen.faults) if name not in ALL]
        if unknown:
            parser.error(f"no such fault: {', '.join(unknown)}; there are:\n" + "\n".join(ALL))
    if not any(drawn_from(chosen).values()):
        where = f"in the topology {chosen.topology!r} with {chosen.store or 'any Redis'}"
        web = not javascript.why_not()
        found = {name for each in STORES for name in possible(each, chosen.topology, web=web)}
        here = "\n".join(sorted(found))
        parser.error(f"these faults cannot happen {where}; there are:\n{here}")
    return chosen


def drawn_from(chosen: argparse.Namespace) -> dict[str, list[str]]:
    """The faults that the command line allows, by kind of Redis."""
    drawn = {}
    for store in [chosen.store] if chosen.store else STORES:
        may_be = possible(store, chosen.topology, web=not javascript.why_not())
        if chosen.faults:
            named = names_of(chosen.faults)
            drawn[store] = named if set(named) <= set(may_be) else []
        else:
            drawn[store] = [name for name in may_be if chosen.only in name]
    return drawn


def names_of(faults: str) -> list[str]:
    """The faults that the command line names."""
    return [name.strip() for name in faults.split(" + ")]


async def run(chosen: argparse.Namespace, report: Report) -> None:
    """Round after round, until time is over."""
    ends = time.monotonic() + 60 * chosen.minutes
    draws = {
        store: draw(names, random.Random(f"{chosen.seed} {store}"))
        for store, names in drawn_from(chosen).items()
        if names
    }
    seed = chosen.seed
    while True:
        for store in draws:
            with World(store, topology=chosen.topology) as world:
                for _ in range(ROUNDS_A_WORLD):
                    if time.monotonic() > ends or (
                        chosen.rounds and seed - chosen.seed >= chosen.rounds
                    ):
                        return
                    names = names_of(chosen.faults) if chosen.faults else next(draws[store])
                    await one(world, names, seed, report, chosen)
                    seed += 1


async def one(
    world: World, names: list[str], seed: int, report: Report, chosen: argparse.Namespace
) -> None:
    """One round, and what came out of it, in a line."""
    started, store = time.monotonic(), world.store.kind
    history = await run_round(
        world,
        names,
        seed,
        people=chosen.people,
        rooms=chosen.rooms,
        hostile=chosen.hostile,
    )
    violations = validate(history)
    kept = report.add(history, violations, world.logs())
    where = ", ".join(map(str, history.struck))
    took = time.monotonic() - started
    print(f"{seed}  {store:8} {history.name} at {where}: {took:.1f} s", flush=True)
    if history.hostile is not None:
        print(f"    {summary(history)}", flush=True)
    for each in violations[:10]:
        print(f"    VIOLATION {each}", flush=True)
    if violations:
        again = f'--seed {seed} --rounds 1 --store {store} --faults "{history.name}"'
        again += " --hostile" if chosen.hostile else ""
        again += f" --topology {chosen.topology}" if chosen.topology != SPLIT else ""
        print(f"    again: python -m tests.robustness {again}\n    kept: {kept}", flush=True)


def main() -> None:
    """Runs until the time is over, or it is interrupted."""
    chosen = arguments()
    reason = javascript.why_not()
    if not reason and javascript.is_out_of_date():
        sys.exit("the JavaScript SDK is older than its sources: make js")
    why_not = loss.enter()
    about = f"seed {chosen.seed}, topology {chosen.topology}, {chosen.people} people, "
    about += f"{chosen.rooms} rooms, "
    about += f"{os.cpu_count()} cores; packet loss: " + (
        f"only stalls of the proxy ({why_not}): {loss.HOW_TO}" if why_not else "real, by iptables"
    )
    about += "; JavaScript clients: " + (
        f"none ({reason})" if reason else f"one in {JAVASCRIPT_EACH}"
    )
    print(about, flush=True)
    report = Report(chosen.out)
    try:
        asyncio.run(run(chosen, report))
    except KeyboardInterrupt:
        pass
    finally:
        if report.rows:
            rows = [row.cells() for _, row in sorted(report.rows.items())]
            print(plain([HEAD, *rows]))
            print(plain([KINDS_HEAD, *(kind.cells() for kind in report.kinds.values())]))
            print(plain([ROOMS_HEAD, *(kind.cells() for kind in report.listeners.values())]))
            print(report.totals())
        report.write(about)
    sys.exit(1 if report.violations else 0)


if __name__ == "__main__":
    main()
