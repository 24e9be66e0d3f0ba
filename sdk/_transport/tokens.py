"""Where tokens come from, and whether the next one may help. Logs and errors never contain one."""

import asyncio
import inspect
import re
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

from lingua_scheduler.sdk._transport.endings import Ending, Expired, Lost, Refused
from lingua_scheduler.v1 import common_pb2

# A string, a file that contains it, or a function, async or blocking, that returns it.
Token = str | Path | Callable[[], str | Awaitable[str]]

# The syntax of RFC 6750; nothing else can be sent.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
# How the tokens of rooms begin; gateways make them, and only strings are accepted for them.
_OF_A_ROOM = "room."
_UNAUTHENTICATED = common_pb2.ERROR_REASON_UNAUTHENTICATED


class TokenSource:
    """Provides a token for every connection, and decides whether a refusal is final.

    The refusal of a fixed string is final. Otherwise the source is asked once more, and the refusal
    is final if it returns the same token, or if the new one is refused as well.

    Args:
        token: None for none.

    Attributes:
        failure: what the function raised, if it could not provide the last token.

    Raises:
        ValueError: the string cannot be a token.
        TypeError: the argument is neither a string, a path nor a function.
    """

    def __init__(self, token: Token | None) -> None:
        self.failure: Exception | None = None
        self._source = None if isinstance(token, str) else token
        self._token = _checked("token", token) if isinstance(token, str) else ""
        # The token that was refused last, and why.
        self._refused = ""
        self._said = ""
        self._refusals = 0
        if not (self._source is None or isinstance(self._source, Path) or callable(self._source)):
            raise TypeError(
                "token: must be a string, a pathlib.Path, or a function that returns it"
            )

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of a call, with the current token."""
        return (("authorization", f"Bearer {self._token}"),) if self._token else ()

    async def ask(self, within: float) -> Lost | Refused | None:
        """Fetches the token for the next connection. Returns why that failed, or None.

        Args:
            within: how many seconds it may take.
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
            return _refused(f"{self._said}; the token source returned the same token again")
        return None

    async def _ask(self) -> str:
        source = self._source
        if isinstance(source, Path):
            return _checked(str(source), (await asyncio.to_thread(source.read_text)).strip())
        assert callable(source)
        # A blocking function may call another server, and must not block the event loop.
        is_async = inspect.iscoroutinefunction(source)
        given = source() if is_async else await asyncio.to_thread(source)
        return _checked(
            "the function's token", await given if inspect.isawaitable(given) else given
        )

    def judge(self, ending: Ending, *, good: bool) -> Ending:
        """Returns how a stream ended; Expired if another token may help.

        Args:
            ending: by the server's account.
            good: whether the server had accepted the stream.
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
            return "; the previous token was refused as well"
        if self._token.startswith(_OF_A_ROOM) and good:
            return "; the host of the room can make another one"
        if self._token and good:
            return "; pass a function or a file (pathlib.Path) as token=... to renew it"
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
    """Describes the error without its message, which may contain a secret."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"cannot read {error.filename!r}: {error.strerror}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {frame.name} ({Path(frame.filename).name}:{frame.lineno})"
