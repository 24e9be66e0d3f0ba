"""Collects what is wrong with a message: declared limits, and rules about several fields."""

from collections.abc import Collection

from google.protobuf.message import Message

from lingua_scheduler.services.runtime.contract import limits


class Check:
    """Collects the violations of a message, and raises them together.

    Args:
        path: prefix of the names of fields, such as "job.".
    """

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._found: list[limits.Violation] = []

    def limits(self, message: Message) -> None:
        """Adds every field that violates its declared limits."""
        self._found += limits.violations(message, self._path)

    def no(self, field: str, problem: str) -> None:
        """Adds a violation."""
        self._found.append((self._path + field, problem))

    def done(self) -> None:
        """Raises InvalidMessageError if there were violations."""
        limits.refuse(self._found)

    def one_of(self, field: str, value: int, allowed: Collection[int], names: str) -> None:
        """Checks that an enum value is one of those allowed here."""
        if value not in allowed:
            self.no(field, f"{value} must be {names}")

    def preference(self, preferred_node_id: str, strict: bool, path: str = "") -> None:
        """Checks that a strict preference names a node."""
        if strict and not preferred_node_id:
            self.no(f"{path}strict", "needs preferred_node_id")
