"""Results and failures that another home was sent, and has not confirmed yet.

A home confirms a report once a gateway has taken it, or once it is kept. A home that dies or stands
still before that takes the report along: the node has said it once, and says it again only if it is
asked. A gateway that lived in the same process is gone as well, and nobody else has the audio. So
the reports are remembered here, and given to those who keep the results of dead homes.

Pure: no clock, no I/O.
"""

from collections import OrderedDict
from collections.abc import Callable

from lingua_scheduler.services.dispatcher.nodes.stream import AttemptKey, attempt_key
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

Report = dispatcher_pb2.JobResult | dispatcher_pb2.JobFailed


class UnconfirmedReports:
    """The reports of one home's attempts, the oldest first.

    Args:
        max_bytes: of all of them; beyond that, the oldest are given up.
        give_up: called with the node and its report, which is then forgotten here.
    """

    def __init__(self, *, max_bytes: int, give_up: Callable[[str, Report], None]) -> None:
        self._max_bytes = max_bytes
        self._give_up = give_up
        self._reports: OrderedDict[tuple[str, AttemptKey], tuple[float, Report, int]] = (
            OrderedDict()
        )
        self._bytes = 0

    def __len__(self) -> int:
        """How many there are."""
        return len(self._reports)

    def add(self, now: float, node_id: str, report: Report, size: int) -> None:
        """A report was passed on to the home."""
        self.confirm(node_id, report.attempt)
        self._reports[node_id, attempt_key(report.attempt)] = (now, report, size)
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._give_up_first()

    def confirm(self, node_id: str, attempt: common_pb2.AttemptRef) -> None:
        """The home has the report, or does not want it. Of an unknown one nothing happens."""
        found = self._reports.pop((node_id, attempt_key(attempt)), None)
        if found is not None:
            self._bytes -= found[2]

    def give_up_older(self, than: float) -> None:
        """Gives up all reports that were passed on before that time."""
        while self._reports and next(iter(self._reports.values()))[0] < than:
            self._give_up_first()

    def give_up_all(self) -> None:
        """The home is gone."""
        while self._reports:
            self._give_up_first()

    def _give_up_first(self) -> None:
        (node_id, _), (_, report, size) = self._reports.popitem(last=False)
        self._bytes -= size
        self._give_up(node_id, report)
