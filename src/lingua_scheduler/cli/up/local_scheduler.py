"""The whole scheduler on this machine: a Redis, all services, and sample nodes if wanted.

For `lingua up`, examples and tests:

    with LocalScheduler() as scheduler:
        channel = grpc.insecure_channel(scheduler.address("pool"))
        ...
        scheduler.wait(10)
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from lingua_scheduler.cli.failures import USAGE
from lingua_scheduler.cli.up.errors import InterruptedStartError, PartFailedError
from lingua_scheduler.cli.up.listening import is_ipv4, listen_variables, reachable
from lingua_scheduler.cli.up.local_console import CONSOLE, LocalConsole, console_environ
from lingua_scheduler.cli.up.local_redis import LocalRedis
from lingua_scheduler.cli.up.local_service import LocalService
from lingua_scheduler.cli.up.sample_nodes import SampleNode
from lingua_scheduler.cli.up.supervised import MAX_ENDS, STEADY_S, SupervisedProcess
from lingua_scheduler.services.runtime.settings.general_fields import extended_id
from lingua_scheduler.services.runtime.settings.settings import (
    Settings,
    load_settings,
    variable_name,
)

# A service is ready about a second after its start; a busy machine may need much longer.
START_DEADLINE_S = 60.0
# Time for a given Redis that is started at the same time.
REDIS_DEADLINE_S = 30.0
# Added to the drain: a service flushes its traces and ends its metrics server.
STOP_SLACK_S = 5.0
# More than the drain of a sample node.
NODE_STOP_S = 10.0
# How often to check the embedded Redis, which is not a child process.
REDIS_CHECK_S = 0.5

# In the order in which they become ready: each needs those before it.
SERVICES = ("pool", "dispatcher", "gateway")
ALL = "all"
REDIS = "redis"


def _discard(*_args: str) -> None:
    pass


class LocalScheduler:
    """Redis, services and nodes from `start` to `stop`; a context manager that does both.

    The Redis is that of LINGUA_REDIS_URL, or an embedded one. The first instance of a service takes
    the address of the settings, or a free port if that is taken; further ones take free ports. A
    process that dies is started again at the same addresses, as long as `wait` is called.
    Everything that it started ends with this process, however it ends.

    Args:
        instances: of each service.
        split: whether each service has a process of its own; otherwise one process has one of each.
        console: whether to run the operators' console as well, unless LINGUA_CONSOLE_LISTEN is
            empty. If it cannot run, everything else does.
        nodes: sample nodes to run beside them, each in a process of its own.
        environ: the settings, and the environment of all processes; by default that of this one.
        on_log: called, from threads, with a part's name and each line that it logs.
        on_note: called with a part's name and what becomes of it; by default as `on_log`.
        on_ready: called with the name of each part when it is ready: `redis`, then the services,
            then the nodes.

    Raises:
        SettingsError: a setting is not valid.
    """

    def __init__(
        self,
        *,
        instances: int = 1,
        split: bool = False,
        console: bool = False,
        nodes: Sequence[SampleNode] = (),
        environ: Mapping[str, str] | None = None,
        on_log: Callable[[str, str], None] = _discard,
        on_note: Callable[[str, str], None] | None = None,
        on_ready: Callable[[str], None] = _discard,
    ) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self.settings: Settings = load_settings(self._environ)
        self._redis = LocalRedis(self.settings)
        self._targets = {each: (each,) for each in SERVICES} if split else {ALL: SERVICES}
        self._started: dict[str, list[SupervisedProcess]] = {each: [] for each in self._targets}
        self.nodes: dict[str, SupervisedProcess] = {}
        """The processes of the sample nodes, by id."""
        self._wanted_nodes = nodes
        self.console: LocalConsole | None = None
        """None if there is none."""
        self._wants_console = console and bool(self.settings.console_listen)
        self.notes: list[str] = []
        """Deviations from the settings, such as a port that was in use."""
        self._instances = instances
        self._on_log = on_log
        self._on_note = on_note or on_log
        self._on_ready = on_ready
        self._interrupted = False
        # Wakes waiting threads. A SimpleQueue, because a signal handler may put into it.
        self._changes: queue.SimpleQueue[None] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def parts(self) -> list[str]:
        """The names of all parts that `start` starts, in the order in which they become ready."""
        numbers = range(1, self._instances + 1)
        services = [self._numbered(each, number) for each in SERVICES for number in numbers]
        nodes = [each.node_id for each in self._wanted_nodes]
        return [REDIS, *services, *nodes, *([CONSOLE] if self._wants_console else [])]

    @property
    def running(self) -> list[SupervisedProcess]:
        """All processes after `start`: services, nodes and console."""
        return [*self._all, *self._extra]

    @property
    def processes(self) -> list[SupervisedProcess]:
        """All processes of services, in the order of their start."""
        return [each for started in self._started.values() for each in started]

    @property
    def _all(self) -> list[SupervisedProcess]:
        """All processes without which this is not the scheduler that was asked for."""
        return [*self.processes, *self.nodes.values()]

    @property
    def _extra(self) -> list[SupervisedProcess]:
        """Processes that it can do without."""
        return [self.console.process] if self.console is not None else []

    @property
    def services(self) -> list[LocalService]:
        """Every instance of every service, in the order in which services become ready."""
        return [
            LocalService(service, self._numbered(service, number), process)
            for service in SERVICES
            for number, process in enumerate(self._hosts(service), start=1)
        ]

    @property
    def redis_pid(self) -> int:
        """Process id of the embedded Redis; 0 if a Redis was given."""
        return self._redis.pid

    @property
    def redis_url(self) -> str:
        """Where the Redis is; empty before `start`."""
        return self._redis.url

    @property
    def redis_words(self) -> str:
        """A description of the Redis, without passwords."""
        return self._redis.words

    def address(self, service: str, number: int = 1) -> str:
        """The address of an instance of a service for clients on this machine."""
        hosts = self._hosts(service)
        return reachable(hosts[(number - 1) % len(hosts)].endpoints[service].address)

    def addresses(self, service: str, first: int = 1) -> str:
        """All instances of a service as settings and options take them, this one first.

        Of services that do not listen at IPv4 addresses, that one alone: no list can name them.
        """
        count = len(self._hosts(service))
        listed = [self.address(service, first + at) for at in range(count)]
        return ",".join(listed) if all(map(is_ipv4, listed)) else listed[0]

    def start(self, within_s: float = START_DEADLINE_S) -> None:
        """Starts everything and returns when it answers. What has started is ended on failure.

        Raises:
            EmbeddedRedisError: there is no Redis server to start, or it failed.
            SettingsError: the Redis that is given will not do.
            PartFailedError: it cannot be used, or a service ended or was not ready in time.
            InterruptedStartError: see `interrupt`.
        """
        try:
            self.start_redis()
            self.start_services(within_s)
        except BaseException:
            self.stop()
            raise

    def start_redis(self, within_s: float = REDIS_DEADLINE_S) -> None:
        """The first half of `start`; the caller sees to `stop`. A given Redis has to answer."""
        self._redis.start(
            within_s=within_s,
            on_wait=lambda reason: self._on_note("up", f"waiting: {reason}"),
            is_interrupted=lambda: self._interrupted,
        )
        self._on_ready(REDIS)

    def start_services(self, within_s: float = START_DEADLINE_S) -> None:
        """The second half of `start`."""
        deadline = time.monotonic() + within_s
        # All processes load their code in parallel, which takes most of the time.
        for target, started in self._started.items():
            for number in range(1, self._instances + 1):
                started.append(self._start_process(target, number))
        for node in self._wanted_nodes:
            self.nodes[node.node_id] = self._supervise(
                node.node_id, node.command, (node.node_id,), self._environ
            )
        if self._wants_console:
            self.console = self._start_console()
        found: list[str] = []
        for target, started in self._started.items():
            for number, each in enumerate(started, start=1):
                each.begin(
                    {
                        variable_name(f"{other}_address"): self.addresses(other, number)
                        for other in found
                    }
                )
            self._await_ready(started, deadline, within_s)
            found += self._targets[target]
            for service in self.services:
                if service.service in self._targets[target]:
                    self._on_ready(service.name)
        self._connect_nodes(deadline, within_s)
        if self.console is not None:
            self._begin_console(self.console, deadline)

    def _start_console(self) -> LocalConsole:
        environ = console_environ(self.settings, self._environ, self.notes)
        process = self._supervise(CONSOLE, ("serve", CONSOLE), (CONSOLE,), environ)
        return LocalConsole(process, lambda line: self._on_note(CONSOLE, line))

    def _begin_console(self, console: LocalConsole, deadline: float) -> None:
        """Waits for the console, unless it fails."""
        console.process.begin(
            {variable_name(f"{other}_address"): self.addresses(other) for other in SERVICES}
        )
        while not console.is_settled and self._await_change(deadline):
            if self._interrupted:
                raise InterruptedStartError
        if console.address:
            self._on_ready(CONSOLE)
        else:
            self.notes.append("the console does not run: see its log")

    def _connect_nodes(self, deadline: float, within_s: float) -> None:
        variable = variable_name("dispatcher_address")
        for number, node in enumerate(self.nodes.values(), start=1):
            node.begin({variable: self.addresses("dispatcher", number)})
        self._await_ready(self.nodes.values(), deadline, within_s)
        for node_id in self.nodes:
            self._on_ready(node_id)

    def _await_ready(
        self, processes: Iterable[SupervisedProcess], deadline: float, within_s: float
    ) -> None:
        while late := [each for each in processes if not each.endpoints]:
            if not self._await_change(deadline):
                names = ", ".join(each.name for each in late)
                raise PartFailedError(f"{names}: not ready within {within_s:g} s{self._logged()}")
            if self._interrupted:
                raise InterruptedStartError

    def wait(self, timeout_s: float | None = None) -> None:
        """Return after that time, or when `interrupt` is called.

        Restarts processes that die in the meantime.

        Raises:
            PartFailedError: a service cannot stay up, or the embedded Redis has died.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._interrupted and self._await_change(deadline):
            pass

    def interrupt(self) -> None:
        """End `wait` or a start in progress. May be called from signal handlers."""
        self._interrupted = True
        self._changes.put(None)

    def stop(self) -> None:
        """Drain nodes and services, then end the embedded Redis. A second call does nothing."""
        # Nodes first: they finish their jobs, which needs the services.
        self._end(self.nodes.values(), NODE_STOP_S)
        self._end(self._extra, NODE_STOP_S)
        self.console = None
        self._end(self.processes, self.settings.drain_grace_ms / 1000 + STOP_SLACK_S)
        self.nodes.clear()
        for started in self._started.values():
            started.clear()
        self._redis.stop()

    def _end(self, processes: Iterable[SupervisedProcess], within_s: float) -> None:
        deadline = time.monotonic() + within_s
        for each in processes:
            if each.runs:
                each.terminate()
        for each in processes:
            if not each.join(max(0.0, deadline - time.monotonic())):
                self._on_note(each.name, "did not end in time; killing it")
                each.kill()
                each.join()

    def kill(self) -> None:
        """End all processes at once; the embedded Redis ends with this one."""
        for each in self.running:
            each.kill()

    def _hosts(self, service: str) -> list[SupervisedProcess]:
        """The processes that run a service."""
        return next(
            self._started[target] for target, has in self._targets.items() if service in has
        )

    def _numbered(self, name: str, number: int) -> str:
        return name if self._instances == 1 else f"{name}-{number}"

    def _start_process(self, target: str, number: int) -> SupervisedProcess:
        services, name = self._targets[target], self._numbered(target, number)
        environ = {**self._environ, "LINGUA_REDIS_URL": self.redis_url}
        for service in services:
            environ |= listen_variables(
                self.settings,
                service,
                name=self._numbered(service, number),
                is_first=number == 1,
                notes=self.notes,
            )
        if self.settings.origin("instance_id") != "default" and environ["LINGUA_INSTANCE_ID"]:
            # Two processes must not have the same name. One that runs all services extends it for
            # each of them by itself.
            own = extended_id(self.settings.instance_id, str(number))
            environ["LINGUA_INSTANCE_ID"] = own if target == ALL else extended_id(own, target)
        return self._supervise(name, ("serve", target), services, environ)

    def _supervise(
        self, name: str, command: Sequence[str], parts: Sequence[str], environ: Mapping[str, str]
    ) -> SupervisedProcess:
        if self.settings.log_format == "auto":
            # Its stderr is a pipe, but a person reads it in the end.
            environ = {**environ, "LINGUA_LOG_FORMAT": "human"}
        return SupervisedProcess(
            command=command,
            parts=parts,
            name=name,
            environ=environ,
            on_log=lambda line: self._on_log(name, line),
            on_note=lambda line: self._on_note(name, line),
            on_change=lambda: self._changes.put(None),
        )

    def _await_change(self, deadline: float | None) -> bool:
        """Wait until something may have changed; False if the time is up."""
        now = time.monotonic()
        if deadline is not None and now >= deadline:
            return False
        restarts = (each.restart_at for each in self.running)
        due = [at for at in restarts if at is not None]
        until = min([now + REDIS_CHECK_S, *due, *([] if deadline is None else [deadline])])
        try:
            self._changes.get(timeout=max(0.0, until - now))
        except queue.Empty:
            self._redis.check()
        for each in self._all:
            each.check(time.monotonic())
            if each.gave_up:
                raise self._died(each)
        if self.console is not None:
            self.console.check(time.monotonic())
        return True

    def _died(self, dead: SupervisedProcess) -> PartFailedError:
        when = "could not start"
        if dead.endpoints:
            when = (
                f"cannot stay up, {MAX_ENDS} ends in a row within {STEADY_S:g} s of a start; last"
            )
        return PartFailedError(
            f"{dead.name} (pid {dead.pid}) {when}: {dead.how_it_ended()}{self._logged(dead)}",
            # A service exits with 2 if its settings are invalid; they are those of `up`.
            exit_code=USAGE if dead.exit_code == USAGE and not dead.endpoints else 1,
        )

    def _logged(self, only: SupervisedProcess | None = None) -> str:
        lines = [line for each in ([only] if only else self._all) for line in each.last_log]
        return (
            "".join(["; its last log lines:", *(f"\n  {line}" for line in lines)]) if lines else ""
        )
