"""The cost of a listener in a room: one speaks, 10, 100 and 1,000 listen in five languages.

    make bench-rooms                          a table
    make bench-rooms ARGS=--json              one JSON object
    make bench-rooms ARGS="--listeners 1000 --transport grpc"

Two gateways, each a process, have half of the listeners each; the speaker is at the first. Redis,
dispatchers, pool services, nodes, the speaker and two processes of listeners are the rest. Nodes
answer at once. An utterance of 32 KiB (a second of audio) is said every half second.

Measured for WebSockets and for gRPC, with captions only and with speech (32,000 bytes for each
utterance and language):

- the CPU of both gateways per listener and utterance, beyond that of the same speech in a room
  without listeners; and that of listeners in silence, who only get signs of life;
- the time from the node's answer until the last listener of the language has it, on one clock;
- Redis commands, and messages of its Pub/Sub, per utterance and language;
- the memory of a gateway per listener.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

import grpc
import redis
from ingest import cpu_s
from machine import machine
from path import ENVIRONMENT, GRPC_ENVIRONMENT, Child, child, percentiles, rss_kib
from rooms_client import LANGUAGES

from lingua_scheduler.cli.up.local_scheduler import LocalScheduler
from lingua_scheduler.v1 import rooms_pb2, session_pb2_grpc

LISTENERS = (10, 100, 1000)
TRANSPORTS = ("websocket", "grpc")
GATEWAYS = 2
PROCESSES = 2
NODES, SLOTS = 4, 64
EVERY_S = 0.5
WARM, UTTERANCES = 6, 40
SILENCE_S = 5.0
# How long the last result may take to reach all listeners.
HEARD_S = 30.0
SETTINGS = {
    "LINGUA_GATEWAY_WEB_LISTEN": "127.0.0.1:0",
    # All clients are on this machine.
    "LINGUA_WEB_CONNECTIONS_MAX": "10000",
    "LINGUA_WEB_CONNECTIONS_PER_ADDRESS": "0",
    "LINGUA_KEEPALIVE_TIMEOUT_MS": "60000",
}
TARGET_US, TARGET_MS = 60.0, 100.0
Tree = dict[str, Any]


class Bench:
    """The scheduler, in which one room after the other is measured."""

    def __init__(self, scheduler: LocalScheduler) -> None:
        self._scheduler = scheduler
        gateways = [each for each in scheduler.services if each.service == "gateway"]
        self._pids = [each.pid for each in gateways]
        self._addresses = {
            "grpc": ",".join(each.address for each in gateways),
            "websocket": ",".join(each.web for each in gateways),
        }
        self._first = gateways[0].address
        self._redis = redis.Redis.from_url(scheduler.redis_url)
        self._stub: Any = session_pb2_grpc.SessionGatewayStub(grpc.insecure_channel(self._first))

    def measure(self, transport: str, *, listeners: int, speech: bool) -> Tree:
        """One room with so many listeners."""
        made = self._stub.CreateRoom(rooms_pb2.CreateRoomRequest())
        room_id, token = made.room.room_id, made.host_token
        environ = {**os.environ, **GRPC_ENVIRONMENT}
        with ExitStack() as stack:
            dispatchers = self._scheduler.addresses("dispatcher")
            sizes = (f"--count={NODES}", f"--slots={SLOTS}")
            nodes = stack.enter_context(
                child("rooms_node.py", dispatchers, *sizes, environ=environ)
            )
            before_kib = sum(map(rss_kib, self._pids))
            crowd = [
                stack.enter_context(each)
                for each in self._crowd(transport, room_id, token, listeners, speech)
            ]
            speaker = stack.enter_context(
                child("rooms_client.py", self._first, room_id, token, environ=environ)
            )
            told = self._windows(speaker, crowd, nodes)
            grown_kib = sum(map(rss_kib, self._pids)) - before_kib
            if listeners:
                told["kib_per_listener"] = round(grown_kib / listeners, 1)
            heard = _all_heard(crowd, listeners)
            answered = _answered(nodes.end())
        self._stub.CloseRoom(rooms_pb2.CloseRoomRequest(room_id=room_id, host_token=token))
        if listeners:
            told |= _delays(answered, heard, listeners)
        return told

    def _crowd(
        self, transport: str, room_id: str, token: str, listeners: int, speech: bool
    ) -> Iterator[Any]:
        share = listeners // PROCESSES
        for at in range(PROCESSES if share else 0):
            yield child(
                "rooms_listeners.py",
                self._addresses[transport],
                f"--transport={transport}",
                f"--room={room_id}",
                f"--token={token}",
                f"--languages={','.join(LANGUAGES)}",
                f"--count={share}",
                f"--first={at * share}",
                *(["--speech"] if speech else []),
            )

    def _windows(self, speaker: Child, crowd: Sequence[Child], nodes: Child) -> Tree:
        """A warm-up, silence, and speech; returns what they cost."""
        speaker.ask("say", WARM, EVERY_S)
        before = sum(map(cpu_s, self._pids))
        began = time.monotonic()
        time.sleep(SILENCE_S)
        silent = (sum(map(cpu_s, self._pids)) - before) / (time.monotonic() - began)
        pids = {
            "gateways": self._pids,
            "listeners": [each.pid for each in crowd],
            "redis": [self._scheduler.redis_pid],
            "nodes": [nodes.pid],
            "speaker": [speaker.pid],
        }
        commands = self._commands()
        used = {name: sum(map(cpu_s, some)) for name, some in pids.items()}
        said = speaker.ask("say", UTTERANCES, EVERY_S)
        cpu = {
            name: (sum(map(cpu_s, some)) - used[name]) / UTTERANCES for name, some in pids.items()
        }
        after = self._commands()
        jobs = sum(map(len, said["delivered"]))
        spent = {name: count - commands.get(name, 0) for name, count in after.items()}
        return {
            "took_s": round(said["took_s"], 1),
            "results": jobs,
            "cpu_ms_per_utterance": {name: 1000 * value for name, value in cpu.items()},
            "silence_cpu_ms_per_s": 1000 * silent,
            "redis": {name: count / max(1, jobs) for name, count in spent.items() if count},
        }

    def _commands(self) -> dict[str, int]:
        """How often each command was called, also by scripts."""
        stats: Any = self._redis.info("commandstats")
        return {name.removeprefix("cmdstat_"): each["calls"] for name, each in stats.items()}


def _all_heard(crowd: Sequence[Child], listeners: int) -> list[Tree]:
    """What listeners heard, when all of them have heard all: the speaker knows before them."""
    deadline = time.monotonic() + HEARD_S
    expected = listeners * (WARM + UTTERANCES)
    while True:
        heard = [each.ask("heard") for each in crowd]
        came = sum(sum(lane["count"]) for each in heard for lane in each.values())
        if came == expected:
            return heard
        if time.monotonic() > deadline:
            raise RuntimeError(f"{came} of {expected} results have come")
        time.sleep(0.1)


def _answered(rows: str) -> dict[str, list[int]]:
    """When nodes answered, by language and utterance."""
    found: dict[str, list[int]] = {language: [] for language in LANGUAGES}
    for row in filter(None, rows.splitlines()):
        which, _, answered = row.split()
        found[which.rpartition(":")[2]].append(int(answered))
    return {language: sorted(times) for language, times in found.items()}


def _delays(answered: dict[str, list[int]], heard: Sequence[Tree], listeners: int) -> Tree:
    """From the node's answer to the first and to the last listener, without the warm-up."""
    first, last = [], []
    for language, times in answered.items():
        lanes = [each[language] for each in heard if each[language]["count"]]
        for at in range(WARM, WARM + UTTERANCES):
            got = sum(lane["count"][at] for lane in lanes)
            assert got == listeners // len(LANGUAGES), (language, at, got)
            first.append((min(lane["first"][at] for lane in lanes) - times[at]) / 1e6)
            last.append((max(lane["last"][at] for lane in lanes) - times[at]) / 1e6)
    return {"first_ms": percentiles(first), "last_ms": percentiles(last)}


