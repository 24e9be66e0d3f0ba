"""A tour of the pool service, live: what `make run` runs.

Starts a Redis and the pool service, and plays everyone around it: four nodes, the two people of a
conversation, and the dispatcher that places their utterances. RUN_SECONDS=30 ends it by itself.
The exit code is 0 only if every allocation went where it had to.
"""

import contextlib
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Collection
from types import FrameType

import click
import grpc

from lingua_scheduler.cli.output import enum_name, terminal_width
from lingua_scheduler.cli.pool_client import connect
from lingua_scheduler.cli.pools_command import render_pools
from lingua_scheduler.cli.up import LocalScheduler, PartFailedError
from lingua_scheduler.cli.up_command import how_to_talk
from lingua_scheduler.services.runtime.errors import SettingsError, from_rpc_error, reason_name
from lingua_scheduler.services.runtime.redis_server import EmbeddedRedisError
from lingua_scheduler.v1 import common_pb2 as common
from lingua_scheduler.v1 import pool_pb2 as pool
from lingua_scheduler.v1 import pool_pb2_grpc

INTRODUCTION = """\
A tour of the pool service. The service, its Redis and every call below are real. The nodes,
their audio and the two speakers are played by this script, because the dispatcher and the
session gateway do not exist yet.
"""

# Long enough to read along.
PAUSE_S = 0.3
BEAT_S = 1.0
CALL_TIMEOUT_S = 5.0

# Of each node: languages that it hears and repairs, that it speaks, and directions it translates.
NODES = {
    "amber": ("zh en", "zh en", "zh:en en:zh"),
    "birch": ("zh en", "zh en", "zh:en en:zh"),
    "cedar": ("en es", "en es", "en:es es:en"),
    "dune": ("zh en es", "", "zh:en en:zh zh:es es:zh en:es es:en"),
}
ZH_EN = {"amber", "birch"}
SLOTS = 2

IS_FINAL = common.FINALIZE_REASON_IS_FINAL
TIMEOUT = common.FINALIZE_REASON_TIMEOUT
MAX_DURATION = common.FINALIZE_REASON_MAX_DURATION

_ENUMS = {**common.DESCRIPTOR.enum_types_by_name, **pool.DESCRIPTOR.enum_types_by_name}
_LINE = "{:<5} {:<7} {:>3}  {:<13} {:<7} {:<22} {:>8}  {}"


