"""This scheduler compared with other job queues, in one run, on one machine, with one payload.

    make bench-peers              a table
    make bench-peers ARGS=--json  one JSON object: `path`, `all_in_one`, and one entry per peer

`path` has a process for each service, `all_in_one` one process for all three. Each peer runs a
no-op job of 32 KiB with workers started as its documentation recommends, on its own server: a Redis
of the same kind as ours, on a Unix socket like ours; NATS and Ray bring their own. For each: jobs a
second with 64 in progress; p50 and p99 from submission to result at half of that rate; and CPU,
p50 and p99 at 200 jobs a second (at 0.9 of its saturation if it is slower). CPU is that of all
processes: clients, workers and servers.

All run one after the other, in a random order in each round. Every number is the median over the
rounds (of p50 and p99: of each round's percentile), and `spread` has the lowest and the highest
round. `throughput_ratio` is the rate divided by that of the fastest Python peer, `p99_ratio` the
p99 divided by the lowest p99 of a Python peer: above 1 and below 1, respectively, are better than
all of them. NATS is a server written in Go and therefore not the measure, but its entry has the
ratios too.

A peer that cannot be installed or that fails is skipped: its entry has only `skipped`, the reason.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import path
from machine import machine
from path import NODES, PEERS_RATE, SESSIONS, Parts
from peer_process import NATS, REQUIRES, install, peer
from peer_servers import PeerError
from peers_report import Answer, Round, add_ratios, entry, table

WARM_S, SATURATE_S, STEADY_S = 1.0, 3.0, 3.0
ROUNDS = 5
# Share of its own saturation, for a queue that cannot do 200 jobs a second.
NEARLY_ALL = 0.9
PATH, ALL_IN_ONE = "path", "all_in_one"
OURS = (PATH, ALL_IN_ONE)


class Measurable(Protocol):
    """This scheduler, or a peer."""

    def measure(self, *words: object) -> Answer:
        """Run `saturate SECONDS` or `steady RATE SECONDS`."""


class Scheduler:
    """This scheduler, measured like a peer."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def measure(self, *words: object) -> Answer:
        """What clients saw, and the CPU of all processes, including clients and nodes."""
        answer = self._parts.measure(*words)
        return Answer(
            jobs_per_s=answer["jobs_per_s"],
            cpu_ms=answer["cpu_ms"],
            took_ms=[(heard - sent) / 1e6 for _, sent, heard in answer["rows"]],
        )


@contextmanager
def started(name: str) -> Iterator[Measurable]:
    """Start this scheduler or a peer, and end it on exit."""
    if name in OURS:
        with path.path(SESSIONS, NODES, split=name == PATH) as parts:
            yield Scheduler(parts)
    else:
        with peer(name) as one:
            yield one


def one_round(name: str) -> Round:
    """All measurements of one system in one round."""
    with started(name) as one:
        one.measure("saturate", WARM_S)
        full = one.measure("saturate", SATURATE_S)
        slow_rate = min(PEERS_RATE, NEARLY_ALL * full.jobs_per_s)
        half = one.measure("steady", full.jobs_per_s / 2, STEADY_S)
        slow = one.measure("steady", slow_rate, STEADY_S)
    return Round(full, half, slow, slow_rate)


class Run:
    """Rounds of all systems. A peer that fails is skipped from then on."""

    def __init__(self, peers: list[str]) -> None:
        self.rounds: dict[str, list[Round]] = {name: [] for name in (*OURS, *peers)}
        self.skipped: dict[str, str] = {}
        for name in peers:
            try:
                install(name)
            except PeerError as error:
                self._skip(name, str(error))

    def run(self, rounds: int) -> None:
        """Measure each once per round, in a random order."""
        chance = random.Random(0)
        for number in range(1, rounds + 1):
            order = [name for name in self.rounds if name not in self.skipped]
            chance.shuffle(order)
            for name in order:
                where = f"round {number} of {rounds}"
                try:
                    row = one_round(name)
                except PeerError as error:
                    self._skip(name, f"{where}: {error}")
                    continue
                self.rounds[name].append(row)
                print(
                    f"{where}: {name} {row.full.jobs_per_s:.0f} jobs/s, "
                    f"{row.full.cpu_ms_per_job:.2f} ms of CPU",
                    file=sys.stderr,
                )

    def _skip(self, name: str, why: str) -> None:
        self.skipped[name] = why
        print(f"skipping {name}: {why}", file=sys.stderr)

    def result(self) -> dict[str, dict[str, Any]]:
        """All measurements as one object: ours first, then one entry per peer."""
        measured = [name for name in self.rounds if name not in self.skipped]
        entries = {name: entry(self.rounds[name]) for name in measured}
        peers = [name for name in measured if name not in OURS]
        best = add_ratios(entries, [name for name in peers if name != NATS])
        for name in peers:
            entries[name]["packages"] = list(REQUIRES[name])
        for name in OURS:
            entries[name]["best_peer"] = best
            # Here and not beside them, so that all other entries are peers.
            entries[name]["machine"] = machine()
        return entries | {name: {"skipped": why} for name, why in self.skipped.items()}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--only",
        nargs="*",
        metavar="PEER",
        choices=list(REQUIRES),
        default=list(REQUIRES),
        help="these peers; without a name, none",
    )
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds: expected at least 1")
    began = time.monotonic()
    all_of_them = Run(given.only)
    all_of_them.run(given.rounds)
    result = all_of_them.result()
    if given.json:
        print(json.dumps(result, indent=2))
    else:
        print(table(result))
        print(f"{machine()}, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
