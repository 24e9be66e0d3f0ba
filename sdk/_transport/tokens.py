"""Tokens: where they come from, and when the next one may help. They are in no log and no error."""

import asyncio
import inspect
import re
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

from lingua_scheduler.sdk._transport.endings import Ending, Expired, Lost, Refused
from lingua_scheduler.v1 import common_pb2

# A text; a file that has it; or a function, async or blocking, that gives it.
Token = str | Path | Callable[[], str | Awaitable[str]]

# As RFC 6750 has it. Anything else cannot be sent.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_UNAUTHENTICATED = common_pb2.ERROR_REASON_UNAUTHENTICATED


class TokenSource:
    """Gives a token for every connection, and judges what a refusal means.

    A refusal is final where the token is a fixed text. Otherwise the next one is asked for, and it
    is final where that one is the same, or is refused as well.

    Args:
        token: None for none.

    Attributes:
        failure: what the function raised, where the last token could not be had.

    Raises:
        ValueError: a text that cannot be a token.
        TypeError: something else.
    """

    def __init__(self, token: Token | None) -> None:
        self.failure: Exception | None = None
        self._source = None if isinstance(token, str) else token
        self._token = _checked("token", token) if isinstance(token, str) else ""
        # The one that was refused last, and what the server said.
        self._refused = ""
        self._said = ""
        self._refusals = 0
        if not (self._source is None or isinstance(self._source, Path) or callable(self._source)):
            raise TypeError("token: must be a text, a pathlib.Path, or a function that gives it")

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What a call carries, with the token that was asked for last."""
        return (("authorization", f"Bearer {self._token}"),) if self._token else ()

    async def ask(self, within: float) -> Lost | Refused | None:
        """Gets the token of the next connection; returns why there is none, if so.

        Args:
            within: seconds that it may take.
        """
        if self._source is None:
            return None
        limit = asyncio.timeout(within)
        try:
            async with limit:
                self._token = await self._ask()
        except Exception as error:
            self.failure = error
            what = f"none within {within:.1f} s" if limit.expired() else _in_words(error)
            return Lost(f"no token: {what}")
        self.failure = None
        if self._token == self._refused:
            return _refused(f"{self._said}; and the same token was given again")
        return None

    async def _ask(self) -> str:
        source = self._source
        if isinstance(source, Path):
            return _checked(str(source), (await asyncio.to_thread(source.read_text)).strip())
        assert callable(source)
        # A blocking function may ask another server, and must not stop the event loop.
        is_async = inspect.iscoroutinefunction(source)
        given = source() if is_async else await asyncio.to_thread(source)
        return _checked(
            "what the function gave", await given if inspect.isawaitable(given) else given
        )

    def judge(self, ending: Ending, *, good: bool) -> Ending:
        """How a stream has ended, if another token may help.

        Args:
            ending: as the server said it.
            good: whether the server had taken the stream in.
        """
        if good:
            self._refused, self._refusals = "", 0
        if not isinstance(ending, Refused) or ending.error.reason != _UNAUTHENTICATED:
            return ending
        self._refusals += 1
        self._refused, self._said = self._token, ending.error.message
        if self._source is not None and self._refusals == 1:
            return Expired(f"UNAUTHENTICATED: {self._said}")
        return _refused(f"{self._said}{self._hint(good)}")

    def _hint(self, good: bool) -> str:
        if self._source is not None:
            return "; the token before was refused, too"
        if self._token and good:
            return "; a function or a file (pathlib.Path) as token=... would give the next one"
        return ""


def _refused(message: str) -> Refused:
    return Refused(common_pb2.Error(reason=_UNAUTHENTICATED, message=message))


def _checked(what: str, token: object) -> str:
    if not isinstance(token, str):
        raise TypeError(f"{what} must be text, and is {type(token).__name__}")
    if not _TOKEN.fullmatch(token):
        raise ValueError(f"{what}: must be letters, digits and . _ ~ + / - alone, without Bearer")
    return token


def _in_words(error: Exception) -> str:
    """What went wrong. Not the words of a function's own error: a secret may be in them."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"cannot read {error.filename!r}: {error.strerror}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {frame.name} ({Path(frame.filename).name}:{frame.lineno})"
