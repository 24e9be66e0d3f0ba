"""HeldAudio keeps audio from one job of a turn to the next."""

import pytest

from lingua_scheduler.sdk import (
    AudioFormat,
    HeldAudio,
    HeldAudioMissingError,
    HeldTooLargeError,
    Job,
    Pair,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def job(
    index: int,
    audio: bytes,
    *,
    session: str = "s",
    pair: tuple[str, str] = ("en", "zh"),
    rate: int = 16_000,
    begins_turn: bool = False,
) -> Job:
    return Job(
        job_id=f"{session}-{index}",
        session_id=session,
        utterance_index=index,
        pair=Pair(*pair),
        audio=audio,
        audio_format=AudioFormat(sample_rate_hz=rate),
        begins_turn=begins_turn,
    )


def test_kept_audio_comes_before_the_next_jobs_own_in_the_order_of_utterances() -> None:
    held = HeldAudio()
    held.keep(job(2, b"bb"))
    held.keep(job(1, b"aa"))
    turn = held.join(job(3, b"cc"))
    assert (turn.audio, turn.joined) == (b"aabbcc", (1, 2))


def test_a_turn_belongs_to_one_session_and_one_direction() -> None:
    held = HeldAudio()
    held.keep(job(1, b"aa"))
    assert held.join(job(2, b"x", session="other")).joined == ()
    assert held.join(job(2, b"x", pair=("zh", "en"))).joined == ()
    assert held.join(job(2, b"x", pair=("EN", "ZH"))).joined == (1,)


def test_a_turn_is_forgotten_at_its_end_unless_it_is_kept() -> None:
    held = HeldAudio()
    with held.turn(job(1, b"aa")) as turn:
        turn.keep()
    assert held.size == 2
    with held.turn(job(2, b"bb")) as turn:
        assert turn.audio == b"aabb"
    assert (len(held), held.size) == (0, 0)


def test_a_handler_that_fails_leaves_the_turn_as_it_was() -> None:
    held = HeldAudio()
    held.keep(job(1, b"aa"))

    def fail() -> None:
        with held.turn(job(2, b"bb")):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert held.join(job(2, b"bb")).audio == b"aabb"


def test_a_repeated_attempt_replaces_what_the_first_one_kept() -> None:
    held = HeldAudio()
    held.keep(job(1, b"aa"))
    held.keep(job(1, b"aaaa"))
    assert held.size == 4
    assert held.join(job(1, b"aaaa")).audio == b"aaaa"


def test_audio_of_another_format_is_not_joined() -> None:
    held = HeldAudio()
    held.keep(job(1, b"aa"))
    assert held.join(job(2, b"bb", rate=8000)).audio == b"bb"


def test_audio_that_nobody_asks_for_is_forgotten_in_time() -> None:
    clock = Clock()
    held = HeldAudio(keep_seconds=10, clock=clock)
    held.keep(job(1, b"aa"))
    clock.now = 9.0
    held.keep(job(2, b"bb"))
    clock.now = 18.0
    assert held.join(job(3, b"")).joined == (1, 2)
    clock.now = 19.0
    assert held.join(job(3, b"")).joined == ()
    assert (held.size, held.forgotten) == (0, 1)


def test_the_turn_that_waits_longest_makes_room() -> None:
    held = HeldAudio(max_bytes=10, max_turn_bytes=6)
    for session in "abc":
        held.keep(job(1, b"1234", session=session))
    assert held.size == 8
    assert held.join(job(2, b"", session="a")).joined == ()
    assert held.join(job(2, b"", session="c")).joined == (1,)
    assert held.forgotten == 1


def test_a_turn_that_is_too_large_is_refused_and_nothing_changes() -> None:
    held = HeldAudio(max_bytes=10, max_turn_bytes=6)
    held.keep(job(1, b"1234"))
    with pytest.raises(HeldTooLargeError, match="would have 8 bytes; at most 6"):
        held.keep(job(2, b"5678"))
    assert held.join(job(3, b"")).audio == b"1234"


@pytest.mark.parametrize(
    "wrong", [{"keep_seconds": 0}, {"max_turn_bytes": 0}, {"max_bytes": 5, "max_turn_bytes": 6}]
)
def test_limits_have_to_make_sense(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"^{list(wrong)[-1]}: "):
        HeldAudio(**wrong)


def test_a_job_joins_only_what_is_earlier_than_itself() -> None:
    held = HeldAudio()
    held.keep(job(5, b"ee"))
    with held.turn(job(4, b"dd")) as turn:
        assert (turn.audio, turn.joined) == (b"dd", ())
    assert held.join(job(6, b"ff")).audio == b"eeff"
    assert held.size == 2


def test_what_follows_a_turn_whose_end_is_under_way_is_a_turn_of_its_own() -> None:
    held = HeldAudio()
    held.keep(job(1, b"aa"))
    with held.turn(job(2, b"bb")) as end:
        with held.turn(job(3, b"cc")) as after:
            assert (after.audio, after.joined) == (b"cc", ())
            after.keep()
        assert (end.audio, end.joined) == (b"aabb", (1,))
    assert held.join(job(4, b"dd")).audio == b"ccdd"


def test_a_repeated_job_joins_what_its_first_attempt_has_joined() -> None:
    held = HeldAudio()
    held.keep(job(1, b"aa"))
    with held.turn(job(2, b"bb")) as first, held.turn(job(2, b"bb")) as again:
        assert first.audio == again.audio == b"aabb"
    assert (len(held), held.size) == (0, 0)


def test_what_is_left_of_a_turn_that_went_on_elsewhere_is_not_joined_to_the_next() -> None:
    held = HeldAudio()
    held.keep(job(1, b"aa"))
    with held.turn(job(4, b"dd", begins_turn=True)) as turn:
        assert (turn.audio, turn.joined) == (b"dd", ())
        turn.keep()
    assert held.size == 2
    assert held.join(job(5, b"ee")).joined == (4,)


def test_a_new_turn_leaves_what_the_end_of_the_one_before_it_has_joined() -> None:
    held = HeldAudio()
    held.keep(job(1, b"aa"))
    with held.turn(job(2, b"bb")):
        held.keep(job(3, b"cc", begins_turn=True))
        # In case the job is repeated.
        assert held.join(job(2, b"bb")).joined == (1,)
    assert held.join(job(4, b"dd")).joined == (3,)


def test_a_flush_has_no_audio_of_its_own_and_joins_all_that_is_held() -> None:
    held = HeldAudio()
    held.keep(job(1, b"aa"))
    with held.turn(job(2, b"")) as turn:
        assert (turn.audio, turn.joined) == (b"aa", (1,))
    assert (len(held), held.size) == (0, 0)


def with_indexes(
    index: int, audio: bytes, *, held: tuple[int, ...] = (), included: tuple[int, ...] = ()
) -> Job:
    return Job(
        job_id=f"s-{index}",
        session_id="s",
        utterance_index=index,
        pair=Pair("en", "zh"),
        audio=audio,
        begins_turn=bool(included),
        held=held,
        included=included,
    )


def test_audio_that_a_job_brings_along_is_joined_and_kept_with_its_own() -> None:
    held = HeldAudio()
    with held.turn(with_indexes(3, b"aabbcc", included=(1, 2))) as turn:
        assert (turn.audio, turn.joined) == (b"aabbcc", (1, 2))
        turn.keep()
    with held.turn(with_indexes(4, b"dd", held=(1, 2, 3))) as turn:
        assert (turn.audio, turn.joined) == (b"aabbccdd", (1, 2, 3))
    assert held.size == 0


def test_a_job_that_brings_everything_along_joins_nothing_that_is_held() -> None:
    held = HeldAudio()
    held.keep(with_indexes(1, b"aa"))
    with held.turn(with_indexes(2, b"aabb", included=(1,))) as turn:
        assert (turn.audio, turn.joined) == (b"aabb", (1,))


def test_a_job_that_needs_what_was_forgotten_is_not_done_without_it() -> None:
    clock = Clock()
    held = HeldAudio(keep_seconds=10, clock=clock)
    held.keep(with_indexes(1, b"aa"))
    clock.now = 11.0
    with (
        pytest.raises(HeldAudioMissingError, match="HELD_AUDIO_MISSING: the audio of utterances 1"),
        held.turn(with_indexes(2, b"bb", held=(1,))),
    ):
        raise AssertionError("the handler must not run")
    # A repeated job finds everything that it includes.
    with held.turn(with_indexes(2, b"aabb", included=(1,))) as turn:
        assert turn.joined == (1,)
