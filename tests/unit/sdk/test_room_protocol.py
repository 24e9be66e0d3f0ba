"""The listener's protocol: joining, positions, changes, and how it ends."""

import pytest

from lingua_scheduler.sdk import (
    Listening,
    ListeningChanged,
    NotSaid,
    Problem,
    Reconnecting,
    Rejoined,
    ResultKind,
    RoomRefusedError,
    RoomUnavailableError,
    Said,
)
from lingua_scheduler.sdk._transport.endings import Close, Left, Lost, Moved
from lingua_scheduler.sdk.room.protocol.effects import Show
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, rooms_pb2
from lingua_scheduler.v1.rooms_pb2 import RoomEvent
from tests.unit.sdk.room_driver import (
    CLOSED,
    DENIED,
    DOWN,
    DRAINING,
    FULL,
    INVALID,
    NOT_FOUND,
    Driver,
    changed,
    error_in,
    failed,
    given,
    go_away,
    heard,
    is_over,
    joined,
    kind,
    missing,
    retries,
    room_closed,
    said,
)


@pytest.fixture
def inside() -> Driver:
    """Returns a listener that is in its room, from index 5 on."""
    driver = Driver()
    driver.connect(position=5)
    return driver


# ---- joining ----


def test_a_new_listener_says_who_it_is_and_what_it_wants() -> None:
    join = Driver().connect()
    assert (join.room_id, join.join_token, join.name) == ("r-1", "room.t", "ana")
    assert join.listening == rooms_pb2.Listening(language="es", captions=True)
    assert not join.member_id
    assert not join.HasField("position")


def test_replayed_captions_come_first_then_what_is_said(inside: Driver) -> None:
    events = inside.say(
        said(2, 1, replayed=True), said(4, 2, replayed=True), said(5, 4), said(6, 5)
    )
    assert heard(events) == [(2, 3, ""), (4, 5, ""), (5, 6, ""), (6, 7, "")]
    assert [each.replayed for each in given(events)] == [True, True, False, False]


def test_an_utterance_has_all_that_the_server_said_of_it(inside: Driver) -> None:
    pcm = common_pb2.AudioFormat(
        encoding=common_pb2.AUDIO_ENCODING_PCM_S16LE, sample_rate_hz=16000, channels=1
    )
    event = said(
        5,
        speech=b"ab",
        speech_format=pcm,
        original_audio=b"cd",
        original_format=pcm,
        joined_indexes=[3],
        lost_indexes=[2],
        turn_broken=True,
        cut_at_ms=1000,
        audio_ms=900,
        published_ms=1500,
    )
    (utterance,) = given(inside.say(event))
    assert isinstance(utterance, Said)
    assert (utterance.speaker, utterance.session_id) == ("Ana", "s-1")
    assert (utterance.language, utterance.spoken_language) == ("es", "en")
    assert (utterance.kind, utterance.text) == (ResultKind.TRANSLATED, "hola")
    assert (utterance.speech, utterance.original_audio) == (b"ab", b"cd")
    assert utterance.speech_format == utterance.original_format
    assert (utterance.joined, utterance.lost, utterance.turn_broken) == ((3,), (2,), True)
    assert (utterance.cut_at_ms, utterance.audio_ms, utterance.published_ms) == (1000, 900, 1500)


def test_a_caption_in_the_own_language_is_what_was_recognised(inside: Driver) -> None:
    event = said(5, language="en")
    event.result.texts.CopyFrom(dispatcher_pb2.Texts(source="hello wrld", repaired="hello world"))
    (utterance,) = given(inside.say(event))
    assert utterance.text == "hello world"


def test_an_unknown_kind_or_format_of_a_newer_server_is_no_error(inside: Driver) -> None:
    event = said(5, speech=b"x", speech_format=common_pb2.AudioFormat(encoding=99))  # type: ignore[arg-type]
    event.result.kind = 99  # type: ignore[assignment]
    (utterance,) = given(inside.say(event))
    assert (utterance.kind, utterance.speech_format) == (ResultKind.UNSPECIFIED, None)


