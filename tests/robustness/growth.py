"""Whether processes grow: the verdict of a soak, from samples taken at regular times.

The verdict is by kind of service, on the sum over its instances: sessions move from one gateway to
another and nodes from one dispatcher to another, so a process may grow while its kind does not.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

# Share of the samples to ignore at the beginning: caches fill, connection pools grow.
WARM_UP = 0.25
# How much more each instance may have at the end than at the beginning, on average.
MORE_MB = 6.0
MORE_FILES = 4
# Connections of sessions that vanish linger for seconds. A leak would be hundreds.
MORE_FILES_OF_A_GATEWAY = 20
MORE_TASKS = 6


class Sample(NamedTuple):
    """One process, or all of a kind, at one time; tasks is -1 if it cannot be asked."""

    mb: float
    files: int
    tasks: int


class Growth(NamedTuple):
    """A kind of process: medians of the first and the last quarter after the warm-up."""

    kind: str
    instances: int
    first: Sample
    last: Sample
    most_mb: float

    @property
    def is_flat(self) -> bool:
        """Whether it has grown by no more than it may."""
        more_files = MORE_FILES_OF_A_GATEWAY if self.kind == "gateway" else MORE_FILES
        return (
            self.last.mb <= self.first.mb + self.instances * MORE_MB
            and self.last.files <= self.first.files + self.instances * more_files
            and self.last.tasks <= self.first.tasks + self.instances * MORE_TASKS
        )


def growth_by_kind(samples: Mapping[str, Sequence[Sample]]) -> list[Growth]:
    """The growth of every kind of process.

    Args:
        samples: of each process, taken at the same times; "gateway-0" is an instance of "gateway".
    """
    kinds: dict[str, list[Sequence[Sample]]] = {}
    for name, taken in samples.items():
        kinds.setdefault(name.partition("-")[0], []).append(taken)
    return [_growth(kind, instances) for kind, instances in kinds.items()]


def _growth(kind: str, instances: Sequence[Sequence[Sample]]) -> Growth:
    sums = [_sum(at_once) for at_once in zip(*instances, strict=True)]
    after = sums[int(len(sums) * WARM_UP) :]
    quarter = max(1, len(after) // 4)
    return Growth(
        kind,
        len(instances),
        _medians(after[:quarter]),
        _medians(after[-quarter:]),
        max(each.mb for each in sums),
    )


def _sum(at_once: Sequence[Sample]) -> Sample:
    mb, files, tasks = zip(*at_once, strict=True)
    return Sample(sum(mb), sum(files), -1 if -1 in tasks else sum(tasks))


def _medians(samples: Sequence[Sample]) -> Sample:
    mb, files, tasks = (statistics.median(column) for column in zip(*samples, strict=True))
    return Sample(mb, round(files), round(tasks))
