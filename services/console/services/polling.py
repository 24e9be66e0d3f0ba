"""A loop that asks a service again and again, and survives its failures."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from lingua_scheduler.services.console.services.problems import Problems, Source
from lingua_scheduler.services.runtime.errors import InternalError, LinguaError

# After a failure the pause doubles up to this.
PAUSE_MAX_S = 5.0

_log = logging.getLogger(__name__)


async def poll(
    source: Source,
    ask: Callable[[], Awaitable[bool]],
    *,
    every_s: float,
    problems: Problems,
) -> None:
    """Asks until cancelled.

    Args:
        source: has a problem while asking fails.
        ask: asks once; returns whether to ask again at once. Raises LinguaError.
        every_s: pause between two questions.
        problems: are kept up to date.
    """
    pause = every_s
    while True:
        try:
            more = await ask()
            problems.solved(source)
            pause = 0.0 if more else every_s
        except LinguaError as error:
            problems.found(source, error)
            pause = min(max(2 * pause, every_s), PAUSE_MAX_S)
        except Exception:
            # A fault of one source must not end the others.
            _log.exception("polling failed", extra={"source": source})
            problems.found(source, InternalError("the console failed; its log has the details"))
            pause = PAUSE_MAX_S
        await asyncio.sleep(pause)
