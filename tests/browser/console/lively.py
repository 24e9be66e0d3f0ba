"""A lively fleet for pictures: 40 simulated nodes, people who talk, and a few scripted events."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

from lingua_scheduler.cli.simulated_nodes import Behaviour, SimulatedNodes
from lingua_scheduler.sdk import Listener, Room
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2
from lingua_scheduler.v1.dispatcher_pb2 import JobAssign, NodeEvent
from tests.support.audio import FORMAT, speech
from tests.support.raw_client import RawClient, new_session, raw_client
from tests.support.raw_node import RawNode, whoever_gets_it

GROUPS: dict[str, tuple[int, Behaviour]] = {
    "berlin-a100": (7, Behaviour(slots=8, langs=("en", "de", "fr"), latency_ms=600)),
    "madrid-l4": (9, Behaviour(slots=4, langs=("en", "es", "pt"), latency_ms=800)),
    "tokyo-l4": (8, Behaviour(slots=4, langs=("en", "ja", "zh", "ko"), latency_ms=900)),
    "mumbai-t4": (3, Behaviour(slots=2, langs=("en", "hi"), latency_ms=1500)),
    "home": (9, Behaviour(slots=2, langs=("en", "es"), latency_ms=1200, fail_rate=0.08)),
    # It fails again and again, and is ejected.
    "home-old": (1, Behaviour(slots=2, langs=("en", "es"), latency_ms=150, fail_rate=1.0)),
}
"""How many simulated nodes there are of each kind."""
SPEAKERS = 32
# How often one of them is chosen.
WAYS = {
    ("en", "es"): 6,
    ("es", "en"): 5,
    ("en", "de"): 3,
    ("de", "en"): 3,
    ("zh", "en"): 3,
    ("en", "ja"): 2,
    ("en", "hi"): 12,
    ("fr", "de"): 1,
}
# Stages of a node, and the share of its time that each takes.
STAGES = (
    (common_pb2.STAGE_KIND_ASR, 0.55),
    (common_pb2.STAGE_KIND_NMT, 0.15),
    (common_pb2.STAGE_KIND_TTS, 0.3),
)


async def simulated(dispatchers: str) -> list["asyncio.Task[None]"]:
    """Starts the simulated nodes; returns when all are connected."""
    fleets = [
        SimulatedNodes(
            count=count, addresses=dispatchers, behaviour=behaviour, prefix=prefix, seed=7
        )
        for prefix, (count, behaviour) in GROUPS.items()
    ]
    tasks = [asyncio.create_task(each.serve()) for each in fleets]
    all_nodes = sum(count for count, _ in GROUPS.values())
    while sum(each.connected for each in fleets) < all_nodes:  # noqa: ASYNC110, no event tells
        await asyncio.sleep(0.05)
    return tasks


async def talk(gateway: str) -> None:
    """Many people talk, until cancelled."""
    rng = random.Random(7)
    ways = rng.choices(list(WAYS), list(WAYS.values()), k=SPEAKERS)
    async with asyncio.TaskGroup() as group:
        for at, (src, tgt) in enumerate(ways):
            group.create_task(_talk_on(gateway, src, tgt, random.Random(at)))


async def _talk_on(gateway: str, src: str, tgt: str, rng: random.Random) -> None:
    await asyncio.sleep(rng.uniform(0, 4))
    tenant = rng.choice(["acme", "globex", "initech"])
    async with raw_client(gateway) as client:
        await client.open(new_session(src, tgt, tenant=tenant))
        index = 0
        while True:
            await say(client, rng.uniform(0.3, 0.9))
            index += 1
            while len(client.outcomes()) < index:  # noqa: ASYNC110, a result or none at all
                await asyncio.sleep(0.05)
            await client.say(results_seen=index)
            await asyncio.sleep(rng.uniform(0.1, 1.2))


async def say(
    client: RawClient,
    seconds: float,
    direction: common_pb2.LanguagePair | None = None,
    *,
    final: bool = True,
) -> None:
    """Speaks at the pace of speech."""
    way = {} if direction is None else {"direction": direction}
    for at in range(int(seconds * 10)):
        await client.send(speech(1 + at), **way)
        await asyncio.sleep(0.1)
    if final:
        await client.send(b"", final=True, **way)


def hello(node_id: str, langs: tuple[str, ...], slots: int) -> dispatcher_pb2.Hello:
    """The Hello of a scripted node."""
    return dispatcher_pb2.Hello(
        node_id=node_id,
        incarnation="1",
        max_concurrent_jobs=slots,
        capabilities=common_pb2.NodeCapabilities(
            asr_langs=langs, semantic_langs=langs, tts_langs=langs
        ),
    )


async def translated(node: RawNode, assign: JobAssign, ms: int) -> None:
    """Works for a while, and sends a result with the times of its stages."""
    await asyncio.sleep(ms / 1000)
    started, timings = 0, []
    for stage, share in STAGES:
        took = int(ms * share)
        timings.append(dispatcher_pb2.StageTiming(stage=stage, started_ms=started, took_ms=took))
        started += took
    result = dispatcher_pb2.JobResult(
        attempt=assign.attempt,
        kind=dispatcher_pb2.JobResult.KIND_TRANSLATED,
        texts=dispatcher_pb2.Texts(source="…", translated="…"),
        joined_utterances=assign.job.held_utterances,
        timings=timings,
    )
    await node.say(NodeEvent(job_result=result))


async def retried_job(gateway: str, nodes: list[RawNode], src: str, tgt: str) -> str:
    """A job whose first node runs out of memory; returns its id."""
    async with raw_client(gateway) as client:
        await client.open(new_session(src, tgt, tenant="acme"))
        await say(client, 1.1)
        first, assign = await whoever_gets_it(nodes)
        await first.ack(assign)
        await asyncio.sleep(0.6)
        await first.fail(assign, "OUT_OF_MEMORY", "no memory for the batch", worth_retry=True)
        second, again = await whoever_gets_it([each for each in nodes if each is not first])
        await second.ack(again)
        await translated(second, again, 850)
        await client.result(0)
        return str(again.attempt.job_id)


Step = Callable[[RawNode, JobAssign], Awaitable[None]]


async def _held(node: RawNode, assign: JobAssign) -> None:
    await asyncio.sleep(0.3)
    await node.held(assign)


async def _failed(node: RawNode, assign: JobAssign) -> None:
    await asyncio.sleep(0.5)
    await node.fail(assign, "BAD_AUDIO", "the audio is damaged", worth_retry=False)


async def _long(node: RawNode, assign: JobAssign) -> None:
    await translated(node, assign, 900)


async def _short(node: RawNode, assign: JobAssign) -> None:
    await translated(node, assign, 550)


async def conversation(client: RawClient, node: RawNode, a: str, b: str) -> str:
    """Two people talk; returns the session. Their last utterance waits for a result."""
    one = common_pb2.LanguagePair(src=a, tgt=b)
    other = common_pb2.LanguagePair(src=b, tgt=a)
    opened = await client.open(
        session_pb2.NewSession(
            conversation=session_pb2.LanguageSet(a=a, b=b),
            audio_format=FORMAT,
            options=session_pb2.SessionOptions(require_tts=True),
            tenant="acme",
        )
    )
    script: list[tuple[common_pb2.LanguagePair, float, bool, Step]] = [
        (one, 1.4, True, _long),
        (other, 1.0, True, _short),
        (one, 1.2, False, _held),
        (one, 0.8, True, _long),
        (other, 1.3, True, _failed),
        (other, 1.0, True, _short),
        (one, 1.1, True, _long),
    ]
    for seen, (direction, seconds, final, step) in enumerate(script, 1):
        await say(client, seconds, direction, final=final)
        await step(node, await node.take_job())
        await asyncio.sleep(0.25)
        await client.say(results_seen=seen)
    await say(client, 0.9, other)
    await node.take_job()
    return str(opened.session_id)


# Listeners of the room by language, and their names.
LISTENERS = {"es": 14, "de": 9, "fr": 6, "ja": 4, "hi": 3, "en": 2}
NAMES = ("Luis", "Emma", "Noor", "Kenji", "Marta", "Paul", "Asha", "Lena", "Hugo", "Iris", "")


async def town_hall(gateway: str) -> str:
    """A room in which one speaks and many listen, until cancelled; returns its id at once."""
    room = await Room.create(gateway, name="Town hall", tenant="acme", max_members=500)
    guest = Room(gateway, room_id=room.room_id, token=await room.join_token("listener"))
    rng = random.Random(7)
    joined = []
    for language, count in LISTENERS.items():
        for _ in range(count):
            name, speech = rng.choice(NAMES), rng.random() < 0.4
            joined.append(guest.listen(language=language, speech=speech, name=name))
    tasks = [asyncio.create_task(_listen_on(each)) for each in joined]
    tasks.append(asyncio.create_task(_address(room, rng)))
    _in_rooms.extend(tasks)
    return room.room_id


_in_rooms: list["asyncio.Task[None]"] = []


async def _listen_on(listener: Listener) -> None:
    async with listener:
        async for _ in listener:
            pass


async def _address(room: Room, rng: random.Random) -> None:
    async with room.speak(language="en", name="Ana") as speaker:
        while True:
            for at in range(rng.randint(6, 14)):
                await speaker.send(speech(1 + at))
                await asyncio.sleep(0.1)
            await speaker.finish()


async def stop(tasks: list["asyncio.Task[None]"]) -> None:
    """Cancels what was started."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(BaseException):
            await task
