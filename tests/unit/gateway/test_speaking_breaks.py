"""A session in a room if a language was left for a while, after a resume, and without Redis."""

from lingua_scheduler.services.session_gateway.store.session_record import SpokenTo
from lingua_scheduler.services.session_gateway.store.session_store import Spoken
from lingua_scheduler.v1 import common_pb2, session_record_pb2
from tests.unit.gateway.room_desk import HELD, RoomDesk


def begins_turn(desk: RoomDesk) -> list[bool]:
    """Of each job that was submitted, whether nodes must not join what they hold."""
    return [desk.specs.spec(each.utterance, desk.now).begins_turn for each in desk.submitted]


def cut_within_a_sentence(desk: RoomDesk) -> RoomDesk:
    """Somebody pauses, perhaps in the middle of a sentence."""
    desk.say(500, None).silence(3150)
    return desk.placed()


def held(desk: RoomDesk) -> RoomDesk:
    """The node holds the first utterance, and that is recorded."""
    desk.accept(0, "de").deliver(0, "de", kind=HELD).published(0, "de")
    return desk.placed()


def in_german_only(desk: RoomDesk) -> RoomDesk:
    desk.wanted = {"de": False}
    return desk


def test_a_sentence_that_goes_on_continues_what_its_node_holds() -> None:
    desk = held(cut_within_a_sentence(in_german_only(RoomDesk()))).speak()

    assert desk.jobs[-1] == (1, "de")
    assert begins_turn(desk) == [True, False]
    assert desk.submitted[-1].utterance.held == (0,)


def test_what_follows_the_end_of_a_sentence_begins_a_turn() -> None:
    desk = in_german_only(RoomDesk()).speak().speak()

    assert begins_turn(desk) == [True, True]


def test_who_comes_back_to_a_language_does_not_get_the_beginning_of_an_old_sentence() -> None:
    desk = held(cut_within_a_sentence(in_german_only(RoomDesk())))
    desk.wanted = {}
    desk.speak()

    in_german_only(desk).speak()

    assert desk.jobs == [(0, "de"), (2, "de")]
    assert begins_turn(desk) == [True, True]
    assert desk.submitted[-1].utterance.held == ()


def test_audio_that_a_node_holds_only_after_its_language_was_left_is_not_kept() -> None:
    desk = cut_within_a_sentence(in_german_only(RoomDesk()))
    desk.wanted = {}
    held(desk.speak())

    in_german_only(desk).speak()

    assert begins_turn(desk) == [True, True]
    assert desk.submitted[-1].utterance.held == ()


def test_a_job_that_has_claimed_held_audio_keeps_it_when_its_language_is_left() -> None:
    desk = held(cut_within_a_sentence(in_german_only(RoomDesk()))).speak()
    desk.wanted = {}
    desk.speak()

    desk.fail(1, "de", common_pb2.ERROR_REASON_HELD_AUDIO_NEEDED).silence(1000)

    again = desk.submitted[-1].utterance
    assert (again.index, again.included) == (1, (0,))


def test_an_utterance_that_is_held_in_one_language_goes_on_in_another_after_a_resume() -> None:
    before = cut_within_a_sentence(RoomDesk()).accept(0, "fr", "de")
    before.deliver(0, "fr", kind=HELD).published(0, "fr").placed()
    after = before.taken_over(next_seq=0, left={(0, "de")})

    after.seq = 0
    after.say(500, None)

    assert after.jobs == [(0, "de")]
    after.finish(0, "de").speak()
    french = next(each.utterance for each in after.submitted if each.utterance.index == 1)
    assert (french.direction.tgt, french.held) == ("fr", (0,))


def test_a_room_index_is_known_as_used_as_soon_as_a_cut_has_it() -> None:
    raised: list[int] = []
    room = SpokenTo(room_id="r", language="en", floor=lambda: 0, raise_floor=raised.append)

    room.place(session_record_pb2.Cut(utterance_index=0), Spoken(7, (("de", False),), False))

    assert raised == [8]
