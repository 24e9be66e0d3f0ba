"""How many wrong tokens an address may send. Pure."""

import ipaddress
from collections import OrderedDict
from collections.abc import Callable

# Wrong tokens that an address may send at once, and the seconds after which it may send another.
BURST = 10
REFILL_S = 6.0
# Addresses that are remembered; the one that failed longest ago is forgotten first.
MAX_ADDRESSES = 10_000
# Whoever has an address of IPv6 usually has the whole network.
_V6_BITS = 64


class FailedSignIns:
    """Counts wrong tokens by address, as a bucket that leaks.

    Args:
        clock: the time, in seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Failures that have not leaked yet, and when they were counted.
        self._failures: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """How long an address has to wait before its next token is checked; 0 for not at all."""
        return max(0.0, (self._level(_network(address)) - BURST + 1) * REFILL_S)

    def add(self, address: str) -> None:
        """A token from this address was wrong."""
        network = _network(address)
        self._failures[network] = self._level(network) + 1, self._clock()
        self._failures.move_to_end(network)
        if len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)

    def _level(self, network: str) -> float:
        level, at = self._failures.get(network, (0.0, 0.0))
        return max(0.0, level - (self._clock() - at) / REFILL_S)


def _network(address: str) -> str:
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is None:
        return str(ipaddress.IPv6Network((int(ip), _V6_BITS), strict=False))
    return str(ip)
