"""Results come out in order and once each, in whatever order they arrive."""

from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.session_gateway.session.delivery import ResultQueue


def expecting(count: int, first: int = 0) -> ResultQueue[str]:
    queue: ResultQueue[str] = ResultQueue(first)
    for each in range(count):
        assert queue.expect(100.0 + each) == first + each
    return queue


def test_results_come_out_in_the_order_of_their_indexes() -> None:
    queue = expecting(3)

    assert queue.put(2, "c")
    assert queue.put(1, "b")
    assert list(queue.take()) == []
    assert queue.put(0, "a")

    assert list(queue.take()) == [(0, "a"), (1, "b"), (2, "c")]
    assert list(queue.take()) == []
    assert queue.next_out == queue.next_in == 3
    assert len(queue) == 0


def test_what_can_come_out_does_not_wait_for_what_follows() -> None:
    queue = expecting(3)

    queue.put(0, "a")

    assert list(queue.take()) == [(0, "a")]
    assert len(queue) == 2


def test_the_first_outcome_of_an_index_counts() -> None:
    queue = expecting(2)

    assert queue.put(1, "first")
    assert not queue.put(1, "again")
    assert queue.put(0, "a")
    assert not queue.put(0, "again")
    assert list(queue.take()) == [(0, "a"), (1, "first")]
    assert not queue.put(0, "late")
    assert not queue.put(1, "late")
    assert list(queue.take()) == []


def test_an_outcome_that_nobody_expects_changes_nothing() -> None:
    queue = expecting(1, first=5)

    assert not queue.put(4, "before")
    assert not queue.put(6, "after")
    assert queue.put(5, "e")

    assert list(queue.take()) == [(5, "e")]
    assert queue.expect(300.0) == 6
    assert list(queue.take()) == []


def test_indexes_are_overdue_from_their_deadline_until_they_have_an_outcome() -> None:
    queue = expecting(3)
    assert queue.deadlines.next_ms == 100.0
    assert queue.deadlines.overdue(99.9) == []
    assert queue.deadlines.overdue(101.0) == [0, 1]

    queue.put(0, "a")

    assert queue.deadlines.next_ms == 101.0
    assert queue.deadlines.overdue(500.0) == [1, 2]
    queue.put(2, "c")
    queue.put(1, "b")
    assert queue.deadlines.next_ms is None
    assert queue.deadlines.overdue(500.0) == []


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("expect"), st.integers(0, 50)),
        st.tuples(st.just("put"), st.integers(0, 12)),
        st.tuples(st.just("take"), st.just(0)),
        st.tuples(st.just("give up"), st.integers(0, 60)),
    ),
    max_size=60,
)


@given(st.integers(0, 4), STEPS)
def test_each_index_comes_out_once_in_order_without_a_hole_whatever_happens(
    first: int, steps: list[tuple[str, int]]
) -> None:
    queue: ResultQueue[int] = ResultQueue(first)
    deadlines: dict[int, float] = {}
    outcomes: dict[int, int] = {}
    out: list[tuple[int, int]] = []

    def put(index: int, outcome: int) -> None:
        is_new = index in deadlines and index not in outcomes
        assert queue.put(index, outcome) == is_new
        if is_new:
            outcomes[index] = outcome

    for number, (what, value) in enumerate(steps):
        if what == "expect":
            assert queue.expect(float(value)) == first + len(deadlines)
            deadlines[first + len(deadlines)] = float(value)
        elif what == "put":
            put(value, number)
        elif what == "take":
            out += queue.take()
        else:
            for index in queue.deadlines.overdue(float(value)):
                put(index, number)
        waiting = {index: due for index, due in deadlines.items() if index not in outcomes}
        assert queue.deadlines.next_ms == min(waiting.values(), default=None)
        assert queue.deadlines.overdue(25.0) == [
            index for index, due in waiting.items() if due <= 25
        ]
        assert len(queue) == len(deadlines) - len(out)
        assert queue.next_out == first + len(out)
        assert queue.next_in == first + len(deadlines)

    for index in queue.deadlines.overdue(1000.0):
        put(index, -1)
    out += queue.take()
    assert out == [(index, outcomes[index]) for index in deadlines]
