"""How fast a client may send, and how many may be connected."""

from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.runtime.web.connections import Connections
from lingua_scheduler.services.session_gateway.web.pace import Pace


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_is_read_at_once_and_what_follows_at_the_rate() -> None:
    pace = Pace(per_s=10, burst=6, clock=Clock())
    assert [round(pace.wait_s(), 6) for _ in range(5)] == [0.0, 0.0, 0.0, 0.1, 0.2]


def test_only_what_need_not_wait_passes_without_asking_the_time() -> None:
    pace = Pace(per_s=10, burst=4, clock=Clock())
    assert [pace.passes() for _ in range(4)] == [True, True, False, False]
    assert round(pace.wait_s(), 6) == 0.1


def test_quiet_time_is_saved_up_to_a_burst() -> None:
    clock = Clock()
    pace = Pace(per_s=10, burst=4, clock=clock)
    for _ in range(2):
        pace.wait_s()
    clock.now = 1000.0
    assert [round(pace.wait_s(), 6) for _ in range(3)] == [0.0, 0.0, 0.1]


@given(st.lists(st.floats(0, 0.3), max_size=60), st.integers(1, 50), st.integers(2, 20))
def test_no_client_exceeds_its_rate(gaps: list[float], per_s: int, burst: int) -> None:
    clock = Clock()
    pace, read = Pace(per_s=per_s, burst=burst, clock=clock), []
    for at, gap in enumerate(gaps):
        clock.now += gap
        if at % 2 or not pace.passes():
            clock.now += pace.wait_s()
        read.append(clock.now)
    for first in range(len(read)):
        for last in range(first, len(read)):
            allowed = burst + (read[last] - read[first]) * per_s
            assert last - first + 1 <= allowed + 1e-6


def test_connections_are_limited_in_all_and_by_address() -> None:
    connections = Connections(server="gateway", most=3, most_of_address=2)
    for address in ("a", "a"):
        connections.add(address)
        assert not connections.problem(address)
    connections.add("a")
    assert connections.problem("a") == "more than 2 connections from one address"
    connections.remove("a")
    assert not connections.problem("a")
    for address in ("b", "c"):
        connections.add(address)
    assert connections.problem("c") == "this gateway has too many connections"
    assert not connections.is_flooded("d")
    for address in ("d", "e"):
        connections.add(address)
    assert connections.is_flooded("f")
    for address in ("a", "a", "b", "c", "d", "e"):
        connections.remove(address)
    assert (connections.count, connections._by_address) == (0, {})


def test_one_address_cannot_flood_the_others() -> None:
    connections = Connections(server="gateway", most=100, most_of_address=2)
    for _ in range(4):
        assert not connections.is_flooded("a")
        connections.add("a")
    assert connections.is_flooded("a")
    assert not connections.is_flooded("b")


def test_an_address_of_a_proxy_has_no_limit_of_its_own() -> None:
    connections = Connections(server="gateway", most=1000, most_of_address=0)
    for _ in range(900):
        connections.add("proxy")
    assert not connections.problem("proxy")
    assert not connections.is_flooded("proxy")
