"""The cost of audio on its way in: chunks of 100 ms, ten a second from each speaker.

    make bench-ingest                            a table
    make bench-ingest ARGS=--json                one JSON object
    make bench-ingest ARGS="--against PYTHON"    gateway and clients of another checkout, in turns

Transports: `grpc` sends every chunk in a message of its own; `sdk` is the SDK, whose chunks share
messages in the middle of speech; `websocket` is the web entry, and `echo` beside it a bare aiohttp
server that echoes the same frames.

Measures the CPU of the gateway and of the clients per chunk, the delay of the gateway's event
loop, and the memory of a session, for 100, 300, 500 and 2,000 people who all speak at once. Every
speaker has a connection, as an app has. Utterances end between the windows that are measured, so
chunks are all that the gateway handles in a window; nodes answer at once. Delays are measured in
windows of their own, because the task that measures them would cost up to a fifth of the CPU.

With `--against`, or with several transports, each variant has its own gateway process and its own
clients, all are up at once, and their windows alternate. `PYTHON` is the interpreter of the other
checkout's environment. Results are medians over the windows. `of grpc` is the gateway's CPU per
chunk as a part of that of `grpc` in the same round, so a machine that is busy for a while changes
both.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from ingest_client import TRANSPORTS
from machine import machine
from path import ENVIRONMENT, Child, child, percentiles, rss_kib

from lingua_scheduler.cli.up.local_scheduler import LocalScheduler

SPEAKERS = (100, 300, 500, 2000)
CLIENT_PROCESSES = 2
NODES, SLOTS = 4, 64
ROUNDS = 5
WARM_S, WINDOW_S, DELAYS_S = 2.0, 4.0, 1.0
EVERY_S = 0.1
# Below this share of the chunks that the speakers had to send, the machine is saturated.
KEPT_UP = 0.97
SETTINGS = {
    # Nothing is cut within a window.
    "LINGUA_MAX_DURATION_MS": "600000",
    "LINGUA_MAX_LENGTH_BYTES": "1966080",
    "LINGUA_PAUSE_MS": "600000",
    # With 2,000 speakers the machine may be saturated, and all utterances of a window end at once.
    "LINGUA_RESULT_DEADLINE_MS": "120000",
    "LINGUA_REDIS_TIMEOUT_MS": "4000",
    "LINGUA_KEEPALIVE_TIMEOUT_MS": "60000",
    "LINGUA_GATEWAY_WEB_LISTEN": "127.0.0.1:0",
    # All clients are on this machine.
    "LINGUA_WEB_CONNECTIONS_MAX": "10000",
    "LINGUA_WEB_CONNECTIONS_PER_ADDRESS": "0",
}
# Of each transport: the program that serves it, and which of its addresses it uses.
SERVERS = dict.fromkeys(TRANSPORTS, ("ingest_gateway.py", "address")) | {
    "websocket": ("ingest_gateway.py", "web"),
    "echo": ("ingest_echo.py", "web"),
}
Tree = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """A transport to measure, at the gateway of a checkout."""

    label: str
    transport: str
    python: str


class Ingest:
    """The gateway and the clients of one variant."""

    def __init__(self, variant: Variant, gateway: Child, clients: Sequence[Child]) -> None:
        self.variant = variant
        self._gateway = gateway
        self._clients = clients
        self._windows: list[Tree] = []

    def speak(self, seconds: float) -> Tree:
        """Lets everyone speak for a while; returns what that cost."""
        before = self._cpu_s()
        told = self._ask_clients("speak", seconds)
        after = self._cpu_s()
        chunks = sum(each["chunks"] for each in told)
        gateway_us, clients_us = (
            (b - a) * 1e6 / chunks for a, b in zip(before, after, strict=True)
        )
        return {
            "chunks_per_s": sum(each["chunks"] / each["took_s"] for each in told),
            "gateway_us_per_chunk": gateway_us,
            "clients_us_per_chunk": clients_us,
        }

    def measure(self, seconds: float, delays_s: float) -> None:
        """A window for the CPU, one for the delays, and the end of all utterances after it."""
        window = self.speak(seconds)
        self._gateway.ask("probe")
        self.speak(delays_s)
        delays = percentiles(self._gateway.ask("delays")["delays_ms"])
        window["loop_delay_p50_ms"] = delays["p50_ms"]
        window["loop_delay_p99_ms"] = delays["p99_ms"]
        self._windows.append(window)
        self.finish()

    def finish(self) -> None:
        """Ends all utterances."""
        self._ask_clients("finish")

    def result(self) -> Tree:
        """Medians over the windows."""
        return {
            name: round(median(window[name] for window in self._windows), 2)
            for name in self._windows[0]
        }

    def part_of(self, other: "Ingest") -> float:
        """The gateway's CPU per chunk as a part of that of another variant."""
        cost = "gateway_us_per_chunk"
        rounds = zip(self._windows, other._windows, strict=True)
        parts: list[float] = [own[cost] / its[cost] for own, its in rounds]
        return round(median(parts), 2)

    def _ask_clients(self, *words: object) -> list[Tree]:
        with ThreadPoolExecutor(len(self._clients)) as threads:
            return list(threads.map(lambda one: one.ask(*words), self._clients))

    def _cpu_s(self) -> tuple[float, float]:
        return cpu_s(self._gateway.pid), sum(cpu_s(each.pid) for each in self._clients)


def cpu_s(pid: int) -> float:
    """CPU that a process has used so far, by a clock finer than that of /proc."""
    # What clock_getcpuclockid(3) returns.
    return time.clock_gettime((~pid << 3) | 2)


