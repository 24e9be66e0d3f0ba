"""Decides which chunks wait to share a message with the next ones. No I/O, no clock.

A message costs a gateway far more than the chunks in it, and audio in the middle of speech is not
urgent: the gateway only gathers it. What may be urgent never waits: the end of an utterance, a
change of direction, and the first audio after either, which may still belong to the utterance that
has ended.
"""

# Audio of this duration shares a message, unless the app asks for another one.
SHARE_MS = 300
# Audio after an end that is sent at once: longer than a gateway's hangover usually is.
AFTER_END_MS = 500.0
# Audio waits for at most this share of a pause, so that no wait looks like a pause.
_OF_A_PAUSE = 1 / 8


class Sharing:
    """Which chunks of a session wait.

    Args:
        share_ms: send at the latest when the waiting audio is this long; 0: nothing waits.
    """

    def __init__(self, share_ms: float) -> None:
        self._share_ms = share_ms
        self._waiting_ms = 0.0
        self._since_end_ms = 0.0

    def waits(self, lasts_ms: float, *, pause_ms: float, max_chunks: int) -> bool:
        """Whether a new chunk, and all before it that wait, may wait for the next one.

        Args:
            lasts_ms: how long the chunk lasts.
            pause_ms: the silence that ends an utterance; 0: unknown.
            max_chunks: the most chunks that the gateway takes in a message.
        """
        self._since_end_ms += lasts_ms
        self._waiting_ms += lasts_ms
        longest_ms = self.longest_ms(pause_ms)
        if max_chunks > 1 and self._since_end_ms > AFTER_END_MS and self._waiting_ms < longest_ms:
            return True
        self._waiting_ms = 0.0
        return False

    def longest_ms(self, pause_ms: float) -> float:
        """How long a chunk waits at most, whether another one follows or not."""
        return min(self._share_ms, pause_ms * _OF_A_PAUSE)

    def end(self) -> None:
        """The utterance ends here: the next audio does not wait."""
        self._waiting_ms = self._since_end_ms = 0.0
