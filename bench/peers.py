"""The path compared with other task queues, in one run, on one machine, with one payload.

    make bench-peers              a table
    make bench-peers ARGS=--json  one JSON object: `path` and one entry per peer

Each peer runs a no-op job of 32 KiB with a worker started as its documentation recommends, on its
own Redis of the same kind as ours (Ray has its own store). For each: jobs a second with 64 in
progress, CPU milliseconds per job of all its processes, and the time from submission to result at
half of its own saturation and at 200 jobs a second (or at 0.9 of its saturation if it is slower).

All run one after the other, in a random order in each round. Rates and CPU are medians over the
rounds, p50 and p99 are taken over the times of all rounds, and `spread` has the lowest and the
highest round. `throughput_ratio` is the rate divided by that of the fastest peer, `p99_ratio` the
p99 divided by the lowest p99 of a peer: above 1 and below 1, respectively, are better than all.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Protocol

import path
from machine import machine
from path import NODES, PEERS_RATE, SESSIONS, Parts, percentiles
from peer_process import REQUIRES, Answer, PeerError, install, peer

WARM_S, SATURATE_S, STEADY_S = 1.0, 3.0, 3.0
# Share of its own saturation, for a queue that cannot do 200 jobs a second.
NEARLY_ALL = 0.9
PATH = "path"


class Measurable(Protocol):
    """The path, or a peer."""

    def measure(self, *words: object) -> Answer:
        """Run `saturate SECONDS` or `steady RATE SECONDS`."""


class ThePath:
    """The path, measured like a peer."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def measure(self, *words: object) -> Answer:
        """What clients saw, and the CPU of all processes, including clients and nodes."""
        answer = self._parts.measure(*words)
        return Answer(
            jobs_per_s=answer["jobs_per_s"],
            cpu_ms_per_job=sum(answer["cpu_ms"].values()),
            took_ms=[(heard - sent) / 1e6 for _, sent, heard in answer["rows"]],
        )


@contextmanager
def started(name: str) -> Iterator[Measurable]:
    """Start the path or a peer, and end it on exit."""
    if name == PATH:
        with path.path(SESSIONS, NODES) as parts:
            yield ThePath(parts)
    else:
        with peer(name) as one:
            yield one


def one_round(name: str) -> dict[str, Any]:
    """All measurements of the path or a peer in one round."""
    with started(name) as one:
        one.measure("saturate", WARM_S)
        full = one.measure("saturate", SATURATE_S)
        slow_rate = min(PEERS_RATE, NEARLY_ALL * full.jobs_per_s)
        half = one.measure("steady", full.jobs_per_s / 2, STEADY_S)
        slow = one.measure("steady", slow_rate, STEADY_S)
    return {
        "jobs_per_s": full.jobs_per_s,
        "cpu_ms_per_job": full.cpu_ms_per_job,
        "half_ms": half.took_ms,
        "slow_ms": slow.took_ms,
        "slow_jobs_per_s": slow_rate,
    }


def in_rounds(names: list[str], rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Measure each once per round, in a random order."""
    seen: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    order, chance = list(names), random.Random(0)
    for number in range(1, rounds + 1):
        chance.shuffle(order)
        for name in order:
            row = one_round(name)
            seen[name].append(row)
            print(
                f"round {number} of {rounds}: {name} {row['jobs_per_s']:.0f} jobs/s, "
                f"{row['cpu_ms_per_job']:.2f} ms of CPU",
                file=sys.stderr,
            )
    return seen


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One entry of the result, over all rounds."""
    by_round = {
        "jobs_per_s": [row["jobs_per_s"] for row in rows],
        "cpu_ms_per_job": [row["cpu_ms_per_job"] for row in rows],
        "p99_ms": [percentiles(row["half_ms"])["p99_ms"] for row in rows],
        "p99_ms_at_200_jobs_per_s": [percentiles(row["slow_ms"])["p99_ms"] for row in rows],
    }
    return {
        "jobs_per_s": round(median(by_round["jobs_per_s"]), 1),
        "cpu_ms_per_job": round(median(by_round["cpu_ms_per_job"]), 3),
        **percentiles([ms for row in rows for ms in row["half_ms"]]),
        "at_200_jobs_per_s": {
            **percentiles([ms for row in rows for ms in row["slow_ms"]]),
            "jobs_per_s": round(median(row["slow_jobs_per_s"] for row in rows), 1),
        },
        "rounds": len(rows),
        "spread": {
            name: [round(min(values), 3), round(max(values), 3)]
            for name, values in by_round.items()
        },
    }


def beside_best(result: dict[str, Any]) -> None:
    """Add the ratios to the best peer to every entry, and the best peer's name to the path."""
    peers = {name: entry for name, entry in result.items() if name != PATH}
    fastest = max(peers, key=lambda name: float(peers[name]["jobs_per_s"]))
    steadiest = min(peers, key=lambda name: float(peers[name]["p99_ms"]))
    at_200 = min(peers, key=lambda name: float(peers[name]["at_200_jobs_per_s"]["p99_ms"]))
    rate, p99 = peers[fastest]["jobs_per_s"], peers[steadiest]["p99_ms"]
    p99_at_200 = peers[at_200]["at_200_jobs_per_s"]["p99_ms"]
    for entry in result.values():
        entry["throughput_ratio"] = round(entry["jobs_per_s"] / rate, 3)
        entry["p99_ratio"] = round(entry["p99_ms"] / p99, 3)
        slow = entry["at_200_jobs_per_s"]
        slow["p99_ratio"] = round(slow["p99_ms"] / p99_at_200, 3)
    result[PATH]["best_peer"] = {
        "jobs_per_s": fastest,
        "p99_ms": steadiest,
        "p99_ms_at_200_jobs_per_s": at_200,
    }


def run(names: list[str], rounds: int) -> dict[str, Any]:
    """All measurements as one object."""
    for name in names:
        install(name)
    seen = in_rounds([PATH, *names], rounds)
    result = {name: summary(rows) for name, rows in seen.items()}
    beside_best(result)
    # In the path's entry, so that all other top-level entries are peers.
    result[PATH]["machine"] = machine()
    return result


def table(result: dict[str, Any]) -> str:
    """The table for terminals."""
    lines = [
        f"{'':12}{'jobs/s':>8}{'(rounds)':>14}{'ratio':>7}{'CPU ms':>8}"
        f"{'p50':>8}{'p99':>8}{'ratio':>7}{'p99 at 200/s':>14}{'ratio':>7}"
    ]
    for name, row in result.items():
        low, high = row["spread"]["jobs_per_s"]
        slow = row["at_200_jobs_per_s"]
        lines.append(
            f"{name:12}{row['jobs_per_s']:8.0f}{f'{low:.0f}-{high:.0f}':>14}"
            f"{row['throughput_ratio']:7.2f}{row['cpu_ms_per_job']:8.2f}"
            f"{row['p50_ms']:8.1f}{row['p99_ms']:8.1f}{row['p99_ratio']:7.2f}"
            f"{slow['p99_ms']:14.1f}{slow['p99_ratio']:7.2f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only", nargs="+", metavar="PEER", choices=list(REQUIRES), default=list(REQUIRES)
    )
    given = parser.parse_args()
    began = time.monotonic()
    try:
        result = run(given.only, given.rounds)
    except PeerError as error:
        sys.exit(f"bench/peers.py: {error}")
    if given.json:
        print(json.dumps(result, indent=2))
    else:
        print(table(result))
        print(f"{result[PATH]['machine']}, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
