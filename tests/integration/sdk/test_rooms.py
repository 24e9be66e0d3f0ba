"""The SDK's rooms with real gateways: two of them, one node for all languages."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from lingua_scheduler.sdk import (
    Job,
    JobError,
    Listener,
    ListenerLostError,
    Listening,
    ListeningChanged,
    Node,
    NotSaid,
    Receipt,
    Reconnecting,
    Rejoined,
    ResultKind,
    Room,
    RoomRefusedError,
    RoomRole,
    RoomStatus,
    Said,
    Session,
    SessionLostError,
    SessionRefusedError,
    Translated,
)
from tests.conftest import Eventually
from tests.support.audio import speech
from tests.support.scheduler import Scheduler
from tests.support.services import GatewayProcess

SOON_S = 30.0
LANGUAGES = ["en", "es", "fr", "de"]
# What the node refuses, whatever the language.
UNHEARD = 13


@pytest.fixture(scope="module")
def scheduler(redis_url: str) -> Iterator[Scheduler]:
    with Scheduler(redis_url=redis_url, instances=2, room_languages_max=3) as made:
        yield made
        made.check_logs()


@pytest.fixture(autouse=True)
async def _node(scheduler: Scheduler, eventually: Eventually) -> AsyncIterator[None]:
    """Runs a node that translates the mark in the audio of `speech`."""
    node = Node(node_id="n", asr=LANGUAGES, semantic=LANGUAGES, tts=LANGUAGES, slots=32)
    node.load = lambda: (0.0, 0.0)

    @node.handler
    async def translate(job: Job) -> Translated:
        mark = job.audio[0]
        if mark == UNHEARD:
            raise JobError("MODEL_FAILED", worth_retry=False)
        return Translated(
            source=f"{job.pair.src} {mark}",
            translated=f"{job.pair.tgt} {mark}",
            speech=job.audio if job.require_tts else b"",
            speech_format=job.audio_format if job.require_tts else None,
        )

    addresses = ",".join(each.address for each in scheduler.dispatchers)
    serving = asyncio.create_task(node.serve(addresses))
    await eventually(lambda: node.connected or serving.done())
    yield
    async with asyncio.timeout(SOON_S):
        await node.stop()
        await serving


def at(scheduler: Scheduler, *gateways: int) -> list[str]:
    """The addresses of these gateways; of all without any."""
    return [scheduler.gateways[each].address for each in gateways or (0, 1)]


@pytest.fixture
async def room(scheduler: Scheduler) -> AsyncIterator[Room]:
    """Creates a room at the first gateway; this is its host."""
    made = await Room.create(at(scheduler, 0), name="All hands")
    yield made
    with contextlib.suppress(RoomRefusedError):
        await made.close()


async def joined(host: Room, addresses: list[str], role: RoomRole | str = "listener") -> Room:
    """The room as a guest sees it."""
    token = await host.join_token(role)
    return Room(addresses, room_id=host.room_id, token=token)


async def say(session: Session, *marks: int) -> None:
    """Says utterances, each with a mark of its own."""
    for mark in marks:
        await session.send(speech(mark, 400))
        await session.finish()
        await session.drained()


async def heard(listener: Listener, count: int) -> list[Any]:
    """What the listener hears next."""
    found: list[Any] = []
    async with asyncio.timeout(SOON_S):
        async for each in listener:
            found.append(each)
            if len(found) == count:
                return found
    raise AssertionError(f"the room was closed after {found}")


def texts(found: list[Any]) -> list[str]:
    return [each.text if isinstance(each, Said) else each.reason for each in found]


def indexes(found: list[Any]) -> list[int]:
    return [each.room_index for each in found]


async def test_listeners_at_different_gateways_hear_the_same_each_in_its_language(
    scheduler: Scheduler, room: Room
) -> None:
    one, other = await joined(room, at(scheduler, 0)), await joined(room, at(scheduler, 1))
    async with (
        one.listen(language="es") as spanish,
        other.listen(language="es") as also_spanish,
        other.listen(language="fr") as french,
        room.speak(language="en", name="Ana") as session,
    ):
        await say(session, 1, 2, 3)
        for listener, language in ((spanish, "es"), (also_spanish, "es"), (french, "fr")):
            found = await heard(listener, 3)
            assert texts(found) == [f"{language} 1", f"{language} 2", f"{language} 3"]
            assert indexes(found) == [0, 1, 2]
        assert {each.speaker for each in found} == {"Ana"}
        assert {each.session_id for each in found} == {session.session_id}
        assert {each.spoken_language for each in found} == {"en"}
        assert all(each.published_ms >= each.cut_at_ms > 0 for each in found)
        assert all(each.audio_ms >= 400 for each in found)
        receipts = session.results()
        for index in range(3):
            receipt = await anext(receipts)
            assert isinstance(receipt, Receipt)
            assert (receipt.index, receipt.room_index) == (index, index)
            assert sorted(receipt.delivered) == ["es", "fr"]
            assert receipt.missing == ()


async def test_an_utterance_without_a_result_is_not_said_and_the_rest_goes_on(
    scheduler: Scheduler, room: Room
) -> None:
    guest = await joined(room, at(scheduler, 1))
    async with (
        guest.listen(language="es") as listener,
        room.speak(language="en") as session,
    ):
        await say(session, 1, UNHEARD, 2)
        first, second, third = await heard(listener, 3)
        assert texts([first, third]) == ["es 1", "es 2"]
        assert isinstance(second, NotSaid)
        assert (second.room_index, second.until_index) == (1, 2)
        assert second.session_id == session.session_id
        receipts = session.results()
        _, receipt = await anext(receipts), await anext(receipts)
        assert isinstance(receipt, Receipt)
        assert [(each.language, each.reason) for each in receipt.missing] == [("es", second.reason)]


async def test_two_speakers_are_heard_in_one_order(scheduler: Scheduler, room: Room) -> None:
    guest = await joined(room, at(scheduler, 1), "speaker")
    async with (
        room.listen(language="es") as one,
        guest.listen(language="es") as other,
        room.speak(language="en", name="Ana") as ana,
        guest.speak(language="fr", name="Ben") as ben,
    ):
        await asyncio.gather(say(ana, 1, 2, 3), say(ben, 4, 5, 6))
        first, second = await heard(one, 6), await heard(other, 6)
        assert indexes(first) == list(range(6))
        assert texts(first) == texts(second)
        assert [each.text for each in first if each.speaker == "Ben"] == ["es 4", "es 5", "es 6"]
        info = await room.get()
        assert [(each.name, each.language) for each in info.speakers] == [
            ("Ana", "en"),
            ("Ben", "fr"),
        ]
        assert [(each.language, each.listeners) for each in info.languages] == [("es", 2)]
        roles = sorted(each.role for each in await guest.members())
        assert roles == ["listener", "listener", "speaker", "speaker"]


async def test_speech_and_original_audio_come_to_those_who_want_them(
    scheduler: Scheduler, room: Room
) -> None:
    guest = await joined(room, at(scheduler, 1))
    async with (
        guest.listen(language="es") as reader,
        guest.listen(language="es", speech=True, captions=False) as hearer,
        guest.listen(language="en", original_audio=True) as native,
        guest.listen(language="en", speech=True) as own_voice,
        room.speak(language="en") as session,
    ):
        await say(session, 7)
        (read,) = await heard(reader, 1)
        assert (read.speech, read.original_audio) == (b"", b"")
        (spoken,) = await heard(hearer, 1)
        assert spoken.speech.startswith(speech(7, 400))
        assert spoken.speech_format == session.audio_format
        assert spoken.text == ""
        (original,) = await heard(native, 1)
        assert original.original_audio.startswith(speech(7, 400))
        assert original.original_format == session.audio_format
        assert original.text == "en 7"
        (voice,) = await heard(own_voice, 1)
        assert voice.speech == b""
        assert voice.original_audio.startswith(speech(7, 400))


async def test_who_comes_late_gets_the_last_captions_first(
    scheduler: Scheduler, room: Room
) -> None:
    guest = await joined(room, at(scheduler, 1))
    async with guest.listen(language="es") as early, room.speak(language="en") as session:
        await say(session, 1, 2)
        await heard(early, 2)
        async with guest.listen(language="es", speech=True) as late:
            assert late.position == 2
            replayed = await heard(late, 2)
            await say(session, 3)
            live = await heard(late, 1)
    assert texts([*replayed, *live]) == ["es 1", "es 2", "es 3"]
    assert [each.replayed for each in replayed] == [True, True]
    assert [each.speech for each in replayed] == [b"", b""]
    assert not live[0].replayed


async def test_a_change_of_language_loses_and_repeats_nothing(
    scheduler: Scheduler, room: Room
) -> None:
    guest = await joined(room, at(scheduler, 1))
    async with guest.listen(language="es") as listener, room.speak(language="en") as session:
        events = listener.events()
        await say(session, 1, 2)
        await listener.change(language="fr", speech=True)
        assert listener.listening == Listening(language="fr", speech=True)
        await say(session, 3)
        await listener.change(language="de", speech=False)
        await say(session, 4)
        found = await heard(listener, 4)
        assert texts(found) == ["es 1", "es 2", "fr 3", "de 4"]
        assert indexes(found) == [0, 1, 2, 3]
        assert bool(found[2].speech)
        changes = []
        async with asyncio.timeout(SOON_S):
            async for event in events:
                if isinstance(event, ListeningChanged):
                    changes.append((event.listening.language, event.position))
                if len(changes) == 2:
                    break
        assert changes == [("fr", 2), ("de", 3)]


async def test_a_language_too_many_is_refused_and_the_listener_stays(
    scheduler: Scheduler, room: Room
) -> None:
    guest = await joined(room, at(scheduler, 1))
    async with contextlib.AsyncExitStack() as stack:
        listeners = [
            await stack.enter_async_context(guest.listen(language=language))
            for language in ("en", "es", "fr")
        ]
        twin = await stack.enter_async_context(guest.listen(language="fr"))
        with pytest.raises(RoomRefusedError) as error:
            await twin.change(language="de")
        assert error.value.reason == "ROOM_FULL"
        with pytest.raises(RoomRefusedError) as error:
            await guest.listen(language="de").__aenter__()
        assert error.value.reason == "ROOM_FULL"
        session = await stack.enter_async_context(room.speak(language="en"))
        await say(session, 9)
        for each in (*listeners[1:], twin):
            assert texts(await heard(each, 1)) == [f"{each.listening.language} 9"]


@pytest.fixture
def passing(scheduler: Scheduler) -> Iterator[GatewayProcess]:
    """Runs one more gateway, which the test may end."""
    gateway = scheduler.add_gateway()
    yield gateway
    scheduler.gateways.remove(gateway)
    gateway.stop()


@contextlib.asynccontextmanager
async def listening_at(
    gateway: GatewayProcess, scheduler: Scheduler, host: Room
) -> AsyncIterator[Listener]:
    """A listener that is at this gateway now, and knows another one."""
    token = await host.join_token("listener")
    here = Room(gateway.address, room_id=host.room_id, token=token)
    both = Room([gateway.address, *at(scheduler, 1)], room_id=host.room_id, token=token)

    async def gateway_of(name: str) -> str:
        (found,) = [each for each in await host.members() if each.name == name]
        return found.gateway_instance

    async with here.listen(language="es", name="here"):
        wanted = await gateway_of("here")
    # The SDK chooses the first address by chance.
    for number in range(100):
        async with both.listen(language="es", name=str(number)) as listener:
            if await gateway_of(str(number)) == wanted:
                yield listener
                return


async def kinds_until_rejoined(events: AsyncIterator[Any]) -> list[type]:
    kinds: list[type] = []
    async with asyncio.timeout(SOON_S):
        async for event in events:
            kinds.append(type(event))
            if isinstance(event, Rejoined):
                break
    return kinds


@pytest.mark.parametrize("how", ["killed", "frozen", "drained"])
async def test_a_listener_whose_gateway_goes_away_continues_at_another_one(
    scheduler: Scheduler, room: Room, passing: GatewayProcess, how: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(room.speak(language="en"))
        listener = await stack.enter_async_context(listening_at(passing, scheduler, room))
        events = listener.events()
        await say(session, 1)
        found = await heard(listener, 1)
        if how == "killed":
            passing.kill()
        elif how == "frozen":
            stack.enter_context(passing.frozen())
        else:
            passing.terminate()
        await say(session, 2, 3)
        found += await heard(listener, 2)
        assert texts(found) == ["es 1", "es 2", "es 3"]
        assert indexes(found) == [0, 1, 2]
        # A drained gateway serves its listeners until they have left.
        assert Reconnecting in await kinds_until_rejoined(events)
        await say(session, 4)
        assert texts(await heard(listener, 1)) == ["es 4"]
        assert listener.counts.rejoins == 1


async def test_a_listener_that_finds_no_gateway_says_where_it_was(
    room: Room, passing: GatewayProcess
) -> None:
    token = await room.join_token("listener")
    only = Room(passing.address, room_id=room.room_id, token=token)
    async with (
        only.listen(language="fr", reconnect_seconds=1) as listener,
        room.speak(language="en") as session,
    ):
        await say(session, 1)
        await heard(listener, 1)
        passing.kill()
        with pytest.raises(ListenerLostError) as error:
            await heard(listener, 1)
        assert (error.value.reason, error.value.position) == ("UNREACHABLE", 1)


async def test_closing_a_room_ends_it_for_everybody(scheduler: Scheduler, room: Room) -> None:
    guest = await joined(room, at(scheduler, 1))
    listener = guest.listen(language="es")
    session = room.speak(language="en")
    async with listener:
        await session.__aenter__()
        await say(session, 1)
        await heard(listener, 1)
        await room.close()
        await room.close()
        async with asyncio.timeout(SOON_S):
            assert [each async for each in listener] == []
        assert listener.room_closed
    with pytest.raises(SessionLostError) as lost:
        async with asyncio.timeout(SOON_S):
            await session.close()
    assert lost.value.reason == "ROOM_CLOSED"
    await session.__aexit__(KeyError, None, None)
    with pytest.raises(RoomRefusedError) as refused:
        await guest.listen(language="es").__aenter__()
    assert refused.value.reason == "ROOM_CLOSED"


async def test_tokens_are_for_what_they_say(scheduler: Scheduler, room: Room) -> None:
    listens = await joined(room, at(scheduler, 1))
    with pytest.raises(SessionRefusedError) as refused:
        await listens.speak(language="en").__aenter__()
    assert refused.value.reason == "PERMISSION_DENIED"
    for call in (listens.close(), listens.join_token("listener"), listens.members()):
        with pytest.raises(RoomRefusedError) as error:
            await call
        assert error.value.reason == "PERMISSION_DENIED"
    assert (await listens.get()).name == "All hands"
    forged = Room(at(scheduler), room_id=room.room_id, token=room.host_token[:-2] + "xx")
    with pytest.raises(RoomRefusedError) as error:
        await forged.listen(language="es").__aenter__()
    assert error.value.reason == "PERMISSION_DENIED"
    nowhere = Room(at(scheduler), room_id="r-nowhere", token=room.host_token)
    for attempt in (nowhere.get(), nowhere.listen(language="es").__aenter__()):
        with pytest.raises(RoomRefusedError) as error:
            await attempt
        assert error.value.reason in ("ROOM_NOT_FOUND", "PERMISSION_DENIED")


async def test_anyone_may_speak_if_the_room_says_so(scheduler: Scheduler) -> None:
    room = await Room.create(at(scheduler), speak="anyone", languages=["en", "es"])
    guest = await joined(room, at(scheduler, 1))
    async with guest.listen(language="es") as listener, guest.speak(language="en") as session:
        await say(session, 3)
        assert texts(await heard(listener, 1)) == ["es 3"]
    with pytest.raises(RoomRefusedError, match="INVALID_MESSAGE"):
        await guest.listen(language="fr").__aenter__()
    with pytest.raises(SessionRefusedError, match="INVALID_MESSAGE"):
        await guest.speak(language="fr").__aenter__()
    await room.close()


async def test_a_status_says_who_is_there(scheduler: Scheduler, room: Room) -> None:
    shown: asyncio.Queue[RoomStatus] = asyncio.Queue()
    guest = await joined(room, at(scheduler, 1))
    async with guest.listen(language="es", on_status=shown.put_nowait):
        async with asyncio.timeout(SOON_S):
            while (await shown.get()).listeners != 1:
                pass
            async with room.listen(language="fr"):
                while len((status := await shown.get()).languages) != 2:
                    pass
        assert {each.language for each in status.languages} == {"es", "fr"}
        async with asyncio.timeout(SOON_S):
            while (await shown.get()).listeners != 1:
                pass


async def test_nobody_who_listens_means_no_work(scheduler: Scheduler, room: Room) -> None:
    async with room.speak(language="en") as session:
        await say(session, 1)
        await session.close()
        (receipt,) = [each async for each in session.results()]
    assert isinstance(receipt, Receipt)
    assert (receipt.room_index, receipt.delivered, receipt.missing) == (0, (), ())
    assert receipt.kind is ResultKind.UNSPECIFIED