@contextmanager
def bench() -> Iterator[Bench]:
    """A scheduler with two instances of each service."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("LINGUA_")}
    environ |= {**ENVIRONMENT, **SETTINGS}
    with LocalScheduler(environ=environ, instances=GATEWAYS, split=True) as scheduler:
        yield Bench(scheduler)


def run(
    transports: Sequence[str] = TRANSPORTS,
    listeners: Sequence[int] = LISTENERS,
    kinds: Sequence[str] = ("captions", "speech"),
    rounds: int = 1,
) -> Tree:
    """All measurements: by transport, then by what is heard, then by number of listeners."""
    result: Tree = {}
    with bench() as one:
        nobody = [one.measure("grpc", listeners=0, speech=False) for _ in range(max(2, rounds))]
        alone = median(each["cpu_ms_per_utterance"]["gateways"] for each in nobody)
        result["nobody"] = {"gateways_ms_per_utterance": round(alone, 2)}
        for transport in transports:
            result[transport] = {}
            for kind in kinds:
                result[transport][kind] = {}
                for count in listeners:
                    speech = kind == "speech"
                    runs = [
                        one.measure(transport, listeners=count, speech=speech)
                        for _ in range(rounds)
                    ]
                    told = result[transport][kind][str(count)] = _summary(runs, count, alone)
                    print(_line(transport, kind, count, told), file=sys.stderr)
    return result


def _summary(runs: Sequence[Tree], listeners: int, alone: float) -> Tree:
    """The median of some runs, by the cost of a listener."""
    cpu = "cpu_ms_per_utterance"
    own = [1000 * (each[cpu]["gateways"] - alone) / listeners for each in runs]
    one = runs[own.index(sorted(own)[len(own) // 2])]
    redis_commands = {name: round(count, 2) for name, count in sorted(one["redis"].items())}
    return {
        "us_per_listener_and_utterance": round(median(own), 1),
        "first_ms": one["first_ms"],
        "last_ms": one["last_ms"],
        "kib_per_listener": one["kib_per_listener"],
        "silence_us_per_listener_and_s": round(1000 * one["silence_cpu_ms_per_s"] / listeners, 1),
        "listeners_us_per_listener_and_utterance": round(
            1000 * one[cpu]["listeners"] / listeners, 1
        ),
        "redis_ms_per_utterance": round(one[cpu]["redis"], 2),
        "gateways_ms_per_utterance": round(one[cpu]["gateways"], 2),
        "published_per_result": redis_commands.get("publish", 0.0),
        "redis_commands_per_result": round(sum(one["redis"].values()), 1),
        "redis_commands": redis_commands,
    }


HEAD = (
    f"{'listen by':<10} {'to':<9} {'listeners':>9} {'us/listener':>11} {'client us':>9} "
    f"{'silence us/s':>12} {'last p50':>9} {'p99 ms':>8} {'KiB':>6} {'Redis':>6}"
)


def _line(transport: str, kind: str, count: int | str, told: Tree) -> str:
    return (
        f"{transport:<10} {kind:<9} {count:>9} {told['us_per_listener_and_utterance']:>11.1f} "
        f"{told['listeners_us_per_listener_and_utterance']:>9.1f} "
        f"{told['silence_us_per_listener_and_s']:>12.1f} "
        f"{told['last_ms']['p50_ms']:>9.2f} {told['last_ms']['p99_ms']:>8.2f} "
        f"{told['kib_per_listener']:>6.1f} {told['redis_commands_per_result']:>6.1f}"
    )


def table(result: Tree) -> str:
    """The table for terminals."""
    lines = [HEAD]
    for transport, kinds in result.items():
        if transport != "nobody":
            for kind, counts in kinds.items():
                lines += [_line(transport, kind, count, told) for count, told in counts.items()]
    alone = result["nobody"]["gateways_ms_per_utterance"]
    lines.append(f"without listeners: {alone:.2f} ms of both gateways per utterance")
    return "\n".join(lines)


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--transport", default=",".join(TRANSPORTS), help="(default: %(default)s)")
    parser.add_argument("--kinds", default="captions,speech", help="(default: %(default)s)")
    parser.add_argument("--listeners", default=",".join(map(str, LISTENERS)))
    parser.add_argument("--rounds", type=int, default=1, help="of each; medians are shown")
    given = parser.parse_args()
    began = time.monotonic()
    result = run(
        given.transport.split(","),
        [int(count) for count in given.listeners.split(",")],
        given.kinds.split(","),
        given.rounds,
    )
    if given.json:
        print(json.dumps({"machine": machine(), "rooms": result}, indent=2))
    else:
        print(table(result))
        print(f"{machine()}, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
