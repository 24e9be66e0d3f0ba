"""Watches a stream to another service: asks a silent peer, and cuts the stream if it stays so."""

import asyncio
from collections.abc import Callable

from lingua_scheduler.silence import Silence, Verdict


class StreamWatch:
    """Applies `Silence` on a timer. A busy stream costs one assignment per message.

    Args:
        silence_ms: how long the peer may say nothing.
        ask: called if the peer has been silent for a while; has to send something that the peer
            answers at once.
        cut: called with the reason if the peer is frozen; then the watch is over.
    """

    def __init__(
        self, *, silence_ms: int, ask: Callable[[], None], cut: Callable[[str], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._ask = ask
        self._cut = cut
        self.silence = Silence(self._loop.time(), silence_ms / 1000)
        """Set `heard` on it with each message."""
        self._timer = self._loop.call_at(self.silence.due, self._beat)

    def stop(self) -> None:
        """Ends the watch. A timer that is left would keep the stream, and so its connection."""
        self._timer.cancel()

    def _beat(self) -> None:
        verdict = self.silence.beat(self._loop.time())
        if verdict is Verdict.SILENT:
            self._cut(f"it has said nothing for {self.silence.silence_s:g} s")
            return
        self._timer = self._loop.call_at(self.silence.due, self._beat)
        if verdict is Verdict.ASK:
            self._ask()
