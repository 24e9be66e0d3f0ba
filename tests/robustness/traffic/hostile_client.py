"""A hostile client, and a stranger without any rights, as a process of its own.

It reaches what a client reaches: gateways, and `Dispatch` and the like at dispatchers. The stranger
tries all ports. Numbers that it lies about are large, but not so large that a scheduler without
limits would take the machine down with it; the fuzzer goes to the extremes.
"""

import asyncio
import contextlib
import os
import random
import time
from functools import partial
from typing import Any

import grpc

from lingua_scheduler.v1 import (
    common_pb2,
    dispatcher_pb2,
    dispatcher_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)
from tests.robustness.fuzz.limits import beyond_on_stream
from tests.robustness.fuzz.peers import METHODS, Method, call
from tests.robustness.traffic import BAD
from tests.robustness.traffic.hostile_acts import REFUSED, Act, Records, run_acts, run_program
from tests.security.stranger import Stranger
from tests.security.test_strangers import ATTACKS
from tests.support.audio import FORMAT
from tests.support.listening_node import audio_of
from tests.support.raw_client import RawClient, new_session, raw_client

TENANT = "hostile"
# Results that were never there. So many outcomes are seconds of work and hundreds of megabytes.
NEVER_SEEN = (400_000, 1_000_000)
LANGUAGES = ("x" * 8, "x" * 2000, "\0", "en\nes", "*", "en:es", "EN-" + "y" * 60, "")
# Of one act.
SESSIONS = 20
CALLS = 400
CALLS_AT_ONCE = 100
BEYOND = 6
ANSWER_S = 3.0
METHODS_OF_CLIENTS = (
    "Converse",
    "GetSession",
    "ListSessions",
    "CreateRoom",
    "CreateJoinToken",
    "GetRoom",
    "ListRooms",
    "ListMembers",
    "CloseRoom",
    "Listen",
    "Dispatch",
    "GetJob",
    "ListJobs",
    "CancelJob",
)


