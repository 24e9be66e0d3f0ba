"""Records that a process writes for the tests, and orders that it takes from them.

A record is a JSON object on a line of its own. It has `t`, the time on the machine's monotonic
clock, which all its processes share; `what`, its kind; and more.
"""

import json
import time
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class Diary:
    """Writes records, and reads orders.

    Args:
        records: is appended to.
        orders: a file with a JSON object, which a test may replace at any time.
    """

    def __init__(self, records: Path, orders: Path) -> None:
        self._records = records.open("a", buffering=1)
        # A kill may have cut the last line of the process before.
        self._records.write("\n")
        self._orders = orders
        self._read_at = -1.0
        self._ordered: dict[str, Any] = {}

    def note(self, what: str, **more: Any) -> None:
        """Writes one record."""
        self._records.write(json.dumps({"t": time.monotonic(), "what": what, **more}) + "\n")

    def order(self, name: str) -> Any:
        """The value of an order now; 0 if there is none."""
        now = time.monotonic()
        if now > self._read_at + 0.05:
            self._read_at = now
            try:
                self._ordered = json.loads(self._orders.read_text() or "{}")
            except (OSError, json.JSONDecodeError):
                self._ordered = {}
        return self._ordered.get(name, 0)


def read_records(path: Path) -> list[Record]:
    """All complete records of a file; a line that a kill has cut is left out."""
    if not path.exists():
        return []
    lines = (line for line in path.read_text().split("\n") if line.endswith("}"))
    return [json.loads(line) for line in lines if line.startswith("{")]
