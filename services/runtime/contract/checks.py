"""Checks that concern several fields at once, beside the limits that the contract declares."""

from collections.abc import Collection

from google.protobuf.message import Message

from lingua_scheduler.services.runtime.contract import limits


class Check:
    """Collects what is wrong with a message, and raises it all at once.

    Args:
        path: what stands before every field's name, such as "job.".
    """

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._found: list[limits.Problem] = []

    def limits(self, message: Message) -> None:
        """Notes every field that is over its declared limits."""
        self._found += limits.problems(message, self._path)

    def no(self, field: str, problem: str) -> None:
        """Notes that a field is bad."""
        self._found.append((self._path + field, problem))

    def done(self) -> None:
        """Raises InvalidMessageError if a field was bad."""
        limits.refuse(self._found)

    def one_of(self, field: str, value: int, allowed: Collection[int], names: str) -> None:
        """An enum value that has a meaning here."""
        if value not in allowed:
            self.no(field, f"{value} must be {names}")

    def preference(self, preferred_node_id: str, strict: bool, path: str = "") -> None:
        """The node that is preferred, and whether it is the only one."""
        if strict and not preferred_node_id:
            self.no(f"{path}strict", "needs preferred_node_id")
