"""Single calls about a room: to the next gateway if one cannot answer, until the time is up."""

import asyncio
import random
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import grpc

from lingua_scheduler.sdk._transport.backoff import Backoff
from lingua_scheduler.sdk._transport.channels import Channels, Lease, parse_addresses
from lingua_scheduler.sdk._transport.endings import (
    Ending,
    Expired,
    Left,
    Lost,
    Moved,
    Refused,
)
from lingua_scheduler.sdk._transport.statuses import ending_of
from lingua_scheduler.sdk._transport.stream_runner import dial, is_going_away
from lingua_scheduler.sdk._transport.tls import Tls, tls_hint
from lingua_scheduler.sdk._transport.tokens import Token, TokenSource
from lingua_scheduler.sdk.errors import RoomRefusedError, RoomUnavailableError
from lingua_scheduler.sdk.session.protocol.wire import fields_of
from lingua_scheduler.sdk.validate import check_number
from lingua_scheduler.statuses import reason_name
from lingua_scheduler.v1 import common_pb2, session_pb2_grpc

# How long to look for a gateway that answers.
CALL_S = 10.0
# How long one gateway may take.
ANSWER_S = 5.0
# The longest wait that a server can ask for.
LONGEST_WAIT_S = 5.0

# Another gateway, or the same one later, may answer.
_WORTH_A_RETRY = frozenset(
    {
        common_pb2.ERROR_REASON_DRAINING,
        common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN,
        common_pb2.ERROR_REASON_BACKPRESSURE,
        common_pb2.ERROR_REASON_INTERNAL,
    }
)

Stub = session_pb2_grpc.SessionGatewayStub
Method = Callable[[Stub], Callable[..., Any]]


class RoomCalls:
    """Calls equivalent gateways. In an `async with` block, calls share connections.

    Args:
        addresses: of the gateways: "host:port", "a:1,b:2" or a list of these.
        token: identifies the caller; asked before every call.
        tls: None for plain text.
        metadata: sent with each call, beside the token.
        channels: connections that the app shares; excludes `tls`.
        timeout: how many seconds to look for a gateway that answers.

    Attributes:
        addresses: one by one.
        tls: for connections of their own.
        metadata: as given.

    Raises:
        ValueError: names the argument and what is allowed.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        token: Token | None,
        tls: Tls | None,
        metadata: Sequence[tuple[str, str]],
        channels: Channels | None,
        timeout: float,
    ) -> None:
        if channels is not None and tls is not None:
            raise ValueError("tls: must be given to the shared channels instead")
        check_number("timeout", timeout, 0.1, 86_400)
        self.addresses = parse_addresses(addresses)
        self.tls = tls
        self.metadata = tuple(metadata)
        self._token = TokenSource(token)
        self._given = channels
        self._timeout = timeout
        self._rng = random.Random()
        self._at = self._rng.randrange(len(self.addresses))
        # The connections of the open blocks, and their number.
        self._own: Channels | None = None
        self._blocks = 0

    @property
    def channels(self) -> Channels | None:
        """The connections that calls share now; None if each has its own."""
        return self._given or self._own

    async def __aenter__(self) -> Self:
        """Keeps connections until the end of the block."""
        self._blocks += 1
        if self.channels is None:
            self._own = Channels(tls=self.tls)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes connections at the end of the last block."""
        self._blocks -= 1
        if self._blocks == 0 and self._own is not None:
            own, self._own = self._own, None
            await own.close()

    async def call(self, method: Method, request: object) -> Any:
        """Returns the answer of the first gateway that has one.

        A call whose answer was lost is repeated. CreateRoom may then create a second room, which
        nobody joins, so that it is deleted soon.

        Raises:
            RoomRefusedError: a gateway refuses the call, and a retry cannot help.
            RoomUnavailableError: no gateway answered in time, or the tenant's quota is used up.
        """
        loop = asyncio.get_running_loop()
        gives_up_at = loop.time() + self._timeout
        backoff = Backoff(self._rng)
        async with self:
            while True:
                # At least one attempt, however slow the token was.
                within = max(0.1, gives_up_at - loop.time())
                answer = await self._try(method, request, within)
                if not isinstance(answer, Lost | Moved | Refused | Expired | Left):
                    return answer
                wait = max(backoff.next(), self._asked_wait(answer))
                if loop.time() + wait >= gives_up_at:
                    raise self._unavailable(answer) from self._token.failure
                self._at += 1
                await asyncio.sleep(wait)

    async def _try(self, method: Method, request: object, within: float) -> Any:
        """Asks the next gateway. Returns its answer, or the `Ending` that says why it has none."""
        assert self.channels is not None
        channels, address = self.channels, self.addresses[self._at % len(self.addresses)]
        lease = await dial(address, channels=channels, token=self._token, within=within)
        if not isinstance(lease, Lease):
            return lease
        ending: Ending = Lost("the call was abandoned")
        try:
            metadata = (*self.metadata, *self._token.metadata)
            timeout = min(ANSWER_S, within)
            answer = await method(Stub(lease.channel))(request, timeout=timeout, metadata=metadata)
            # If the token is refused later, the next one may be accepted again.
            self._token.judge(ending, good=True)
            return answer
        except grpc.aio.AioRpcError as error:
            hint = tls_hint(error.details() or "", channels.tls)
            ending = ending_of(error, service="session gateway", hint=hint)
            return self._token.judge(ending, good=False)
        finally:
            await channels.release(lease, renew=is_going_away(ending))

    def _asked_wait(self, ending: Ending) -> float:
        """Returns how long the gateway asks to wait. Raises if a retry cannot help."""
        if not isinstance(ending, Refused):
            return 0.0
        error = ending.error
        after = error.retry_after_ms / 1000
        if error.reason == common_pb2.ERROR_REASON_QUOTA_EXCEEDED:
            raise RoomUnavailableError(reason_name(error.reason), error.message, retry_after=after)
        if error.reason not in _WORTH_A_RETRY:
            raise RoomRefusedError(reason_name(error.reason), error.message, fields_of(error))
        return min(LONGEST_WAIT_S, after)

    def _unavailable(self, ending: Ending) -> RoomUnavailableError:
        reason, why, after = "UNREACHABLE", "", 0.0
        if isinstance(ending, Refused):
            reason, why = reason_name(ending.error.reason), ending.error.message
            after = ending.error.retry_after_ms / 1000
        elif isinstance(ending, Lost | Expired):
            why = ending.why
        what = f"no gateway answered within {self._timeout:g} s; last: {why}"
        return RoomUnavailableError(reason, what, retry_after=after)
