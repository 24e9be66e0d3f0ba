"""Ends the stream of a caller when its token expires."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from lingua_scheduler.services.runtime.auth.principals import Principal
from lingua_scheduler.services.runtime.errors import UnauthenticatedError

Result = TypeVar("Result")


async def until_expiry(principal: Principal | None, work: Awaitable[Result]) -> Result:
    """Runs the handler of a stream until the token of its caller expires.

    Raises:
        UnauthenticatedError: it has expired.
    """
    if principal is None or principal.expires_s is None:
        return await work
    try:
        async with asyncio.timeout(max(0.0, principal.expires_s - time.time())) as holds:
            return await work
    except TimeoutError:
        if not holds.expired():
            raise
        raise UnauthenticatedError("the token has expired; connect again with a new one") from None
