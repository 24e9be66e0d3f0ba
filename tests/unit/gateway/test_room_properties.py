"""The promises of a room, checked in many random worlds on a virtual clock (see room_world)."""

import os

import pytest

from lingua_scheduler.v1 import dispatcher_pb2, rooms_pb2
from tests.unit.choices import Choices, shrink
from tests.unit.gateway.room_world.world import ALWAYS, SOMETIMES, World

RUNS = int(os.environ.get("LINGUA_ROOM_RUNS", "96"))
BATCHES = 8
# Runs that are tried to make a failing one shorter.
SHRINKS = 100

HELD = dispatcher_pb2.JobResult.KIND_HELD


def told(event: rooms_pb2.RoomEvent) -> rooms_pb2.RoomResult | rooms_pb2.RoomMissing:
    return event.result if event.HasField("result") else event.missing


def check(world: World) -> None:
    places = _places(world)
    for language in (ALWAYS, *SOMETIMES):
        _check_lane(world, language, places)
    _check_content(world, ALWAYS, places)
    _check_receipts(world)
    _check_jobs(world)


def _places(world: World) -> dict[int, tuple[str, int]]:
    """The speaker and the utterance of each room index."""
    places: dict[int, tuple[str, int]] = {}
    for speaker in world.speakers:
        said = {index: receipt.room_index for index, receipt in enumerate(speaker.receipts)}
        assert list(said.values()) == sorted(said.values()), "the room changed a speaker's order"
        for index, room_index in said.items():
            assert room_index not in places, f"two utterances are {room_index} in the room"
            places[room_index] = speaker.name, index
    return places


def _check_lane(world: World, language: str, places: dict[int, tuple[str, int]]) -> None:
    indexes = [told(event).room_index for event in world.events(language)]
    assert indexes == sorted(set(indexes)), f"{language} is not in order, or repeats: {indexes}"
    lane = world.model.lanes.get(("r", language))
    assert lane is None or not lane.open, f"{language} waits for ever for {lane.open}"
    for event in world.events(language):
        assert places[told(event).room_index][0] == told(event).session_id


def _check_content(world: World, language: str, places: dict[int, tuple[str, int]]) -> None:
    """Everything that was said is in the language that was always wanted, once."""
    for speaker in world.speakers:
        heard: list[str] = []
        excused: set[str] = set()
        waiting: set[int] = set()
        for event in world.events(language):
            each = told(event)
            if each.session_id != speaker.name:
                continue
            _, index = places[each.room_index]
            lost = {places[at][1] for at in each.lost_indexes}
            if isinstance(each, rooms_pb2.RoomMissing):
                excused.update(speaker.said_in(index))
            elif each.kind == HELD:
                waiting.add(index)
            else:
                heard += each.texts.translated.split()
                joined = {places[at][1] for at in each.joined_indexes}
                assert joined <= waiting, f"{index} joins {joined}, which nobody was told of"
                waiting -= joined
            for gone in lost:
                excused.update(speaker.said_in(gone))
                waiting.discard(gone)
        said = [tag for at in sorted(speaker.ever) for tag in speaker.said_in(at)]
        expected = [tag for tag in said if tag not in excused]
        # Audio that a node held may come later than what was said after it, with its index.
        assert sorted(tag for tag in heard if tag not in excused) == sorted(expected)
        assert len(heard) == len(set(heard)), "something was translated twice"
        assert not waiting, f"{waiting} were held, and nothing came of it"
        assert len(said) == len(speaker.chunks), "a chunk is in no utterance"


def _check_receipts(world: World) -> None:
    """A receipt says of each language what the room has."""
    for speaker in world.speakers:
        assert len(speaker.receipts) == len(speaker.ever)
        for receipt in speaker.receipts:
            told_of = dict.fromkeys(receipt.delivered, "result")
            told_of |= {each.language: "missing" for each in receipt.missing}
            for language, what in told_of.items():
                [found] = [
                    event.WhichOneof("event")
                    for event in world.events(language)
                    if told(event).room_index == receipt.room_index
                ]
                # A gateway that was given up may have put another outcome before this one.
                assert found == what or len(speaker.lives) > 1, f"{receipt.room_index} {language}"


def _check_jobs(world: World) -> None:
    """There is no job that nobody wanted."""
    for speaker in world.speakers:
        places = {index: each.room_index for index, each in enumerate(speaker.receipts)}
        for index, language in speaker.nodes.made:
            told_of = [told(event).room_index for event in world.events(language)]
            assert places[index] in told_of, f"{index} in {language} is nobody's"


def broken(choices: list[int]) -> str:
    """Why a run breaks a promise; empty if it keeps all."""
    try:
        world = World(Choices(choices))
        world.run()
        check(world)
    except AssertionError as error:
        return str(error) or "an assertion"
    return ""


@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_room_keeps_its_promises_whatever_happens(batch: int) -> None:
    for seed in range(batch, RUNS, BATCHES):
        choices = Choices(seed=seed)
        try:
            world = World(choices)
            world.run()
            check(world)
        except AssertionError as error:
            left = [SHRINKS]

            def breaks(shorter: list[int], left: list[int] = left) -> bool:
                left[0] -= 1
                return left[0] > 0 and bool(broken(shorter))

            short = shrink(choices.made, breaks)
            raise AssertionError(
                f"seed {seed}: {error}\nas short: {short}\n{broken(short)}"
            ) from error


def test_the_worlds_contain_what_can_go_wrong() -> None:
    seen: set[str] = set()
    for seed in range(40):
        world = World(Choices(seed=seed))
        world.run()
        for language in (ALWAYS, *SOMETIMES):
            for event in world.events(language):
                seen.add(language)
                seen.add(event.WhichOneof("event") or "")
                if event.HasField("result"):
                    seen.add(f"kind {event.result.kind}")
                    seen.update({"joined"} if event.result.joined_indexes else ())
                seen.update({"lost"} if told(event).lost_indexes else ())
        lives = [life for speaker in world.speakers for life in speaker.lives]
        seen.update({"killed"} if any(life.is_dead for life in lives) else ())
        seen.update({"resumed"} if len(lives) > 2 else ())

    assert seen >= {
        *(ALWAYS, *SOMETIMES),
        *("result", "missing", f"kind {HELD}", "joined", "lost", "killed", "resumed"),
    }
