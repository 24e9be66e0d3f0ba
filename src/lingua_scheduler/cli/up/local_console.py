"""The operators' console beside a scheduler on this machine."""

from collections.abc import Callable, Mapping

from lingua_scheduler.cli.up.listening import listen_variables, reachable
from lingua_scheduler.cli.up.supervised import SupervisedProcess
from lingua_scheduler.services.runtime.settings.general_fields import extended_id
from lingua_scheduler.services.runtime.settings.settings import Settings

CONSOLE = "console"


def console_environ(
    settings: Settings, environ: Mapping[str, str], notes: list[str]
) -> dict[str, str]:
    """The environment of the console; see `listen_variables`."""
    listens = listen_variables(settings, CONSOLE, name=CONSOLE, is_first=True, notes=notes)
    made = {**environ, **listens}
    if settings.origin("instance_id") != "default" and made["LINGUA_INSTANCE_ID"]:
        made["LINGUA_INSTANCE_ID"] = extended_id(settings.instance_id, CONSOLE)
    return made


class LocalConsole:
    """The process of the console. It is restarted if it dies; if it cannot run, all else does.

    Args:
        process: runs it.
        on_log: called with what becomes of it.
    """

    def __init__(self, process: SupervisedProcess, on_log: Callable[[str], None]) -> None:
        self.process = process
        self._on_log = on_log

    @property
    def address(self) -> str:
        """Where browsers on this machine find it; empty if it was never ready."""
        found = self.process.endpoints.get(CONSOLE)
        return reachable(found.address) if found else ""

    @property
    def is_settled(self) -> bool:
        """Whether it is ready, or never will be."""
        return bool(self.process.endpoints) or self.process.gave_up

    def check(self, now: float) -> None:
        """Restarts it if it has died and it is time."""
        if self.process.gave_up:
            return
        self.process.check(now)
        if self.process.gave_up:
            how = self.process.how_it_ended()
            self._on_log(f"cannot run: {how}; everything else runs on")
