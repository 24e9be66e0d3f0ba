"""CPU load for the heartbeats."""

import os
import time
from collections.abc import Callable
from pathlib import Path

_STAT = Path("/proc/stat")
# Weight of a new sample, taken a second apart: one sentence must not make the machine look full.
_SMOOTHING_S = 10.0
# The scheduler assigns no jobs above 0.95. The slots already limit the jobs of this node, so a busy
# node never reports more than this.
MOST = 0.9


class CpuLoad:
    """Load of all CPUs, smoothed over about ten seconds. Call it about once per heartbeat.

    Args:
        read: returns used and available CPU seconds so far, over all CPUs.
        clock: monotonic seconds.
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
        """The pair (cpu, gpu) for Node.load."""
        used, everything = self._read()
        now = self._clock()
        if everything > self._all:
            share = (used - self._used) / (everything - self._all)
            weight = min(1.0, (now - self._at) / _SMOOTHING_S)
            self._load += weight * (share - self._load)
            self._used, self._all, self._at = used, everything, now
        return min(max(self._load, 0.0), MOST), 0.0


def read_stat() -> tuple[float, float]:
    """CPU seconds of the machine; Linux only."""
    ticks = [int(each) for each in _STAT.read_text().splitlines()[0].split()[1:9]]
    return float(sum(ticks) - ticks[3] - ticks[4]), float(sum(ticks))


def read_own() -> tuple[float, float]:
    """CPU seconds of this process and its children, as a fallback."""
    times = os.times()
    return sum(times[:4]), time.monotonic() * (os.cpu_count() or 1)