class Fleet:
    """The sample nodes: registered, then heard of every second from a thread."""

    def __init__(self, stub: pool_pb2_grpc.PoolServiceStub) -> None:
        self._stub = stub
        self._epochs: dict[str, int] = {}
        # Held while beats are under way, so that a node is not killed in the middle of one.
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeats", daemon=True)
        self.problems: list[str] = []

    def start(self) -> None:
        """Registers all nodes."""
        for node_id, (heard, spoken, translated) in NODES.items():
            request = pool.RegisterNodeRequest(
                node_id=node_id,
                incarnation=secrets.token_hex(8),
                stream_id=secrets.token_hex(8),
                capabilities=common.NodeCapabilities(
                    asr_langs=heard.split(),
                    semantic_langs=heard.split(),
                    tts_langs=spoken.split(),
                    nmt_pairs=[_pair(direction) for direction in translated.split()],
                ),
                max_concurrent_jobs=SLOTS,
                owner_instance="pool-tour",
            )
            response = self._stub.RegisterNode(request, timeout=CALL_TIMEOUT_S)
            self._epochs[node_id] = response.epoch
            speech = f"speaks {spoken}" if spoken else "text only"
            print(f"node {node_id:<6} joins {response.pools} pools: hears {heard}; {speech}")
        self._thread.start()

    def kill(self, node_id: str) -> None:
        """The node dies. Its stream ends with it, and the dispatcher removes it at once."""
        with self._lock:
            request = pool.RemoveNodeRequest(node_id=node_id, epoch=self._epochs.pop(node_id))
            self._stub.RemoveNode(request, timeout=CALL_TIMEOUT_S)

    def end(self) -> None:
        """Takes all nodes back, so that a Redis that was given is left without them."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        # Where the service itself is gone, there is nothing to take back from.
        with contextlib.suppress(grpc.RpcError):
            for node_id in list(self._epochs):
                self.kill(node_id)

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            with self._lock:
                beats = [pool.NodeBeat(node_id=id_, epoch=at) for id_, at in self._epochs.items()]
                try:
                    request = pool.HeartbeatRequest(beats=beats)
                    answer = self._stub.Heartbeat(request, timeout=CALL_TIMEOUT_S)
                except grpc.RpcError as error:
                    self.problems.append(f"a heartbeat failed: {_reason(error)}")
                else:
                    refused = [f"{each.node_id} must register again" for each in answer.problems]
                    self.problems += refused


class Conversation:
    """One session of two people, and what a dispatcher asks of the pool service for it."""

    def __init__(self, stub: pool_pb2_grpc.PoolServiceStub) -> None:
        self._stub = stub
        self._session = f"tour-{secrets.token_hex(4)}"
        self._next_index = 0
        self.placed = 0
        self.problems: list[str] = []

    def utterance(
        self, pair: str, reason: common.FinalizeReason.ValueType, *, speech: bool = True
    ) -> pool.AllocateRequest:
        """What asks for a node for the next utterance."""
        index, self._next_index = self._next_index, self._next_index + 1
        return pool.AllocateRequest(
            job_id=f"{self._session}-{index}",
            attempt=1,
            criteria=pool.NodeCriteria(pair=_pair(pair), require_tts=speech),
            tenant="tour",
            session_id=self._session,
            utterance_index=index,
            reason=reason,
            home_instance="pool-tour",
        )

    def place(
        self,
        who: str,
        request: pool.AllocateRequest,
        note: str,
        *,
        on: Collection[str],
        by: str = "POOL",
        binding: str = "NONE",
    ) -> pool.AllocateResponse:
        """Allocates and commits: the node has the job. Where it went must be what is expected."""
        time.sleep(PAUSE_S)
        began = time.perf_counter()
        response = self._stub.Allocate(request, timeout=CALL_TIMEOUT_S)
        latency_ms = (time.perf_counter() - began) * 1000
        chosen = response.placement
        path = enum_name(_ENUMS["PlacementPath"], chosen.path)
        found = enum_name(_ENUMS["BindingOutcome"], chosen.binding)
        _print_line(who, request, chosen.node_id, path, latency_ms, note)
        self.placed += 1
        self.expect(chosen.node_id in on, f"on {chosen.node_id}, not on {' or '.join(sorted(on))}")
        self.expect(path == by, f"chosen by {path}, not by {by}")
        self.expect(found == binding, f"its binding was {found}, not {binding}")
        self.expect(response.state == common.JOB_STATE_RESERVED, "no slot was reserved")
        commit = pool.CommitRequest(attempt=response.attempt, node_id=chosen.node_id)
        outcome = self._stub.Commit(commit, timeout=CALL_TIMEOUT_S).outcome
        self.expect(outcome == pool.CommitResponse.OUTCOME_COMMITTED, "its slot was lost")
        return response

    def end(
        self,
        placed: pool.AllocateResponse,
        outcome: pool.AttemptOutcome.ValueType = pool.ATTEMPT_OUTCOME_SUCCEEDED,
    ) -> None:
        """The attempt is over."""
        request = pool.CompleteRequest(
            attempt=placed.attempt, node_id=placed.placement.node_id, outcome=outcome
        )
        found = self._stub.Complete(request, timeout=CALL_TIMEOUT_S).outcome
        self.expect(found == pool.CompleteResponse.OUTCOME_COMPLETED, "it was over before")

    def hold(self, request: pool.AllocateRequest, node_id: str) -> None:
        """The node says that it keeps the audio of this utterance for the next one."""
        bind = pool.BindSessionRequest(
            session_id=self._session,
            pair=request.criteria.pair,
            kind=pool.BINDING_KIND_TIMEOUT,
            node_id=node_id,
            utterance_index=request.utterance_index,
        )
        bound = self._stub.BindSession(bind, timeout=CALL_TIMEOUT_S).bound
        self.expect(bound, f"the session was not bound to {node_id}")

    def refused(self, who: str, request: pool.AllocateRequest, note: str, *, why: str) -> None:
        """Asks for what nobody can do."""
        time.sleep(PAUSE_S)
        began = time.perf_counter()
        try:
            node = self._stub.Allocate(request, timeout=CALL_TIMEOUT_S).placement.node_id
            reason = "NOTHING"
        except grpc.RpcError as error:
            node, reason = "-", _reason(error)
        latency_ms = (time.perf_counter() - began) * 1000
        _print_line(who, request, node, reason, latency_ms, note)
        self.expect(reason == why, f"refused for {reason}, not for {why}")

    def expect(self, good: bool, problem: str) -> None:
        """Notes what is not as it should be."""
        if not good:
            self.problems.append(f"utterance {self._next_index - 1}: {problem}")
            print(f"  NOT AS EXPECTED: {problem}")


def conversation(stub: pool_pb2_grpc.PoolServiceStub, fleet: Fleet) -> Conversation:
    """All scenes, one after the other."""
    talk = Conversation(stub)
    head = _LINE.format("WHO", "PAIR", "UTT", "CUT BY", "NODE", "CHOSEN BY", "ALLOCATE", "")
    print(f"\n{head.rstrip()}")
    turns(talk)
    other_languages(talk)
    drained(talk, stub)
    killed(talk, fleet)
    return talk


def turns(talk: Conversation) -> None:
    """Outside a turn any node will do; within one, only the node that has its audio."""
    talk.end(talk.place("Ana", talk.utterance("zh:en", IS_FINAL), "any node", on=ZH_EN))
    talk.end(talk.place("Ben", talk.utterance("en:zh", IS_FINAL), "any node", on=ZH_EN))

    long = talk.place("Ana", talk.utterance("zh:en", MAX_DURATION), "she talks on", on=ZH_EN)
    answer = talk.utterance("en:zh", IS_FINAL)
    talk.end(talk.place("Ben", answer, "not bound by Ana's turn", on=ZH_EN))
    talk.end(long)
    rest = talk.utterance("zh:en", IS_FINAL)
    same = {long.placement.node_id}
    note = "the rest, where the first part is"
    talk.end(talk.place("Ana", rest, note, on=same, by="MAX_DURATION_BINDING", binding="HIT"))

    pause = talk.utterance("zh:en", TIMEOUT)
    cut = talk.place("Ana", pause, "a pause; the node holds the audio", on=ZH_EN)
    talk.hold(pause, cut.placement.node_id)
    talk.end(cut)
    joined = talk.utterance("zh:en", IS_FINAL)
    same = {cut.placement.node_id}
    note = "joins the audio that is held"
    talk.end(talk.place("Ana", joined, note, on=same, by="TIMEOUT_BINDING", binding="HIT"))
    free = talk.utterance("zh:en", IS_FINAL)
    talk.end(talk.place("Ana", free, "the turn is over: any node", on=ZH_EN))


def other_languages(talk: Conversation) -> None:
    """Directions that one node serves, that are text only, or that nobody serves."""
    spanish = talk.utterance("en:es", IS_FINAL)
    talk.end(talk.place("Ben", spanish, "only cedar speaks es", on={"cedar"}))
    text = talk.utterance("zh:es", IS_FINAL, speech=False)
    talk.end(talk.place("Ana", text, "text only: dune will do", on={"dune"}))
    speech = talk.utterance("zh:es", IS_FINAL)
    talk.refused("Ana", speech, "refused: speech needs more", why="NO_CAPABLE_NODE")


def drained(talk: Conversation, stub: pool_pb2_grpc.PoolServiceStub) -> None:
    """A node that an operator drains gets nothing new."""
    _set_health(stub, "birch", common.NODE_HEALTH_DRAINING)
    print("      an operator drains birch")
    for _ in range(3):
        request = talk.utterance("zh:en", IS_FINAL)
        talk.end(talk.place("Ana", request, "birch is drained", on={"amber"}))
    _set_health(stub, "birch", common.NODE_HEALTH_READY)
    print("      birch is ready again")


def killed(talk: Conversation, fleet: Fleet) -> None:
    """The job of a node that dies goes elsewhere, and the turn goes with it."""
    request = talk.utterance("zh:en", MAX_DURATION)
    lost = talk.place("Ana", request, "she talks on", on=ZH_EN)
    dead = lost.placement.node_id
    fleet.kill(dead)
    print(f"      {dead} dies with the job")
    talk.end(lost, pool.ATTEMPT_OUTCOME_FAILED)

    request.attempt = 2
    request.criteria.exclude_node_ids.append(dead)
    others = ZH_EN - {dead}
    again = talk.place("Ana", request, "attempt 2, elsewhere", on=others, binding="EXCLUDED")
    talk.end(again)
    rest = talk.utterance("zh:en", IS_FINAL)
    note = "the turn has moved along"
    talk.end(talk.place("Ana", rest, note, on=others, by="MAX_DURATION_BINDING", binding="HIT"))


def _set_health(
    stub: pool_pb2_grpc.PoolServiceStub, node_id: str, health: common.NodeHealth.ValueType
) -> None:
    request = pool.SetNodeHealthRequest(node_id=node_id, health=health, by_operator=True)
    stub.SetNodeHealth(request, timeout=CALL_TIMEOUT_S)


def _print_line(
    who: str, request: pool.AllocateRequest, node: str, path: str, latency_ms: float, note: str
) -> None:
    pair = f"{request.criteria.pair.src}->{request.criteria.pair.tgt}"
    reason = enum_name(_ENUMS["FinalizeReason"], request.reason)
    latency = f"{latency_ms:.1f} ms"
    index = request.utterance_index
    print(_LINE.format(who, pair, index, reason, node, path, latency, note).rstrip(), flush=True)


def _pair(direction: str) -> common.LanguagePair:
    src, tgt = direction.split(":")
    return common.LanguagePair(src=src, tgt=tgt)


def _reason(error: grpc.RpcError) -> str:
    said = from_rpc_error(error)
    if said:
        return reason_name(said.reason)
    return f"{error.code().name}: {error.details()}" if isinstance(error, grpc.Call) else str(error)


def _print_pools(stub: pool_pb2_grpc.PoolServiceStub) -> None:
    for text in (False, True):
        request = pool.ListPoolsRequest(text=text)
        found = stub.ListPools(request, timeout=CALL_TIMEOUT_S).pools
        print(f"\nPools of {'text' if text else 'speech'} jobs:\n")
        click.echo(render_pools(found, width=terminal_width()))


def tour(scheduler: LocalScheduler, ends_at: float | None) -> list[str]:
    """The tour, then a while in which others may talk to it. Returns what went wrong."""
    with connect(scheduler.address("pool")) as channel:
        stub = pool_pb2_grpc.PoolServiceStub(channel)
        fleet = Fleet(stub)
        try:
            fleet.start()
            talk = conversation(stub, fleet)
            _print_pools(stub)
            count = f"{talk.placed} placements, {len(talk.problems)} not as expected"
            print(f"\n{count}. The nodes stay; in another terminal:")
            print("\n".join(how_to_talk(scheduler)))
            _stay(scheduler, ends_at)
        finally:
            fleet.end()
    return talk.problems + fleet.problems


def _stay(scheduler: LocalScheduler, ends_at: float | None) -> None:
    left = None if ends_at is None else max(0.0, ends_at - time.monotonic())
    print("Ctrl-C ends it." if left is None else f"It ends by itself in {left:.0f} s.", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        scheduler.wait(left)


def _environment() -> dict[str, str]:
    environ = dict(os.environ)
    if environ.get("LINGUA_REDIS_URL"):
        # Sample nodes must not get the jobs of a scheduler that uses this Redis in earnest.
        environ["LINGUA_REDIS_PREFIX"] = f"lingua:tour:{secrets.token_hex(4)}"
    return environ


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run(ends_at: float | None) -> list[str]:
    """Everything from the first process to the last. Returns what went wrong."""
    try:
        with LocalScheduler(environ=_environment()) as scheduler:
            print(f"Redis       {scheduler.redis_words}")
            print(f"pool        {scheduler.address('pool')}")
            for note in scheduler.notes:
                print(f"Note        {note}")
            return tour(scheduler, ends_at)
    except KeyboardInterrupt:
        return ["interrupted before the tour was over"]
    except grpc.RpcError as error:
        return [f"a call failed: {_reason(error)}"]
    except (SettingsError, EmbeddedRedisError, PartFailedError) as error:
        return [str(error)]


def main() -> int:
    """Runs the tour; 0 if all went as expected."""
    try:
        seconds = float(os.environ.get("RUN_SECONDS") or "inf")
    except ValueError:
        print("Error: RUN_SECONDS must be a number of seconds", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _interrupt)
    print(INTRODUCTION, flush=True)
    problems = run(None if seconds == float("inf") else time.monotonic() + seconds)
    for problem in problems:
        print(f"Error: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
