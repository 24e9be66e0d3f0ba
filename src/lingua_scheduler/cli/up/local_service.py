"""An instance of a service on this machine."""

from dataclasses import dataclass

from lingua_scheduler.cli.up.supervised import SupervisedProcess


@dataclass(frozen=True, slots=True)
class LocalService:
    """One instance of a service, in a process of its own or with others."""

    service: str
    name: str
    process: SupervisedProcess

    @property
    def address(self) -> str:
        """Its address; empty until it was ready for the first time."""
        found = self.process.endpoints.get(self.service)
        return found.address if found else ""

    @property
    def metrics(self) -> str:
        """The address of its metrics; empty if they are off."""
        found = self.process.endpoints.get(self.service)
        return found.metrics if found else ""

    @property
    def web(self) -> str:
        """Where it serves browsers; empty if it does not."""
        found = self.process.endpoints.get(self.service)
        return found.web if found else ""

    @property
    def pid(self) -> int:
        """Process id of its current or last process."""
        return self.process.pid
