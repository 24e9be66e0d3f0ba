"""The cost of tracing: the whole path with it off, for one utterance in ten, and for all.

    make bench-traces                           a table, and whether the targets are met
    make bench-traces ARGS="--json"             one JSON object
    make bench-traces ARGS="--before TREE"      also compares with an earlier commit or a folder

All variants run side by side and are loaded in short turns, so that other work of the machine
affects all alike. The result is the CPU per job of gateway, dispatcher and pool service over all
turns, relative to `off`, with a 90 % bootstrap interval over the rounds.
"""

import argparse
import json
import os
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from machine import machine
from path import ENVIRONMENT, Child, Parts, path

ROOT = Path(__file__).parents[1]
SESSIONS, NODES = 24, 4
WARM_S, TURN_S, ROUNDS = 2.0, 0.5, 50
SERVICES = ("gateway", "dispatcher", "pool")
# Ratio of the CPU per job to that with tracing off.
MOST_AT_A_TENTH = 1.05


def sampled(endpoint: str, share: str) -> dict[str, str]:
    """The environment variables of a deployment that traces this share of utterances."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": share,
    }


@contextmanager
def environ(**variables: str) -> Iterator[None]:
    """Set the environment of processes that are started in this block."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """The files of a commit, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="lingua-before-") as folder:
        archive = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder)


def services_ms(turn: dict[str, Any]) -> float:
    """CPU of the processes that trace, in one turn."""
    return sum(float(turn["cpu_ms"][name]) for name in SERVICES) * int(turn["jobs"])


def in_turns(variants: dict[str, Parts], rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Run every variant once per round, in a random order."""
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in variants}
    names = list(variants)
    for name in names:
        variants[name].measure("saturate", WARM_S)
    chance = random.Random(0)
    for _ in range(rounds):
        chance.shuffle(names)
        for name in names:
            turn = variants[name].measure("saturate", TURN_S)
            del turn["rows"]
            turns[name].append(turn)
    return turns


def ratio(ours: list[dict[str, Any]], off: list[dict[str, Any]], rounds: Sequence[int]) -> float:
    """CPU per job relative to `off`, over these rounds."""
    each, other = (
        sum(services_ms(turns[at]) for at in rounds) / sum(turns[at]["jobs"] for at in rounds)
        for turns in (ours, off)
    )
    return each / other


def beside_off(turns: dict[str, list[dict[str, Any]]], name: str) -> dict[str, Any]:
    """A variant relative to `off`."""
    ours, off, chance = turns[name], turns["off"], random.Random(0)
    rounds = range(len(off))
    drawn = sorted(ratio(ours, off, chance.choices(rounds, k=len(rounds))) for _ in range(1000))
    jobs, took_s = (sum(turn[what] for turn in ours) for what in ("jobs", "took_s"))
    return {
        "jobs": jobs,
        "jobs_per_s": round(jobs / took_s, 1),
        "cpu_ms_per_job": round(sum(map(services_ms, ours)) / jobs, 3),
        "cpu": round(ratio(ours, off, rounds), 3),
        "from": round(drawn[50], 3),
        "to": round(drawn[950], 3),
    }


def run(rounds: int, before: str) -> dict[str, Any]:
    """All measurements as one object."""
    # This many processes delay each other, which is not a failure here.
    ENVIRONMENT["LINGUA_REDIS_TIMEOUT_MS"] = "4000"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with ExitStack() as stack:
        collector = Child("trace_collector.py", str(port))
        stack.callback(collector.end)
        variants: dict[str, Parts] = {}

        def start(name: str, **variables: str) -> None:
            with environ(**variables):
                variants[name] = stack.enter_context(path(SESSIONS, NODES))

        endpoint = f"http://127.0.0.1:{port}"
        start("off")
        if before:
            folder = Path(before)
            old = folder if folder.is_dir() else stack.enter_context(tree_of(before))
            start("before", PYTHONPATH=str(old / "src"))
        start("a tenth", **sampled(endpoint, "0.1"))
        start("all", **sampled(endpoint, "1"))
        # The same as the first: their difference is the noise of the machine.
        start("off again")
        turns = in_turns(variants, rounds)
        spans = collector.ask("count")["spans"]
    return {
        "rounds": rounds,
        "spans": spans,
        "beside_off": {name: beside_off(turns, name) for name in turns},
    }


def table(result: dict[str, Any]) -> str:
    """The table for terminals."""
    lines = ["           jobs/s   CPU ms a job   vs. off"]
    for name, told in result["beside_off"].items():
        lines.append(
            f"{name:<9} {told['jobs_per_s']:>7.0f} {told['cpu_ms_per_job']:>14.3f}   "
            f"{told['cpu']:.3f} ({told['from']:.3f} to {told['to']:.3f})"
        )
    lines.append(f"{result['spans']} spans received")
    met = result["beside_off"]["a tenth"]["cpu"] <= MOST_AT_A_TENTH
    lines.append(f"a tenth: target at most {MOST_AT_A_TENTH}: {'met' if met else 'NOT MET'}")
    return "\n".join(lines)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--before", metavar="TREE", default="", help="also run this commit, with tracing off"
    )
    given = parser.parse_args()
    began = time.monotonic()
    result = run(given.rounds, given.before)
    if given.json:
        print(json.dumps({"machine": machine(), "traces": result}, indent=2))
    else:
        print(table(result))
        print(f"{machine()}, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