def test_nothing_counts_before_joined_but_what_may_come_then() -> None:
    driver = Driver()
    driver.protocol.on_connected(driver.now)
    driver.drain()
    assert given(driver.say(said(0), changed(1))) == []


@pytest.mark.parametrize("event", [joined(member_id=""), joined(position=2**60)])
def test_a_server_that_lets_it_in_without_what_it_needs_is_left(event: RoomEvent) -> None:
    driver = Driver()
    driver.protocol.on_connected(driver.now)
    driver.drain()
    effects = driver.say(event)
    assert [each.reason for each in given(effects)] == ["INVALID_MESSAGE"]
    assert retries(driver.lose())


# ---- resuming ----


def test_it_joins_again_with_its_id_and_position(inside: Driver) -> None:
    inside.say(said(5, 4), said(7, 5))
    (why,) = given(inside.lose(Lost("broken")))
    assert why == Reconnecting(why="broken")
    inside.now += 3
    inside.protocol.on_connected(inside.now)
    (message,) = inside.drain()
    assert (message.join.member_id, message.join.position) == ("m-1", 8)
    assert given(inside.say(joined(position=9))) == [Rejoined(away=3.0, position=8)]


def test_it_joins_again_where_it_would_have_begun_if_it_has_seen_nothing(inside: Driver) -> None:
    inside.lose()
    assert inside.connect(position=9).position == 5


def test_what_it_has_seen_is_dropped_if_it_comes_again(inside: Driver) -> None:
    inside.say(said(5, 4), said(6, 5))
    inside.lose()
    inside.connect(position=6)
    assert heard(inside.say(said(5, 4), said(6, 5), said(7, 6))) == [(7, 8, "")]
    assert inside.protocol.state.counts == (3, 0, 2, 1)


def test_what_is_no_longer_kept_is_one_gap(inside: Driver) -> None:
    inside.say(said(5, 4))
    inside.lose()
    inside.connect(position=60)
    gap = missing(6, until=50, why=common_pb2.Error())
    assert heard(inside.say(gap, said(50, 49))) == [(6, 50, "NOT_KEPT"), (50, 51, "")]
    assert inside.protocol.state.counts.not_said == 44


def test_only_the_unseen_part_of_a_gap_is_given(inside: Driver) -> None:
    inside.say(said(5, 4), said(6, 5))
    assert heard(inside.say(missing(4, until=9))) == [(7, 9, "JOB_TIMEOUT")]
    assert heard(inside.say(missing(4, until=9))) == []


# ---- the chain ----


def test_a_skipped_utterance_is_reported_and_asked_for_again(inside: Driver) -> None:
    inside.say(said(5, 4))
    effects = inside.say(said(8, 7), said(9, 8))
    (problem,) = given(effects)
    assert (problem.reason, problem.message) == (
        "OUT_OF_ORDER",
        "the server skipped utterances 6 to 7 of the room; reconnecting",
    )
    assert any(isinstance(effect, Close) for effect in effects)
    assert retries(inside.lose())
    assert inside.connect(position=9).position == 6
    assert heard(inside.say(said(7, 5), said(8, 7))) == [(7, 8, ""), (8, 9, "")]


def test_an_utterance_that_is_skipped_twice_is_not_said_and_the_rest_goes_on(
    inside: Driver,
) -> None:
    inside.say(said(5, 4))
    inside.say(said(8, 7))
    inside.lose()
    inside.connect(position=9)
    assert heard(inside.say(said(8, 7), said(9, 8))) == [
        (6, 8, "OUT_OF_ORDER"),
        (8, 9, ""),
        (9, 10, ""),
    ]


def test_utterances_that_nobody_wanted_in_its_language_are_no_gap(inside: Driver) -> None:
    assert heard(inside.say(said(5, 1), said(9, 5), said(20, 9))) == [
        (5, 6, ""),
        (9, 10, ""),
        (20, 21, ""),
    ]


