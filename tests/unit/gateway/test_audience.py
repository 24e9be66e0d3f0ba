"""The listeners of a room at one gateway, one case at a time."""

from lingua_scheduler.services.session_gateway.rooms import audience as audience_module
from lingua_scheduler.services.session_gateway.rooms.audience import Audience
from lingua_scheduler.services.session_gateway.rooms.lane import Form, Gap
from lingua_scheduler.services.session_gateway.rooms.lane_reads import Deliver, Effect, Read
from tests.unit.gateway.audience_world.lanes import Said

TEXT, SPOKEN = Form.CAPTIONS, Form.CAPTIONS | Form.SPEECH
REPLAYED = Form.CAPTIONS | Form.REPLAYED


def said(*indexes: int, after: int | None = None) -> list[Said]:
    """Consecutive outcomes of a lane."""
    before = [after, *indexes]
    return [Said(index, before[at], True) for at, index in enumerate(indexes)]


def read_of(effects: list[Effect[str]]) -> Read:
    """The only effect, which is a read."""
    (effect,) = effects
    assert isinstance(effect, Read)
    return effect


def got(effects: list[Effect[str]]) -> list[tuple[Form, list[int], tuple[str, ...]]]:
    """What is delivered to whom; a gap is its first index, negated."""
    return [
        (
            each.form,
            [-item.first if isinstance(item, Gap) else item.index for item in each.items],
            each.listeners,
        )
        for each in effects
        if isinstance(each, Deliver)
    ]


def with_listener(*, form: Form = TEXT, cursor: int = 5) -> Audience[str]:
    """An audience with one listener of German, at the cursor."""
    audience: Audience[str] = Audience(replayed=0)
    first = audience.on_join("a", language="de", form=form, next_index=cursor)
    assert not audience.on_read(read_of(first).number, said(*([cursor - 1] if cursor else [])))
    return audience


def test_one_read_and_one_delivery_serve_all_listeners_of_a_form() -> None:
    audience = with_listener()
    for name in "bcd":
        form = SPOKEN if name == "d" else TEXT
        assert not audience.on_join(name, language="de", form=form, next_index=5)
    read = read_of(audience.on_news("de"))
    assert (read.start, read.with_audio, read.is_own) == (5, True, False)
    delivered = audience.on_read(read.number, said(5, 7, after=4))
    assert got(delivered) == [(TEXT, [5, 7], ("a", "b", "c")), (SPOKEN, [5, 7], ("d",))]


def test_news_during_a_read_lead_to_another_one() -> None:
    audience = with_listener()
    read = read_of(audience.on_news("de"))
    assert not audience.on_news("de")
    assert not audience.on_news("de")
    assert read_of(audience.on_read(read.number, [])).start == 5


def test_a_language_that_nobody_listens_to_is_not_read() -> None:
    audience = with_listener()
    assert not audience.on_news("fr")
    assert not audience.on_leave("a")
    assert not audience.on_news("de")
    assert not audience.on_poll()
    assert len(audience) == 0


def test_listeners_that_resume_at_the_same_position_share_a_read() -> None:
    audience = with_listener(cursor=50)
    read = read_of(audience.on_join("b", language="de", form=TEXT, next_index=50, position=40))
    assert read.is_own
    assert not audience.on_join("c", language="de", form=TEXT, next_index=50, position=40)
    delivered = audience.on_read(read.number, said(40, 45, 49, after=39))
    assert got(delivered) == [(TEXT, [40, 45, 49], ("b", "c"))]
    # From now on they are like all others.
    read = read_of(audience.on_news("de"))
    assert got(audience.on_read(read.number, said(50, after=49))) == [(TEXT, [50], ("a", "b", "c"))]


def test_what_is_no_longer_kept_is_one_gap() -> None:
    audience = with_listener(cursor=50)
    read = read_of(audience.on_join("b", language="de", form=TEXT, next_index=50, position=10))
    (deliver,) = audience.on_read(read.number, said(30, 49, after=29))
    assert isinstance(deliver, Deliver)
    assert deliver.items[0] == Gap("de", 10, 30)
    assert got([deliver]) == [(TEXT, [-10, 30, 49], ("b",))]


def test_a_new_listener_gets_the_last_captions_and_then_what_was_said_before_it_came() -> None:
    audience: Audience[str] = Audience(replayed=2)
    read = read_of(audience.on_join("a", language="de", form=SPOKEN, next_index=9))
    assert (read.newest, read.count, read.with_audio) == (True, 2, False)
    assert got(audience.on_read(read.number, said(5, 6, after=4))) == [(REPLAYED, [5, 6], ("a",))]
    # 7 and 8 had no outcome when it came.
    read = read_of(audience.on_news("de"))
    assert got(audience.on_read(read.number, said(7, 8, 9, after=6))) == [
        (REPLAYED, [7, 8], ("a",)),
        (SPOKEN, [9], ("a",)),
    ]
    # The next one needs no read.
    assert got(audience.on_join("b", language="de", form=TEXT, next_index=10)) == [
        (REPLAYED, [8, 9], ("b",))
    ]


