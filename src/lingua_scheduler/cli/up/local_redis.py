"""The Redis of a scheduler on this machine: one that is given, or an embedded one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from lingua_scheduler.cli.up.errors import PartFailedError
from lingua_scheduler.cli.up.given_redis import await_redis, server_name
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.settings.settings import Settings, masked_url


class LocalRedis:
    """The Redis of the settings, or an embedded one from `start` to `stop`.

    Args:
        settings: have its URL, or the folder of the embedded one.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._embedded: EmbeddedRedis | None = None
        self.url = ""
        """Empty before `start`."""
        self.words = ""
        """A description of it, without passwords."""

    @property
    def pid(self) -> int:
        """Process id of the embedded Redis; 0 if a Redis was given."""
        return self._embedded.pid if self._embedded is not None else 0

    def start(
        self,
        *,
        within_s: float,
        on_wait: Callable[[str], None],
        is_interrupted: Callable[[], bool],
    ) -> None:
        """Starts the embedded Redis, or waits until the one that is given answers.

        Args:
            within_s: time that a given one has.
            on_wait: called with the reason if it does not answer yet.
            is_interrupted: whether to give up.

        Raises:
            EmbeddedRedisError: there is no Redis server to start, or it failed.
            SettingsError: the Redis that is given will not do.
            PartFailedError: it cannot be used.
            InterruptedStartError: it was told to give up.
        """
        self.url = self._settings.redis_url
        if self.url:
            self.words = f"{masked_url(self.url)} (given by LINGUA_REDIS_URL)"
            asyncio.run(
                await_redis(
                    self.url,
                    prefix=self._settings.redis_prefix,
                    within_s=within_s,
                    on_wait=on_wait,
                    is_interrupted=is_interrupted,
                )
            )
            return
        folder = self._settings.redis_dir
        self._embedded = EmbeddedRedis(
            data_dir=Path(folder).expanduser() if folder else None,
            # No port: every user of this machine could connect to it.
            unix_socket=True,
        )
        self._embedded.start()
        self.url = self._embedded.url
        where = f"data in {folder}" if folder else "data in a temporary folder, deleted at the end"
        self.words = f"embedded {server_name(self.url)} at {self.url}, {where}"

    def check(self) -> None:
        """Raises PartFailedError if the embedded Redis, which is no child process, has died."""
        if self._embedded is None:
            return
        try:
            os.kill(self._embedded.pid, 0)
        except ProcessLookupError:
            raise PartFailedError(
                f"the embedded Redis (pid {self._embedded.pid}) ended unexpectedly"
            ) from None

    def stop(self) -> None:
        """Ends the embedded Redis. A second call does nothing."""
        if self._embedded is not None:
            self._embedded.stop()
            self._embedded = None