def test_a_lane_that_lost_its_end_is_no_loss_of_the_listener(inside: Driver) -> None:
    """After a failover Redis may not know an utterance that the listener has seen."""
    assert heard(inside.say(said(5, 4), said(6, 5), said(7, 5), said(8))) == [
        (5, 6, ""),
        (6, 7, ""),
        (7, 8, ""),
        (8, 9, ""),
    ]


def test_the_first_live_utterance_must_not_skip_another_live_one(inside: Driver) -> None:
    (problem,) = given(inside.say(said(6, 5)))
    assert problem.reason == "OUT_OF_ORDER"


@pytest.mark.parametrize("event", [said(2**60), missing(5, until=2**60), changed(2**60)])
def test_an_index_that_no_room_can_have_ends_the_stream(inside: Driver, event: RoomEvent) -> None:
    (problem,) = given(inside.say(event))
    assert problem.reason == "INVALID_MESSAGE"
    assert inside.protocol.state.chain.position == 5


def test_a_server_that_keeps_breaking_its_promises_is_given_up() -> None:
    driver = Driver()
    driver.connect()
    for _ in range(4):
        driver.say(said(2**60))
        assert retries(driver.lose())
        driver.connect()
    driver.say(said(2**60))
    assert error_in(driver.lose()).reason == "BROKEN_PROMISE"


# ---- changes ----


def test_a_change_is_sent_once_and_holds_when_it_is_confirmed(inside: Driver) -> None:
    french = Listening(language="fr", speech=True)
    inside.protocol.change(french)
    (message,) = inside.drain()
    assert message.change.listening == rooms_pb2.Listening(
        language="fr", captions=True, speech=True
    )
    assert not inside.protocol.state.is_settled
    (event,) = given(inside.say(changed(7)))
    assert isinstance(event, ListeningChanged)
    assert event.position == 7
    assert inside.protocol.state.is_settled
    assert inside.protocol.state.confirmed == french
    assert inside.drain() == []


def test_utterances_of_the_previous_language_come_first(inside: Driver) -> None:
    inside.protocol.change(Listening(language="fr"))
    inside.drain()
    inside.say(changed(7))
    # 5 and 6 were cut before, and nobody listened to French then: 7 follows a 6 in French.
    events = inside.say(said(5, 4), said(6, 5), said(7, 3, language="fr"))
    assert heard(events) == [(5, 6, ""), (6, 7, ""), (7, 8, "")]


def test_utterances_of_the_new_language_before_the_change_were_not_due(inside: Driver) -> None:
    inside.protocol.change(Listening(language="fr"))
    inside.drain()
    inside.say(said(5, 4), changed(9))
    assert heard(inside.say(said(10, 8, language="fr"))) == [(10, 11, "")]
    assert given(inside.say(said(13, 12, language="fr")))[0].reason == "OUT_OF_ORDER"


def test_several_changes_in_a_row_are_each_due_from_their_own_index(inside: Driver) -> None:
    for language, at in (("fr", 8), ("de", 12)):
        inside.protocol.change(Listening(language=language))
        inside.drain()
        inside.say(changed(at, language))
    events = inside.say(said(7, 4), said(9, 7, language="fr"), said(13, 11, language="de"))
    assert heard(events) == [(7, 8, ""), (9, 10, ""), (13, 14, "")]


def test_a_refused_change_leaves_everything_as_it_was(inside: Driver) -> None:
    inside.protocol.change(Listening(language="fr"))
    inside.drain()
    (problem,) = given(inside.say(failed(FULL)))
    assert problem.reason == "ROOM_FULL"
    state = inside.protocol.state
    assert state.is_settled
    assert state.change_error is not None
    assert state.wanted == state.confirmed == Listening(language="es")
    assert inside.drain() == []
    inside.lose()
    assert inside.connect().listening.language == "es"


def test_a_change_without_a_connection_is_sent_after_joining_again(inside: Driver) -> None:
    inside.lose()
    inside.protocol.change(Listening(language="fr"))
    assert inside.connect().listening.language == "es"
    assert [kind(each) for each in inside.drain()] == ["change"]