def test_a_change_of_language_waits_for_what_is_open_in_the_old_one() -> None:
    audience = with_listener(cursor=5)
    assert not audience.on_changing("a")
    read = read_of(
        audience.on_change("a", language="fr", form=TEXT, next_index=8, last_open=7),
    )
    assert (read.language, read.start) == ("de", 5)
    assert got(audience.on_read(read.number, said(6, after=4))) == [(TEXT, [6], ("a",))]
    read = read_of(audience.on_news("de"))
    effects = audience.on_read(read.number, said(7, after=6))
    assert got(effects) == [(TEXT, [7], ("a",))]
    assert [each.language for each in effects if isinstance(each, Read)] == ["fr"]


def test_a_read_that_began_before_a_change_does_not_end_the_old_language() -> None:
    audience = with_listener(cursor=5)
    audience.on_join("b", language="de", form=TEXT, next_index=5)
    # Redis has executed this read before 5 was published, and the change after that.
    early = read_of(audience.on_news("de"))
    audience.on_changing("a")
    assert not audience.on_change("a", language="fr", form=TEXT, next_index=6, last_open=-1)
    late = read_of(audience.on_read(early.number, []))
    assert (late.language, late.start) == ("de", 5)
    assert got(audience.on_read(late.number, said(5, after=4))) == [
        (TEXT, [5], ("b",)),
        (TEXT, [5], ("a",)),
    ]


def test_nothing_is_delivered_in_the_old_language_while_a_change_is_under_way() -> None:
    audience = with_listener(cursor=5)
    audience.on_join("b", language="de", form=TEXT, next_index=5)
    read = read_of(audience.on_news("de"))
    audience.on_changing("a")
    assert got(audience.on_read(read.number, said(5, after=4))) == [(TEXT, [5], ("b",))]
    # It failed: the listener goes on in German, without a hole.
    own = read_of(audience.on_unchanged("a"))
    assert (own.is_own, own.start) == (True, 5)
    assert got(audience.on_read(own.number, said(5, after=4))) == [(TEXT, [5], ("a",))]


def test_audio_that_somebody_came_to_hear_during_a_read_is_read_as_well() -> None:
    audience = with_listener(cursor=5)
    read = read_of(audience.on_news("de"))
    assert not read.with_audio
    audience.on_join("b", language="de", form=SPOKEN, next_index=5)
    again = read_of(audience.on_read(read.number, said(5, after=4)))
    assert (again.start, again.with_audio) == (5, True)


def test_a_read_that_failed_is_repeated_at_the_next_poll() -> None:
    audience = with_listener(cursor=50)
    own = read_of(audience.on_join("b", language="de", form=TEXT, next_index=50, position=40))
    lane = read_of(audience.on_news("de"))
    assert not audience.on_read_failed(own.number)
    assert not audience.on_read_failed(lane.number)
    starts = [each.start for each in audience.on_poll() if isinstance(each, Read)]
    assert sorted(starts) == [40, 50]


def test_nobody_waits_for_what_redis_has_lost() -> None:
    audience = with_listener(cursor=5)
    audience.on_changing("a")
    read = read_of(audience.on_change("a", language="fr", form=TEXT, next_index=8, last_open=7))
    assert not audience.on_read(read.number, [])
    read = read_of(audience.on_restored())
    effects = audience.on_read(read.number, [])
    assert [each.language for each in effects if isinstance(each, Read)] == ["fr"]


def test_another_form_begins_after_what_is_open_in_the_same_language() -> None:
    audience = with_listener(cursor=5)
    audience.on_changing("a")
    read = read_of(audience.on_change("a", language="de", form=SPOKEN, next_index=8, last_open=-1))
    assert not audience.on_read(read.number, [])
    read = read_of(audience.on_news("de"))
    assert got(audience.on_read(read.number, said(6, 7, after=4))) == [(TEXT, [6, 7], ("a",))]


def test_changes_between_which_nothing_was_said_are_one_change() -> None:
    audience = with_listener(cursor=5)
    for language in ("fr", "de", "en", "fr") * audience_module.MOST_CHANGES:
        assert audience.may_change("a")
        audience.on_changing("a")
        last_open = 7 if language != "de" else -1
        audience.on_change("a", language=language, form=TEXT, next_index=8, last_open=last_open)
    assert audience.may_change("a")


def test_a_listener_cannot_pile_up_changes() -> None:
    audience = with_listener(cursor=5)
    for change in range(audience_module.MOST_CHANGES):
        assert audience.may_change("a"), change
        audience.on_changing("a")
        audience.on_change(
            "a", language="fr", form=TEXT, next_index=8 + change, last_open=7 + change
        )
    assert not audience.may_change("a")
    assert not audience.may_change("nobody")
