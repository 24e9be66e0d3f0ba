"""Documents, actions and sources of one console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lingua_scheduler.services.console.documents.documents import Documents
from lingua_scheduler.services.console.documents.instances import OwnInstance
from lingua_scheduler.services.console.services.calls import CALL_S, ServiceCalls, Token
from lingua_scheduler.services.console.services.sources import Sources
from lingua_scheduler.services.console.store.jobs import MAX_JOBS
from lingua_scheduler.services.runtime.auth.own_token import OwnToken
from lingua_scheduler.services.runtime.auth.principals import Role
from lingua_scheduler.services.runtime.rpc.channels import Dialer

if TYPE_CHECKING:
    from lingua_scheduler.services.runtime.settings.settings import Settings

# A source that has had a problem for longer than this is stale.
_STALE_MS = 10_000


class Backend:
    """What the pages and `lingua top` are made of.

    Args:
        sources: everything that is read.
        trace_template: see Documents.
        own: see Documents.
    """

    def __init__(
        self, sources: Sources, *, trace_template: str = "", own: OwnInstance | None = None
    ) -> None:
        self.sources = sources
        self.documents = Documents(sources, trace_template=trace_template, own=own)
        self.actions = sources.actions

    @classmethod
    def of(
        cls,
        settings: Settings,
        *,
        dialer: Dialer | None = None,
        token: Token | None = None,
        max_jobs: int = MAX_JOBS,
        timeout_s: float = CALL_S,
        trace_template: str = "",
        own: OwnInstance | None = None,
    ) -> Backend:
        """A backend for the addresses in the settings.

        Args:
            settings: have the addresses, certificates and secrets.
            dialer: makes channels; None: a new one.
            token: of this process; None: one with the role of a viewer.
            max_jobs: how many recent jobs are kept.
            timeout_s: time limit of each call.
            trace_template: see Documents.
            own: see Documents.

        Raises:
            SettingsError: the files for TLS or tokens are not valid.
        """
        if token is None and (settings.auth == "on" or settings.token_file):
            token = OwnToken(settings, role=Role.VIEWER)
        calls = ServiceCalls(
            addresses={
                "pool": settings.pool_address,
                "dispatcher": settings.dispatcher_address,
                "gateway": settings.gateway_address,
            },
            dialer=dialer or Dialer(settings),
            token=token,
            renew_ms=settings.channel_renew_ms,
            timeout_s=timeout_s,
        )
        sources = Sources(
            calls,
            max_jobs=max_jobs,
            # As dispatchers decide it.
            quiet_ms=settings.reservation_ttl_ms + settings.job_timeout_ms,
        )
        return cls(sources, trace_template=trace_template, own=own)

    def stale(self) -> Sequence[str]:
        """The sources that have not been read for a while, such as "jobs"."""
        problems, now_ms = self.sources.problems, self.sources.now_ms()
        return problems.older_than(now_ms - _STALE_MS)

    async def run(self) -> None:
        """Reads the sources until cancelled."""
        await self.sources.run()

    async def close(self) -> None:
        """Releases its connections."""
        await self.sources.close()