class HostileClient:
    """Its acts.

    Args:
        gateways, dispatchers, pools: addresses of services.
    """

    def __init__(
        self, gateways: list[str], dispatchers: list[str], pools: list[str], rng: random.Random
    ) -> None:
        self._gateways = gateways
        self._dispatchers = dispatchers
        self._all = gateways + dispatchers + pools
        self._rng = rng
        self._beyond: dict[str, list[tuple[str, Any]]] = {}

    def acts(self) -> dict[str, Act]:
        """All of them by name."""
        named: dict[str, Act] = {
            "resume beyond what was said": self.resume_beyond,
            "chunks far ahead": self.chunks_far_ahead,
            "jobs that nodes call bad": self.bad_jobs,
            "jobs in sessions of others": self.jobs_of_others,
            "odd languages": self.odd_languages,
            "sessions opened and dropped": self.drop_sessions,
            "a client that does not read": self.do_not_read,
            "messages beyond limits": self.go_beyond,
        }
        for name in ATTACKS:
            named[f"stranger: {name}"] = partial(self.stranger, name)
        return named

    # ---- sessions ----

    async def resume_beyond(self) -> str:
        """Says it has seen results that never were, speaks, and says it has seen none."""
        gateway, claimed = self._gateway(), self._rng.choice(NEVER_SEEN)
        async with raw_client(gateway) as client:
            opened = await client.open(self._session())
            await self._speak(client)
        next_seq, told = client.seq, []
        for seen in (claimed, 0):
            async with raw_client(gateway) as liar:
                try:
                    await liar.resume(opened, results_seen=seen, next_seq=next_seq)
                    await self._speak(liar)
                    next_seq = liar.seq
                    told.append("resumed")
                except REFUSED:
                    told.append("refused")
        return ", ".join(told)

    async def chunks_far_ahead(self) -> None:
        """Large chunks of a time to come, and results that were never delivered."""
        async with raw_client(self._gateway()) as client:
            await client.open(self._session())
            for seq in (2**53, 2**40, 1000, 1):
                for _ in range(10):
                    await client.say(
                        audio=session_pb2.AudioChunk(seq=seq, data=bytes(65_536)),
                        results_seen=self._rng.choice(NEVER_SEEN),
                    )
            await client.event("error", within=ANSWER_S)

    async def bad_jobs(self) -> str:
        """Jobs that every honest node refuses, of many sessions."""
        missing = 0
        for _ in range(3):
            async with raw_client(self._gateway()) as client:
                await client.open(self._session({BAD: "1"}))
                await client.send(audio_of(2), final=True)
                with contextlib.suppress(AssertionError):
                    await client.missing(0, within=ANSWER_S)
                    missing += 1
        return f"{missing} missing"

    async def odd_languages(self) -> str:
        """Sessions in languages that nobody speaks, and in texts that are none."""
        opened = 0
        for _ in range(SESSIONS):
            odd = self._rng.choice(LANGUAGES)
            made = "".join(self._rng.choices("abcdefghijklmnopqrstuvwxyz", k=3))
            async with raw_client(self._gateway()) as client:
                with contextlib.suppress(*REFUSED):
                    new = new_session(self._rng.choice((odd, made)), "es", tenant=TENANT)
                    await client.open(new)
                    await client.send(audio_of(2), final=True)
                    opened += 1
        return f"{opened} opened"

    async def drop_sessions(self) -> None:
        """Streams that are cancelled as soon as they have begun."""
        async with grpc.aio.insecure_channel(self._gateway()) as channel:
            stub: Any = session_pb2_grpc.SessionGatewayStub(channel)
            calls = [stub.Converse() for _ in range(SESSIONS)]
            message = session_pb2.ClientMessage(open=session_pb2.Open(new=self._session()))
            for each in calls:
                with contextlib.suppress(*REFUSED):
                    await each.write(message)
            for each in calls:
                each.cancel()

    async def do_not_read(self) -> None:
        """Speaks, and reads nothing of what it is told."""
        async with raw_client(self._gateway()) as client:
            new = self._session()
            new.options.partial_interval_ms = 1
            await client.open(new)
            client.stop_reading()
            await client.send(audio_of(2), final=True)
            for _ in range(500):
                await client.say(results_seen=1_000_000)

    # ---- single calls ----

    async def jobs_of_others(self) -> str:
        """Takes the ids of honest sessions, and tries to bind them to a node of its own."""
        gateway, dispatcher = self._gateway(), self._rng.choice(self._dispatchers)
        codes = []
        async with (
            grpc.aio.insecure_channel(gateway) as one,
            grpc.aio.insecure_channel(dispatcher) as two,
        ):
            gateways: Any = session_pb2_grpc.SessionGatewayStub(one)
            stub: Any = dispatcher_pb2_grpc.DispatcherStub(two)
            request = session_pb2.ListSessionsRequest()
            listed = await gateways.ListSessions(request, timeout=ANSWER_S)
            found = [each.session_id for each in listed.sessions]
            for session_id in self._rng.sample(found, min(5, len(found))):
                for tenant in (TENANT, ""):
                    job = dispatcher_pb2.JobSpec(
                        tenant=tenant,
                        session_id=session_id,
                        utterance_index=self._rng.randrange(1000),
                        pair=common_pb2.LanguagePair(src="en", tgt="es"),
                        audio=audio_of(2),
                        audio_format=FORMAT,
                        reason=common_pb2.FINALIZE_REASON_MAX_DURATION,
                        preferred_node_id="hostile-0",
                        deadline_ms=1000,
                    )
                    sent = stub.Dispatch(dispatcher_pb2.DispatchRequest(job=job), timeout=ANSWER_S)
                    codes.append((await sent.code()).name)
        return ", ".join(sorted(set(codes)))

    async def go_beyond(self) -> str:
        """Messages of which one field is just beyond its limit, as the fuzzer makes them."""
        method = self._rng.choice([each for each in METHODS if str(each) in METHODS_OF_CLIENTS])
        address = self._rng.choice(
            self._gateways if method.service == "gateway" else self._dispatchers
        )
        codes = set()
        async with grpc.aio.insecure_channel(address) as channel:
            for message in self._some_beyond(method):
                codes.add((await call(channel, method, [message])).name)
        return f"{method}: {', '.join(sorted(codes))}"

    # ---- without any rights ----

    async def stranger(self, name: str) -> str:
        """Speaks HTTP/2 by hand: unfinished messages, calls without one, watches, resets."""
        address, obeys = self._rng.choice(self._all), self._rng.random() < 0.5
        return await asyncio.to_thread(self._attack, address, name, obeys)

    def _attack(self, address: str, name: str, obeys: bool) -> str:
        frames, _ = ATTACKS[name]
        sent = 0
        with Stranger(address, obeys=obeys) as stranger:
            for _ in range(CALLS // CALLS_AT_ONCE):
                streams = stranger.streams(CALLS_AT_ONCE)
                if not stranger.send(b"".join(frames(each) for each in streams)):
                    break
                sent += CALLS_AT_ONCE
            time.sleep(0.3)
            return f"{address}: {sent} sent, {len(stranger.ended)} ended"

    # ---- small things ----

    def _gateway(self) -> str:
        return self._rng.choice(self._gateways)

    def _session(self, features: dict[str, str] | None = None) -> session_pb2.NewSession:
        """One of the languages that honest people speak."""
        options = session_pb2.SessionOptions(features=features or {})
        return new_session("en", "es", tenant=TENANT, options=options)

    async def _speak(self, client: RawClient) -> None:
        await client.send(audio_of(2), final=True)
        await client.event("utterance", within=ANSWER_S)

    def _some_beyond(self, method: Method) -> list[bytes]:
        made = self._beyond.setdefault(method.path, list(beyond_on_stream(method.takes)))
        some = self._rng.sample(made, min(BEYOND, len(made)))
        return [message.SerializeToString() for _, message in some]


async def _run(rng: random.Random, records: Records) -> None:
    given = os.environ
    client = HostileClient(
        given["HOSTILE_GATEWAYS"].split(","),
        given["HOSTILE_DISPATCHERS"].split(","),
        given["HOSTILE_POOLS"].split(","),
        rng,
    )
    await run_acts(client.acts(), rng, records)


def main() -> None:
    """Runs until it is told to end."""
    run_program(_run)
