"""What was read a moment ago, so that many readers cause one call."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from lingua_scheduler.services.runtime.errors import LinguaError

Value = TypeVar("Value")


@dataclass(slots=True)
class _Entry(Generic[Value]):
    value: Value | LinguaError
    until: float


class Kept(Generic[Value]):
    """Values by id, each read by one call at a time and kept for a while, errors as well.

    Args:
        read: reads a value. Raises LinguaError.
        keep_s: how long a value is kept; infinity for values that do not change any more.
        errors_s: how long an error is kept.
        most: how many are kept; the one that was used least recently leaves.
    """

    def __init__(
        self,
        read: Callable[[str], Awaitable[Value]],
        *,
        keep_s: Callable[[Value], float],
        errors_s: float = 2.0,
        most: int,
    ) -> None:
        self._read = read
        self._keep_s = keep_s
        self._errors_s = errors_s
        self._most = most
        self._kept: OrderedDict[str, _Entry[Value]] = OrderedDict()
        self._under_way: dict[str, asyncio.Task[_Entry[Value]]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def get(self, name: str) -> Value:
        """The value, as it is or was a moment ago. Raises LinguaError."""
        entry = self._kept.get(name)
        if entry is None or entry.until <= _now():
            task = self._under_way.get(name)
            if task is None:
                task = asyncio.create_task(self._fetch(name))
                self._under_way[name] = task
                task.add_done_callback(lambda _: self._under_way.pop(name, None))
            # A reader who leaves does not end the call for the others.
            entry = await asyncio.shield(task)
        else:
            self._kept.move_to_end(name)
        if isinstance(entry.value, LinguaError):
            # The same exception is raised for many readers, and would gather their frames.
            raise entry.value.with_traceback(None)
        return entry.value

    def known(self, name: str) -> Value | None:
        """The value that was read last, if it is still kept; reads nothing."""
        entry = self._kept.get(name)
        return None if entry is None or isinstance(entry.value, LinguaError) else entry.value

    async def _fetch(self, name: str) -> _Entry[Value]:
        entry: _Entry[Value]
        try:
            value = await self._read(name)
            entry = _Entry(value, _now() + self._keep_s(value))
        except LinguaError as error:
            entry = _Entry(error, _now() + self._errors_s)
        self._kept[name] = entry
        self._kept.move_to_end(name)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return entry


def _now() -> float:
    return asyncio.get_running_loop().time()
