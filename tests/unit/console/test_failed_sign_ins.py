"""How many wrong tokens an address may send."""

from lingua_scheduler.services.console.http.failed_sign_ins import (
    BURST,
    MAX_ADDRESSES,
    REFILL_S,
    FailedSignIns,
)


class Clock:
    """A clock that stands still."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def failed(clock: Clock, times: int, address: str = "10.0.0.1") -> FailedSignIns:
    made = FailedSignIns(clock)
    for _ in range(times):
        assert not made.wait_s(address)
        made.add(address)
    return made


def test_an_address_may_fail_some_times_and_then_has_to_wait() -> None:
    clock = Clock()
    sign_ins = failed(clock, BURST)
    wait = sign_ins.wait_s("10.0.0.1")
    assert 0 < wait <= REFILL_S
    clock.now += wait - 0.001
    assert sign_ins.wait_s("10.0.0.1")
    clock.now += 0.002
    assert not sign_ins.wait_s("10.0.0.1")
    sign_ins.add("10.0.0.1")
    assert sign_ins.wait_s("10.0.0.1")


def test_other_addresses_are_not_affected() -> None:
    assert not failed(Clock(), BURST).wait_s("10.0.0.2")


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    sign_ins = failed(Clock(), BURST, "2001:db8::1")
    assert sign_ins.wait_s("2001:db8::ffff")
    assert not sign_ins.wait_s("2001:db8:0:1::1")


def test_the_number_of_addresses_is_bounded() -> None:
    sign_ins = failed(Clock(), BURST, "10.0.0.1")
    for number in range(MAX_ADDRESSES):
        sign_ins.add(f"172.{16 + number // 65536}.{number // 256 % 256}.{number % 256}")
    assert not sign_ins.wait_s("10.0.0.1")