@contextmanager
def started(
    variant: Variant, environ: dict[str, str], speakers: int, connections: int
) -> Iterator[tuple[Ingest, float]]:
    """A gateway with its clients, and the KiB that one open session takes."""
    with ExitStack() as stack:
        program, wanted = SERVERS[variant.transport]
        gateway = stack.enter_context(child(program, python=variant.python, environ=environ))
        address = gateway.ask("address")[wanted]
        # Memory that any number of sessions needs is not that of a session.
        with client(variant, address, 10, 10):
            pass
        empty_kib = rss_kib(gateway.pid)
        clients = [
            stack.enter_context(
                client(
                    variant,
                    address,
                    speakers // CLIENT_PROCESSES,
                    max(1, connections // CLIENT_PROCESSES),
                )
            )
            for _ in range(CLIENT_PROCESSES)
        ]
        session_kib = (rss_kib(gateway.pid) - empty_kib) / speakers
        yield Ingest(variant, gateway, clients), session_kib


@contextmanager
def client(variant: Variant, address: str, sessions: int, connections: int) -> Iterator[Child]:
    """A process of clients."""
    with child(
        "ingest_client.py",
        address,
        f"--transport={variant.transport}",
        f"--sessions={sessions}",
        f"--connections={connections}",
        python=variant.python,
        # gRPC would log every connection that ends.
        environ={**os.environ, "GRPC_VERBOSITY": "NONE"},
    ) as one:
        yield one


def measure(variants: Sequence[Variant], speakers: int, connections: int, rounds: int) -> Tree:
    """All variants with this number of speakers, in turns."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("LINGUA_")}
    environ |= {**ENVIRONMENT, **SETTINGS}
    with ExitStack() as stack:
        scheduler = stack.enter_context(LocalScheduler(environ=environ))
        dispatcher = scheduler.address("dispatcher")
        stack.enter_context(
            child("path_node.py", dispatcher, f"--count={NODES}", f"--slots={SLOTS}")
        )
        environ |= {
            "LINGUA_REDIS_URL": scheduler.redis_url,
            "LINGUA_DISPATCHER_ADDRESS": dispatcher,
        }
        worlds = [
            stack.enter_context(started(each, environ, speakers, connections)) for each in variants
        ]
        for ingest, _ in worlds:
            ingest.speak(WARM_S)
            ingest.finish()
        for number in range(rounds):
            # In a different order in each round, so that no variant always follows the same one.
            for ingest, _ in worlds if number % 2 else reversed(worlds):
                ingest.measure(WINDOW_S, DELAYS_S)
        asked = speakers / EVERY_S
        results = {}
        for ingest, session_kib in worlds:
            one = ingest.result()
            one["asked_chunks_per_s"] = asked
            one["saturated"] = one["chunks_per_s"] < KEPT_UP * asked
            one["session_kib"] = round(session_kib, 1)
            for other, _ in worlds:
                same_checkout = other.variant.python == ingest.variant.python
                if same_checkout and other.variant.transport == "grpc":
                    one["of_grpc"] = ingest.part_of(other)
            results[ingest.variant.label] = one
        return results


def run(
    variants: Sequence[Variant],
    *,
    speakers: Sequence[int] = SPEAKERS,
    connections: int | None = None,
    rounds: int = ROUNDS,
) -> Tree:
    """All measurements as one object: by number of speakers, then by variant."""
    result: Tree = {}
    for count in speakers:
        result[str(count)] = measure(variants, count, connections or count, rounds)
        # A later part may fail on a machine that is too small for it.
        print(table({str(count): result[str(count)]}), file=sys.stderr)
    return result


def table(result: Tree) -> str:
    """The table for terminals."""
    head = (
        f"{'speakers':>8} {'variant':<12} {'chunks/s':>9} {'gateway us':>10} {'of grpc':>7} "
        f"{'clients us':>10} {'delay p50':>9} {'p99 ms':>7} {'KiB/session':>11}"
    )
    lines = [head]
    for speakers, variants in result.items():
        for label, one in variants.items():
            lines.append(
                f"{speakers:>8} {label:<12} {one['chunks_per_s']:>9.0f} "
                f"{one['gateway_us_per_chunk']:>10.1f} {one.get('of_grpc', ''):>7} "
                f"{one['clients_us_per_chunk']:>10.1f} "
                f"{one['loop_delay_p50_ms']:>9.2f} {one['loop_delay_p99_ms']:>7.2f} "
                f"{one['session_kib']:>11.1f}" + ("  saturated" if one["saturated"] else "")
            )
    return "\n".join(lines)


def variants_of(transports: Sequence[str], against: str | None) -> list[Variant]:
    """What to measure."""
    found = [Variant(each, each, sys.executable) for each in transports]
    if against is not None:
        found += [Variant(f"{each} against", each, against) for each in transports]
    return found


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--transport",
        default=",".join(TRANSPORTS),
        help="one or more (default: %(default)s)",
    )
    parser.add_argument("--against", metavar="PYTHON", help="interpreter of another checkout")
    parser.add_argument(
        "--speakers", default=",".join(map(str, SPEAKERS)), help="numbers of speakers"
    )
    parser.add_argument(
        "--connections", type=int, help="that all speakers share; default: one each"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="windows of each variant")
    given = parser.parse_args()
    began = time.monotonic()
    result = run(
        variants_of(given.transport.split(","), given.against),
        speakers=[int(count) for count in given.speakers.split(",")],
        connections=given.connections,
        rounds=given.rounds,
    )
    if given.json:
        print(json.dumps({"machine": machine(), "ingest": result}, indent=2))
    else:
        print(table(result))
        print(f"{machine()}, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
