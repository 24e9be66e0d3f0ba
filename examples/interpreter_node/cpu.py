"""How busy the CPUs are, for the heartbeats."""

import os
import time
from collections.abc import Callable
from pathlib import Path

_STAT = Path("/proc/stat")
# So that one sentence does not make the machine look full: the share of a new look, a second apart.
_SMOOTHING_S = 10.0
# The scheduler gives no jobs over 0.95. The slots say already how many this node can do, so a node
# that is at work never says more than this.
MOST = 0.9


class CpuLoad:
    """Of all CPUs, smoothed over about ten seconds. To be called about once a heartbeat.

    Args:
        read: CPU seconds that were used so far and that there were, over all CPUs.
        clock: seconds that only go up.
    """

    def __init__(
        self,
        read: Callable[[], tuple[float, float]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read or (read_stat if _STAT.is_file() else read_own)
        self._clock = clock
        self._used, self._all = self._read()
        self._at = clock()
        self._load = 0.0

    def __call__(self) -> tuple[float, float]:
        """As Node.load wants it: (cpu, gpu)."""
        used, everything = self._read()
        now = self._clock()
        if everything > self._all:
            share = (used - self._used) / (everything - self._all)
            weight = min(1.0, (now - self._at) / _SMOOTHING_S)
            self._load += weight * (share - self._load)
            self._used, self._all, self._at = used, everything, now
        return min(max(self._load, 0.0), MOST), 0.0


def read_stat() -> tuple[float, float]:
    """Of the machine; Linux only."""
    ticks = [int(each) for each in _STAT.read_text().splitlines()[0].split()[1:9]]
    return float(sum(ticks) - ticks[3] - ticks[4]), float(sum(ticks))


def read_own() -> tuple[float, float]:
    """Of this process and its children, where the machine does not say."""
    times = os.times()
    return sum(times[:4]), time.monotonic() * (os.cpu_count() or 1)