def test_an_unanswered_change_is_repeated_on_the_next_stream(inside: Driver) -> None:
    inside.protocol.change(Listening(language="fr"))
    inside.drain()
    inside.lose()
    inside.connect()
    assert [kind(each) for each in inside.drain()] == ["change"]


def test_a_newer_change_waits_for_the_answer_to_the_one_before(inside: Driver) -> None:
    inside.protocol.change(Listening(language="fr"))
    inside.drain()
    inside.protocol.change(Listening(language="de"))
    assert inside.drain() == []
    inside.say(changed(7))
    assert not inside.protocol.state.is_settled
    (message,) = inside.drain()
    assert message.change.listening.language == "de"


def test_a_connection_that_breaks_during_a_change_hides_no_utterance(inside: Driver) -> None:
    inside.protocol.change(Listening(language="fr"))
    inside.drain()
    inside.say(changed(9), said(5, 4))
    inside.lose()
    assert inside.connect(position=10).listening.language == "fr"
    # 6 to 8 were due in Spanish, and French begins with 9.
    assert heard(inside.say(said(9, None, language="fr"), said(12, 9, language="fr"))) == [
        (6, 9, "LISTENING_CHANGED"),
        (9, 10, ""),
        (12, 13, ""),
    ]


def test_who_was_away_for_too_long_is_told_what_was_not_translated_for_it(inside: Driver) -> None:
    inside.say(said(5, 4))
    inside.lose()
    inside.now += 20
    inside.connect(position=9)
    # Nobody listened to Spanish while 6 and 7 were said. After 9, gaps are as always.
    assert heard(inside.say(said(8, 5), said(12, 8))) == [
        (6, 8, "AWAY"),
        (8, 9, ""),
        (12, 13, ""),
    ]


def test_who_was_away_for_a_moment_has_missed_nothing(inside: Driver) -> None:
    inside.say(said(5, 4))
    inside.lose()
    inside.now += 14
    inside.connect(position=9)
    assert heard(inside.say(said(8, 5))) == [(8, 9, "")]


# ---- going elsewhere ----


def test_it_leaves_a_gateway_that_goes_away_when_its_time_has_come(inside: Driver) -> None:
    inside.say(go_away(after_ms=2000))
    assert inside.tick(1.9) == []
    assert heard(inside.say(said(5, 4))) == [(5, 6, "")]
    (close,) = inside.tick(0.2)
    assert close == Close(Moved(0.0, "draining"))
    assert retries(inside.lose(Moved(0.0, "draining"))) == [0.0]


def test_a_silent_gateway_is_left_and_the_next_one_gets_more_time() -> None:
    driver = Driver()
    driver.connect(silence_ms=3000)
    for _ in range(5):
        assert driver.tick(0.5) == []
    (close,) = driver.tick(0.5)
    assert isinstance(close, Close)
    assert close.ending == Lost("the gateway sent nothing for 3 s", silent=True)
    driver.lose(close.ending)
    driver.connect(silence_ms=3000)
    for _ in range(5):
        assert driver.tick(1.0) == []
    assert driver.tick(1.0)


def test_an_empty_message_is_a_sign_of_life() -> None:
    driver = Driver()
    driver.connect(silence_ms=3000)
    for _ in range(20):
        driver.say()
        assert driver.tick(0.5) == []


def test_an_unanswered_join_is_tried_elsewhere() -> None:
    driver = Driver()
    driver.protocol.on_connected(driver.now)
    driver.drain()
    (close,) = driver.tick(10.0)
    assert isinstance(close, Close)
    assert close.ending == Lost("JoinRoom was not answered in time", silent=True)


@pytest.mark.parametrize("reason", [DRAINING, DOWN, common_pb2.ERROR_REASON_BACKPRESSURE])
def test_what_may_pass_is_tried_again(
    reason: common_pb2.ErrorReason.ValueType, inside: Driver
) -> None:
    assert retries(Driver().refuse(reason))
    inside.say(failed(reason))
    effects = inside.lose()
    assert retries(effects)
    assert inside.connect(position=6).member_id == "m-1"


