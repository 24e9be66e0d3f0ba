"""Three services with auth on, shared by the tests of a worker, and the issuer of their tokens."""

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.security.issuer import ISSUER, Issuer
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess, ServiceProcess


@dataclass(frozen=True)
class Services:
    """One process of each service."""

    pool: PoolProcess
    dispatcher: DispatcherProcess
    gateway: GatewayProcess

    def all(self) -> tuple[ServiceProcess, ...]:
        """In the order of their start."""
        return self.pool, self.dispatcher, self.gateway

    def serving(self, method: str) -> ServiceProcess:
        """The process that serves `/package.Service/Method`."""
        by_name = {"PoolService": self.pool, "Dispatcher": self.dispatcher}
        return by_name.get(method.split("/")[1].rpartition(".")[2], self.gateway)


@pytest.fixture(scope="session")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    """Issues tokens that the services accept."""
    return Issuer(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="session")
def services(redis_url: str, issuer: Issuer) -> Iterator[Services]:
    """All services, with auth on and everything logged; no log has a token, or tells of a bug."""
    settings = {
        "auth": "on",
        "auth_secret_file": str(issuer.secret_file),
        "auth_jwks_file": str(issuer.jwks_file),
        "auth_issuer": ISSUER,
        "log_level": "debug",
        "redis_timeout_ms": 4000,
    }
    prefix = f"test:{uuid.uuid4().hex[:8]}"
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(PoolProcess(redis_url=redis_url, prefix=prefix, **settings))
        dispatcher = stack.enter_context(
            DispatcherProcess(pool=pool, redis_url=redis_url, **settings)
        )
        gateway = stack.enter_context(
            GatewayProcess(
                pool=pool, redis_url=redis_url, dispatchers=dispatcher.address, **settings
            )
        )
        started = Services(pool, dispatcher, gateway)
        yield started
        for process in started.all():
            assert not process.faults(), process.log()
            assert not tokens_in(process.log())


def tokens_in(log: str) -> list[str]:
    """Lines that seem to contain a token: its first two parts are JSON objects in base64."""
    return [line for line in log.splitlines() if "eyJ" in line]
