"""The long run: upgrades and roll-backs with kill -9 while both releases serve, until time is over.

    python -m tests.upgrade --minutes 10 --seed 1

Deployments take turns: a process for each service, pinned to its peers or free to choose them, and
processes with all services. At the end of each, all processes end at once, and those of the other
release go on from what is in Redis, and back. Ends with 1 if a promise was broken, or if a mix of
releases has not occurred.
"""

import argparse
import asyncio
import itertools
import random
import sys
import time
from collections import Counter

from tests.upgrade.deployment import ALL, SPLIT, Deployment
from tests.upgrade.releases import (
    NoReleaseError,
    Release,
    UnknownReleaseError,
    new_release,
    old_release,
)
from tests.upgrade.rolling import SPLIT_MIXES, Outcome, Rolling

KINDS = ((SPLIT, True), (ALL, False), (SPLIT, False))


async def one(kind: tuple[str, bool], seed: int, old: Release, new: Release) -> Outcome:
    """A deployment from its start to its end: each release twice after the other."""
    topology, pinned = kind
    with Deployment(topology, old, pinned=pinned) as deployment:
        rolling = Rolling(deployment, old, new, people=4, seed=seed, crashes=True, times=3)
        await rolling.begin()
        for release in (new, old):
            await rolling.roll(release)
        for release in (new, old):
            await rolling.change_at_once(release)
        return await rolling.end()


async def run(minutes: float, seed: int, old: Release, new: Release) -> bool:
    """Deployment after deployment; returns whether all went well."""
    ends = time.monotonic() + 60 * minutes
    mixes: Counter[str] = Counter()
    good = True
    for number, kind in enumerate(itertools.cycle(KINDS)):
        if number and time.monotonic() > ends:
            break
        outcome = await one(kind, seed + number, old, new)
        topology = f"{kind[0]}, {'pinned' if kind[1] else 'free'}"
        print(f"--- {topology}, seed {seed + number}\n{outcome.told()}", flush=True)
        mixes += outcome.mixes
        good = good and not outcome.violations
    print("--- all together")
    for mix, count in sorted(mixes.items()):
        print(f"{count:6}    {mix}")
    if absent := [mix for mix in SPLIT_MIXES if not mixes[mix]]:
        print(f"these mixes did not occur: {', '.join(absent)}")
    return good and not absent


def main() -> None:
    """Runs until the time is over, or it is interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    chosen = parser.parse_args()
    try:
        old, new = old_release(), new_release()
    except (NoReleaseError, UnknownReleaseError) as error:
        sys.exit(f"no release to upgrade from: {error}")
    print(f"from {old.version} to {new.version} and back, seed {chosen.seed}", flush=True)
    sys.exit(0 if asyncio.run(run(chosen.minutes, chosen.seed, old, new)) else 1)


if __name__ == "__main__":
    main()
