"""What an app of a room has yet to read is bounded, and what is dropped is named."""

from collections.abc import AsyncIterator
from typing import TypeVar

import pytest

from lingua_scheduler.sdk import NotSaid, Reconnecting, ResultKind, RoomEvent, Said
from lingua_scheduler.sdk.room import inbox as inbox_module
from lingua_scheduler.sdk.room.inbox import MAX_ASIDE, Inbox

_E = TypeVar("_E")


def utterance(index: int, size: int = 0) -> Said:
    return Said(
        room_index=index,
        speaker="",
        session_id="s",
        language="es",
        spoken_language="en",
        kind=ResultKind.TRANSLATED,
        speech=bytes(size),
    )


def spans(events: list[RoomEvent]) -> list[tuple[int, int]]:
    return [
        (each.room_index, each.until_index if isinstance(each, NotSaid) else each.room_index + 1)
        for each in events
        if isinstance(each, Said | NotSaid)
    ]


async def everything(queue: AsyncIterator[_E]) -> list[_E]:
    return [each async for each in queue]


async def test_both_queues_have_what_is_said_and_one_has_the_rest() -> None:
    inbox = Inbox()
    inbox.put(utterance(0))
    inbox.put(Reconnecting(why="x"))
    inbox.end()
    assert spans([*await everything(inbox.heard.read())]) == [(0, 1)]
    assert len(await everything(inbox.events.read())) == 2


async def test_a_reader_that_is_too_slow_is_told_what_was_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbox_module, "MAX_UNREAD", 4)
    inbox = Inbox()
    for index in range(10):
        inbox.put(utterance(index * 2))
    inbox.end()
    for queue in (inbox.heard.read(), inbox.events.read()):
        first, *rest = await everything(queue)
        assert isinstance(first, NotSaid)
        assert first.reason == "NOT_READ"
        assert spans([first, *rest]) == [(0, 13), (14, 15), (16, 17), (18, 19)]


async def test_speech_is_bounded_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "MAX_UNREAD_BYTES", 100)
    inbox = Inbox()
    for index in range(5):
        inbox.put(utterance(index, size=40))
    inbox.put(utterance(5, size=1000))
    inbox.end()
    # The newest one is kept, however large it is.
    assert spans([*await everything(inbox.heard.read())]) == [(0, 5), (5, 6)]


async def test_the_queue_that_nobody_reads_keeps_only_the_newest() -> None:
    inbox = Inbox()
    inbox.heard.is_read = True
    for index in range(MAX_ASIDE + 50):
        inbox.put(utterance(index))
    inbox.end()
    assert len(await everything(inbox.heard.read())) == MAX_ASIDE + 50
    assert len(await everything(inbox.events.read())) == MAX_ASIDE


async def test_readers_get_the_error_after_the_last_event() -> None:
    inbox = Inbox()
    inbox.put(utterance(0))
    inbox.end(KeyError("lost"))
    inbox.end(None)
    heard = inbox.heard.read()
    assert spans([await anext(heard)]) == [(0, 1)]
    with pytest.raises(KeyError):
        await anext(heard)