def test_it_waits_as_long_as_the_gateway_asks(inside: Driver) -> None:
    inside.lose()
    assert retries(inside.refuse(DOWN, retry_after_ms=4000)) == [4.0]


def test_it_gives_up_joining_after_ten_seconds_and_says_why() -> None:
    driver = Driver()
    while retries(effects := driver.refuse(DOWN)):
        driver.now += 2
    error = error_in(effects)
    assert isinstance(error, RoomUnavailableError)
    assert error.reason == "SCHEDULER_DEPENDENCY_DOWN"


def test_a_listener_that_was_inside_tries_for_five_minutes(inside: Driver) -> None:
    inside.now += 2
    inside.lose()
    began = inside.now
    while True:
        inside.protocol.on_connected(inside.now)
        inside.drain()
        effects = inside.lose(Lost("UNAVAILABLE: gone"))
        if not retries(effects):
            break
        inside.now += 5
    error = error_in(effects)
    assert error.reason == "UNREACHABLE"
    assert "UNAVAILABLE: gone" in error.message
    assert 295 <= inside.now - began <= 310


# ---- how it ends ----


@pytest.mark.parametrize("reason", [NOT_FOUND, DENIED, FULL, CLOSED, INVALID])
def test_a_refusal_at_the_door_is_final(reason: common_pb2.ErrorReason.ValueType) -> None:
    error = error_in(Driver().refuse(reason))
    assert isinstance(error, RoomRefusedError)
    assert error.reason == common_pb2.ErrorReason.Name(reason).removeprefix("ERROR_REASON_")


@pytest.mark.parametrize("reason", [NOT_FOUND, DENIED, FULL])
def test_a_refusal_of_somebody_who_was_inside_says_where_it_was(
    reason: common_pb2.ErrorReason.ValueType, inside: Driver
) -> None:
    inside.say(said(5, 4))
    inside.lose()
    error = error_in(inside.refuse(reason))
    assert error.position == 6  # type: ignore[attr-defined]


def test_a_closed_room_ends_the_listener_well(inside: Driver) -> None:
    effects = inside.say(said(5, 4), room_closed(6))
    assert heard(effects) == [(5, 6, "")]
    assert is_over(effects)
    assert inside.protocol.state.room_closed
    assert inside.lose() == []


def test_a_room_that_was_closed_meanwhile_ends_the_listener_well(inside: Driver) -> None:
    inside.lose()
    assert is_over(inside.refuse(CLOSED))


def test_leaving_tells_the_gateway(inside: Driver) -> None:
    effects = inside.protocol.leave()
    assert Close(Left(), graceful=True) in effects
    assert is_over(effects)
    assert [kind(each) for each in inside.drain()] == ["leave"]
    assert given(inside.say(said(5, 4))) == []
    assert inside.lose() == []
    assert inside.protocol.leave() == []


def test_leaving_without_a_connection_ends_at_once(inside: Driver) -> None:
    inside.lose()
    assert is_over(inside.protocol.leave())
    assert inside.drain() == []


def test_a_status_is_shown(inside: Driver) -> None:
    status = rooms_pb2.RoomStatus(
        listeners=3,
        languages=[rooms_pb2.RoomLanguage(language="es", listeners=2, waiting=1)],
        speakers=[rooms_pb2.RoomSpeakerInfo(session_id="s-1", name="Ana", language="en")],
    )
    (effect,) = inside.say(RoomEvent(status=status))
    assert isinstance(effect, Show)
    assert effect.status.listeners == 3
    assert effect.status.languages[0].waiting == 1
    assert effect.status.speakers[0].name == "Ana"


def test_an_error_after_which_the_stream_goes_on_is_a_problem(inside: Driver) -> None:
    (problem,) = given(inside.say(failed(DOWN)))
    assert isinstance(problem, Problem)
    assert heard(inside.say(missing(5, 4))) == [(5, 6, "JOB_TIMEOUT")]
    (event,) = given(inside.say(missing(6, 5)))
    assert isinstance(event, NotSaid)
    assert event.message == "too late"
